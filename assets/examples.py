"""Two small tables that scikit-learn ships, for examples that take seconds."""

from __future__ import annotations

import dagster as dg
import pyarrow as pa


@dg.asset(
    key=["raw", "digits"],
    group_name="raw",
    kinds={"parquet"},
    io_manager_key="table",
    owners=["team:examples"],
    description="1,797 hand-written digits of 8 by 8 pixels, each from 0 (white) to 16 (black), and which "
    "digit it is (scikit-learn's bundled set).",
)
def digits() -> pa.Table:
    # A second and a half to import, which Dagster would pay whenever it loads the workspace.
    from sklearn.datasets import load_digits  # noqa: PLC0415

    bunch = load_digits()
    columns = {
        f"pixel_{row}_{column}": pa.array(bunch.images[:, row, column], pa.float64())
        for row in range(8)
        for column in range(8)
    }
    return pa.table(columns | {"digit": pa.array([str(digit) for digit in bunch.target])})


@dg.asset(
    key=["raw", "diabetes"],
    group_name="raw",
    kinds={"parquet"},
    io_manager_key="table",
    owners=["team:examples"],
    description="442 patients: age, sex, body mass index, blood pressure, six blood serum values, and how "
    "far the disease had progressed a year later (scikit-learn's bundled set).",
)
def diabetes() -> pa.Table:
    # A second and a half to import, which Dagster would pay whenever it loads the workspace.
    from sklearn.datasets import load_diabetes  # noqa: PLC0415

    bunch = load_diabetes(as_frame=True, scaled=False)
    columns = {name: pa.array(bunch.data[name], pa.float64()) for name in bunch.data}
    # Two codes whose meaning the set does not tell: names, not amounts.
    columns["sex"] = pa.array([str(int(code)) for code in bunch.data["sex"]])
    return pa.table(columns | {"progression": pa.array(bunch.target, pa.float64())})
