"""The contract of the departures: what each column holds, in which unit, and what is known too late."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import ibis
import ibis.expr.datatypes as dt
import pandera.ibis as pa

ORIGINS = ["EWR", "JFK", "LGA"]
CARRIERS = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"]
# Said here again, not imported from assets/: a contract that follows its data proves nothing.
LATE_AFTER = 15

# DuckDB's timestamps have microseconds, and pandera wants the scale said: zone, scale, nullable.
Moment = Annotated[dt.Timestamp, None, 6, True]
# Read by gristmill: a column that is known only after the departure can be no feature.
AFTER = {"known": "after"}


class Flights(pa.DataFrameModel):
    """A row is a scheduled departure from New York. Clocks are local; a clock of 4 digits is hours and minutes."""

    scheduled_at: Moment = pa.Field(
        ge=datetime(2013, 1, 1),
        lt=datetime(2014, 1, 1),
        description="Scheduled departure, a local date and time without a zone.",
    )
    year: int = pa.Field(eq=2013, description="Year of the scheduled departure.")
    month: int = pa.Field(ge=1, le=12, description="Month of the scheduled departure, 1 is January.")
    day: int = pa.Field(ge=1, le=31, description="Day of the month of the scheduled departure.")
    day_of_week: int = pa.Field(ge=1, le=7, description="Day of the week, 1 is Monday and 7 is Sunday.")
    hour: int = pa.Field(ge=0, le=23, description="Hour of the scheduled departure.")
    minute: int = pa.Field(ge=0, le=59, description="Minute of the scheduled departure within its hour.")
    sched_dep_time: int = pa.Field(ge=0, le=2359, description="Scheduled departure as a clock of 4 digits.")
    sched_dep_minutes: int = pa.Field(
        ge=0, lt=1440, description="Scheduled departure in minutes after midnight."
    )
    sched_arr_time: int = pa.Field(
        ge=0, le=2359, description="Scheduled arrival as a clock of 4 digits at the destination."
    )
    sched_arr_minutes: int = pa.Field(
        ge=0, lt=1440, description="Scheduled arrival in minutes after midnight at the destination."
    )
    sched_duration: int = pa.Field(
        ge=30, le=900, description="Scheduled time from gate to gate in minutes, time zones allowed for."
    )
    carrier: str = pa.Field(isin=CARRIERS, description="The airline's code of two characters (IATA).")
    flight: int = pa.Field(ge=1, le=9999, description="Flight number, a name and no amount.")
    tailnum: str = pa.Field(
        nullable=True,
        str_matches="^[A-Z0-9]{5,6}$",
        description="The plane's registration; missing for some that were cancelled.",
    )
    origin: str = pa.Field(isin=ORIGINS, description="The airport of departure (IATA code).")
    dest: str = pa.Field(str_matches="^[A-Z]{3}$", description="The airport of destination (IATA code).")
    distance: int = pa.Field(ge=1, le=6000, description="Distance between the airports in miles.")
    departures_in_hour: int = pa.Field(
        ge=1, le=100, description="Number of departures scheduled at the origin in the same clock hour."
    )
    plane_year: int = pa.Field(
        nullable=True, ge=1950, le=2013, description="Year the plane was made; missing for unknown planes."
    )
    plane_type: str = pa.Field(
        nullable=True,
        isin=["Fixed wing multi engine", "Fixed wing single engine", "Rotorcraft"],
        description="The plane's kind.",
    )
    manufacturer: str = pa.Field(nullable=True, description="Who made the plane.")
    model: str = pa.Field(nullable=True, description="The plane's model.")
    engines: int = pa.Field(nullable=True, ge=1, le=4, description="Number of engines.")
    seats: int = pa.Field(nullable=True, ge=1, le=900, description="Number of seats.")
    engine: str = pa.Field(
        nullable=True,
        isin=["4 Cycle", "Reciprocating", "Turbo-fan", "Turbo-jet", "Turbo-prop", "Turbo-shaft"],
        description="The engines' kind.",
    )
    temp: float = pa.Field(
        nullable=True, ge=-30, le=120, description="Temperature at the origin in °F, the hour before."
    )
    dewp: float = pa.Field(
        nullable=True, ge=-50, le=90, description="Dew point at the origin in °F, the hour before."
    )
    humid: float = pa.Field(
        nullable=True,
        ge=0,
        le=100,
        description="Relative humidity at the origin in percent, the hour before.",
    )
    wind_dir: int = pa.Field(
        nullable=True, ge=0, le=360, description="Direction of the wind in degrees, the hour before."
    )
    wind_speed: float = pa.Field(
        nullable=True, ge=0, le=150, description="Speed of the wind in miles per hour, the hour before."
    )
    wind_gust: float = pa.Field(
        nullable=True,
        ge=0,
        le=200,
        description="Speed of gusts in miles per hour, the hour before; missing where there were none.",
    )
    precip: float = pa.Field(
        nullable=True, ge=0, le=6, description="Precipitation in inches in the hour before."
    )
    pressure: float = pa.Field(
        nullable=True, ge=940, le=1060, description="Pressure at sea level in millibars, the hour before."
    )
    visib: float = pa.Field(
        nullable=True, ge=0, le=10, description="Visibility in miles, at most 10, the hour before."
    )
    dep_time: int = pa.Field(
        nullable=True,
        ge=0,
        le=2400,
        metadata=AFTER,
        description="Departure as a clock of 4 digits; missing for cancelled flights.",
    )
    dep_delay: int = pa.Field(
        nullable=True,
        ge=-120,
        le=2880,
        metadata=AFTER,
        description="Minutes that the departure was behind its schedule; negative when early.",
    )
    arr_time: int = pa.Field(
        nullable=True,
        ge=0,
        le=2400,
        metadata=AFTER,
        description="Arrival as a clock of 4 digits at the destination; missing for cancelled flights.",
    )
    arr_delay: int = pa.Field(
        nullable=True,
        ge=-240,
        le=2880,
        metadata=AFTER,
        description="Minutes that the arrival was behind its schedule; missing for cancelled and diverted flights.",
    )
    air_time: int = pa.Field(
        nullable=True, ge=10, le=1000, metadata=AFTER, description="Time in the air in minutes."
    )
    late: bool = pa.Field(
        nullable=True,
        description="The target: whether the arrival was more than 15 minutes behind; missing where it is not known.",
    )

    class Config:
        strict = False

    @pa.dataframe_check(description="late says whether arr_delay is over 15 minutes, and is missing with it")
    def late_is_arrival_delay(cls, data: pa.IbisData) -> ibis.Table:
        table = data.table
        return table.late.identical_to(table.arr_delay > LATE_AFTER)
