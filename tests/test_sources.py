import datetime
import decimal
import gzip
import os
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import sources, tables
from gristmill.errors import DataError, InputError
from gristmill.sources import text
from gristmill.tables import SourceTable
from gristmill.workspace import Workspace
from tests.reading import declared, opened, whole

UTC = datetime.UTC


def column(workspace: Workspace, *values: str, **source: Any) -> tuple[str, list[Any]]:
    """The type and the values of column x of a CSV that holds these texts."""
    lines = "".join(f"{value},0\n" for value in values)
    table = whole(opened(workspace, "x,y\n" + lines, **source))
    return str(table.schema.field("x").type), table["x"].to_pylist()


def refused(workspace: Workspace, content: str | bytes, name: str = "x.csv", **source: Any) -> str:
    """What is said of a source that cannot be read: one line."""
    with pytest.raises(DataError, match=r"^(data/x|source\.types|source\.format)") as caught:
        whole(opened(workspace, content, name, **source))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Delimited text: what a column is


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "-2", "+3", "0"], "int64", [1, -2, 3, 0]),
        (["1", "2.5", "1e-3", ".5", "2."], "double", [1.0, 2.5, 0.001, 0.5, 2.0]),
        (["true", "False", "TRUE"], "bool", [True, False, True]),
        (
            ["2024-02-29", "1999-12-31"],
            "date32[day]",
            [datetime.date(2024, 2, 29), datetime.date(1999, 12, 31)],
        ),
        (
            ["2024-01-02 03:04", "2024-01-02T03:04:05.000006"],
            "timestamp[us]",
            [datetime.datetime(2024, 1, 2, 3, 4), datetime.datetime(2024, 1, 2, 3, 4, 5, 6)],
        ),
        (["a", "1"], "string", ["a", "1"]),
        (["", ""], "string", [None, None]),
        # A type would change these, so they stay text.
        (["007", "1"], "string", ["007", "1"]),
        (["007.5", "1"], "string", ["007.5", "1"]),
        (["12345678901234567890", "1"], "string", ["12345678901234567890", "1"]),
        (["9007199254740993", "1.5"], "string", ["9007199254740993", "1.5"]),
        (["2024-02-30", "2024-01-01"], "string", ["2024-02-30", "2024-01-01"]),
        (["2024-01-02T03:04:05.123456789"], "string", ["2024-01-02T03:04:05.123456789"]),
        (["1_000"], "string", ["1_000"]),
        ([" 1"], "string", [" 1"]),
        (["0x10"], "string", ["0x10"]),
        (["1e5x"], "string", ["1e5x"]),
        (["yes", "no"], "string", ["yes", "no"]),
        (["true", "1"], "string", ["true", "1"]),
    ],
)
def test_a_column_is_what_all_of_its_texts_are(
    workspace: Workspace, texts: list[str], kind: str, values: list[Any]
) -> None:
    assert column(workspace, *texts) == (kind, values)


def test_k03_a13_big_integers_are_exact_beside_a_missing_one(workspace: Workspace) -> None:
    found = column(workspace, "9007199254740993", "", "9007199254740992")
    assert found == ("int64", [9007199254740993, None, 9007199254740992])


def test_k04_missing_truth_values_stay_missing(workspace: Workspace) -> None:
    assert column(workspace, "", "False", "True") == ("bool", [None, False, True])


def test_k02_only_the_declared_texts_mean_missing(workspace: Workspace) -> None:
    texts = ("NA", "DE", "None", "null", "nan ", "", '""')
    assert column(workspace, *texts) == ("string", ["NA", "DE", "None", "null", "nan ", None, None])
    assert column(workspace, "NA", "DE", "", na_values=["NA"]) == ("string", [None, "DE", ""])
    assert column(workspace, "?", "1", "", na_values=["?", ""]) == ("int64", [None, 1, None])
    assert column(workspace, "", "1", na_values=[]) == ("string", ["", "1"])


def test_a_declared_type_holds(workspace: Workspace) -> None:
    assert column(workspace, "1", "2", types={"x": "string"}) == ("string", ["1", "2"])
    assert column(workspace, "1", "2", types={"x": "number"}) == ("double", [1.0, 2.0])
    assert column(workspace, "", "", types={"x": "number"}) == ("double", [None, None])


@pytest.mark.parametrize(
    ("kind", "texts", "row", "value"),
    [
        ("integer", ["1", "", "x"], 3, "x"),
        ("integer", ["1", "007"], 2, "007"),
        ("integer", ["12345678901234567890"], 1, "12345678901234567890"),
        ("number", ["2", '"1,5"'], 2, "1,5"),
        ("number", ["9007199254740993"], 1, "9007199254740993"),
        ("boolean", ["true", "1"], 2, "1"),
        ("date", ["2024-01-01", "13/04/2024"], 2, "13/04/2024"),
        ("timestamp", ["2024-01-01T00:00", "2024-01-01T00:00Z"], 2, "2024-01-01T00:00Z"),
    ],
)
def test_a11_a18_a_value_that_is_not_of_the_declared_type_is_named(
    workspace: Workspace, kind: str, texts: list[str], row: int, value: str
) -> None:
    content = "x,y\n" + "".join(f"{text},0\n" for text in texts)
    text = f"data/x.csv: x row {row}: {value!r} is not of the declared type {kind}"
    assert refused(workspace, content, types={"x": kind}) == text


def test_types_of_no_column_are_refused(workspace: Workspace) -> None:
    assert (
        refused(workspace, "x,y\n1,2\n", types={"z": "string"}) == "source.types: no column 'z' in data/x.csv"
    )


def test_k08_a17_times_with_and_without_a_zone_do_not_mix(workspace: Workspace) -> None:
    text = "data/x.csv: x row 2: '2024-01-01T00:00:00' has no time zone, however others have one"
    assert refused(workspace, "x,y\n2024-01-01T00:00:00Z,1\n2024-01-01T00:00:00,0\n") == text


@pytest.mark.parametrize("types", [{}, {"x": "timestamp"}])
def test_k08_times_of_two_zones_become_utc(workspace: Workspace, types: dict[str, str]) -> None:
    kind, values = column(workspace, "2024-01-01T00:00:00-05:00", "2024-07-01 00:00:00-04:00", types=types)
    assert kind == "timestamp[us, tz=UTC]"
    assert values == [
        datetime.datetime(2024, 1, 1, 5, tzinfo=UTC),
        datetime.datetime(2024, 7, 1, 4, tzinfo=UTC),
    ]


def test_k08_a_date_that_could_be_two_dates_is_text(workspace: Workspace) -> None:
    assert column(workspace, "03/04/2024", "13/04/2024") == ("string", ["03/04/2024", "13/04/2024"])
    assert column(workspace, "03/04/2024", "04/05/2024") == ("string", ["03/04/2024", "04/05/2024"])


# Delimited text: the file


@pytest.mark.parametrize("target", ["id", "y"])
def test_k01_a_byte_order_mark_is_no_part_of_a_name(workspace: Workspace, target: str) -> None:
    table = whole(opened(workspace, b"\xef\xbb\xbfid,y\n1,0\n"))
    assert table.to_pylist() == [{"id": 1, "y": 0}]
    task = {"kind": "regression", "target": target, "metric": "rmse", "accept": {"at_most": 1}}
    assert tables.roles(declared({"path": "x"}, task=task), table.schema).target == target


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_k01_another_encoding_is_read_where_it_is_declared(workspace: Workspace, encoding: str) -> None:
    source = opened(workspace, "name,y\nMünchen,1\n".encode(encoding), encoding=encoding)
    assert list(workspace.private.iterdir()) != []
    assert whole(source).to_pylist() == [{"name": "München", "y": 1}]
    del source
    assert list(workspace.private.iterdir()) == []


def test_k01_a07_another_encoding_is_never_guessed(workspace: Workspace) -> None:
    latin = "name,y\nMünchen,1\n".encode("latin-1")
    text = "data/x.csv: byte 0xfc at 8 is not UTF-8; declare source.encoding"
    assert refused(workspace, latin) == text
    text = "data/x.csv: byte 0xff at 0 is not UTF-8; declare source.encoding"
    assert refused(workspace, "name,y\na,1\n".encode("utf-16")) == text
    text = "data/x.csv: line 4002 is not UTF-8; declare source.encoding"
    assert refused(workspace, b"name,y\n" + b"Bonn,1\n" * 4000 + latin[7:]) == text


@pytest.mark.parametrize(
    ("content", "encoding", "words"),
    [
        ("a,y\n".encode("utf-16-le"), "utf-16", "must start with a byte order mark to be read as utf-16"),
        (b"\xef\xbb\xbfa,y\n", "latin-1", "starts as UTF-8, however source.encoding is latin-1"),
        ("a,y\n1,2\n".encode("utf-16")[:-1], "utf-16", "is not utf-16 near byte"),
    ],
)
def test_a_wrong_encoding_is_told(workspace: Workspace, content: bytes, encoding: str, words: str) -> None:
    assert words in refused(workspace, content, encoding=encoding)
    assert list(workspace.private.iterdir()) == []


@pytest.mark.parametrize("header", ["a,a,y", '"a",b,a'])
def test_k06_a04_a_name_given_twice_is_refused(workspace: Workspace, header: str) -> None:
    second = 2 if header == "a,a,y" else 3
    text = f"data/x.csv: column name 'a' appears 2 times (positions 1, {second})"
    assert refused(workspace, header + "\n1,2,3\n") == text


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("a,A,y", "column names 'a' and 'A' differ in case only; rename one"),
        ("_row,y,a", "column name '_row' is gristmill's own; rename it"),
        ("a,,y", "the column at position 2 has no name"),
    ],
)
def test_a_name_that_would_be_lost_is_refused(workspace: Workspace, header: str, words: str) -> None:
    assert refused(workspace, header + "\n1,2,3\n") == f"data/x.csv: {words}"


def test_odd_names_are_kept(workspace: Workspace) -> None:
    table = whole(opened(workspace, '"a""b","c{x}",d\'e,value,line,"new\nline"\n1,2,3,4,5,6\n'))
    assert table.to_pylist() == [{'a"b': 1, "c{x}": 2, "d'e": 3, "value": 4, "line": 5, "new\nline": 6}]


@pytest.mark.parametrize(("row", "fields"), [("1,2,3,4,5", 5), ("1,2,3", 3), ("1", 1)])
def test_a05_a_ragged_row_is_named(workspace: Workspace, row: str, fields: int) -> None:
    text = f"data/x.csv: line 8 has {fields} fields, header has 4"
    assert refused(workspace, "a,b,c,y\n" + "1,2,3,4\n" * 6 + row + "\n") == text


def test_a05_a_ragged_file_is_not_shifted(workspace: Workspace) -> None:
    assert refused(workspace, "a,y\n1,2,3\n1,2,3\n") == "data/x.csv: line 2 has 3 fields, header has 2"


def test_a06_another_separator_is_guessed_for_the_message_only(workspace: Workspace) -> None:
    text = "data/x.csv: 1 column found; is the separator ';'? declare source.separator"
    assert refused(workspace, "a;y\n1;2\n") == text
    assert whole(opened(workspace, "a;y\n1;2\n", separator=";")).to_pylist() == [{"a": 1, "y": 2}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("\n", "must start with the columns' names, however its first line is empty"),
        ('a,y\n"1,2\n3,4\n', "line 2 opens a quote that is never closed"),
        ("a,y\r\n1,2\n3,4\r\n", "must end all lines in one way"),
        (b"a,y\n1,2\n3\0,4\n", "a holds a NUL character in 1 rows; it is no text"),
    ],
)
def test_a19_what_is_no_table_of_text_is_told(workspace: Workspace, content: str | bytes, words: str) -> None:
    assert words in refused(workspace, content)


@pytest.mark.parametrize(
    "content",
    [
        "a,y\r\n1,2\r\n3,4\r\n",
        "a,y\n1,2\n3,4",
        "a,y\n1,2\n\n3,4\n\n",
        '"a","y"\n"1","2"\n"3","4"\n',
        "a,y\r1,2\r3,4\r",
    ],
)
def test_harmless_forms_are_one_table(workspace: Workspace, content: str) -> None:
    assert whole(opened(workspace, content)).to_pylist() == [{"a": 1, "y": 2}, {"a": 3, "y": 4}]


def test_quoted_text_keeps_separators_quotes_and_line_ends(workspace: Workspace) -> None:
    table = whole(opened(workspace, 'a,y\n"1,2",1\n"3""4",2\n"5\n6",3\n'))
    assert table["a"].to_pylist() == ["1,2", '3"4', "5\n6"]


def test_a03_a_header_alone_has_no_rows(workspace: Workspace) -> None:
    source = opened(workspace, "a,y\n")
    assert source.schema.names == ["a", "y"]
    assert whole(source).num_rows == 0


def test_tabs_need_no_separator(workspace: Workspace) -> None:
    assert whole(opened(workspace, "a\ty\n1\t2,5\n", "x.tsv")).to_pylist() == [{"a": 1, "y": "2,5"}]
    assert whole(opened(workspace, "a\ty\n1\t2\n", "x.dat", format="tsv")).to_pylist() == [{"a": 1, "y": 2}]


@pytest.mark.parametrize("name", ["x.CSV", "x.2024.csv"])
def test_the_format_is_in_the_name(workspace: Workspace, name: str) -> None:
    assert whole(opened(workspace, "a,y\n1,2\n", name)).to_pylist() == [{"a": 1, "y": 2}]


def test_a_name_that_says_no_format_needs_one(workspace: Workspace) -> None:
    text = "source.format must be declared, however x.dat does not say what it is"
    assert refused(workspace, "a,y\n1,2\n", "x.dat") == text


# Compressed files


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv.gz", b"a,y\n1,2\n"), ("x.tsv.gz", b"a\ty\n1\t2\n"), ("x.jsonl.gz", b'{"a": 1, "y": 2}\n')],
)
def test_compressed_text_is_read(workspace: Workspace, name: str, content: bytes) -> None:
    source = opened(workspace, gzip.compress(content), name)
    assert whole(source).to_pylist() == [{"a": 1, "y": 2}]
    del source
    assert list(workspace.private.iterdir()) == []


def test_a08_compressed_text_that_is_cut_or_damaged_is_refused(workspace: Workspace) -> None:
    packed = gzip.compress(b"a,y\n" + b"".join(b"%d,%d\n" % (n * 7919 % 10007, n) for n in range(5000)))
    for keep in (10, 100, len(packed) // 2, len(packed) - 1):
        text = "data/x.csv.gz: compressed data ends early"
        assert refused(workspace, packed[:keep], "x.csv.gz") == text
    # One bit anywhere: the checksum at the end says so, also where a table could still be read.
    for place in (5000, len(packed) // 2, len(packed) - 6):
        damaged = packed[:place] + bytes([packed[place] ^ 4]) + packed[place + 1 :]
        assert "data/x.csv.gz: compressed data " in refused(workspace, damaged, "x.csv.gz")
    assert "is damaged (Not a gzipped file" in refused(workspace, "a,y\n1,2\n", "x.csv.gz")
    assert list(workspace.private.iterdir()) == []


def test_a22_what_expands_beyond_reason_is_refused(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MAX_EXPANDED", 1 << 22)
    packed = gzip.compress(b"a,y\n" + b"1,2\n" * (4 << 20))
    assert "expand to more than 4 MiB" in refused(workspace, packed, "x.csv.gz")


# The file itself


def test_a01_a_file_that_is_not_there_is_told_with_where_it_was_looked_for(workspace: Workspace) -> None:
    for path in ("data/gone.csv", "data/*.csv"):
        text = rf"source.path {path.replace('*', '.')} must be there, however nothing is \(looked in {workspace.root}\)"
        with pytest.raises(DataError, match=text):
            sources.open_source(declared({"path": path}), workspace)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "data/x.csv must hold data, however the file is empty"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n",
            "data/x.csv is a Git LFS pointer, not data; fetch it with `git lfs pull`",
        ),
        (b"\n<!DOCTYPE html><html>", "data/x.csv is an HTML page, not data"),
        (b"<html><body>404", "data/x.csv is an HTML page, not data"),
    ],
)
def test_a02_a10_what_is_no_data_is_named(workspace: Workspace, content: bytes, text: str) -> None:
    assert refused(workspace, content) == text


def test_a24_what_is_no_regular_file_is_refused(workspace: Workspace) -> None:
    data = workspace.root / "data"
    os.mkfifo(data / "fifo.csv")
    (data / "folder.csv").mkdir()
    (data / "loop.csv").symlink_to("loop.csv")
    for name, words in (
        ("fifo.csv", "data/fifo.csv must be a regular file, however it is not"),
        ("folder.csv", "data/folder.csv must be a regular file, however it is not"),
        ("loop.csv", "data/loop.csv must be there, however nothing is"),
    ):
        with pytest.raises(DataError, match=words):
            sources.open_source(declared({"path": f"data/{name}"}), workspace)


def test_a_link_that_leads_out_of_the_workspace_is_refused(workspace: Workspace) -> None:
    (workspace.root / "data" / "x.csv").symlink_to("/etc/passwd")
    with pytest.raises(
        DataError, match=r"data/x.csv must lie in the workspace, however it leads to /etc/passwd"
    ):
        sources.open_source(declared({"path": "data/x.csv"}), workspace)


# Several files


def test_a_glob_is_read_in_the_order_of_the_names(workspace: Workspace) -> None:
    for name, value in (("b.csv", 2), ("a.csv", 1), ("c.csv", 3)):
        opened(workspace, f"a,y\n{value},0\n", name)
    source = sources.open_source(declared({"path": "data/*.csv"}), workspace)
    assert source.facts == {"format": "csv", "files": 3}
    assert whole(source)["a"].to_pylist() == [1, 2, 3]


def test_a_type_follows_from_all_files(workspace: Workspace) -> None:
    opened(workspace, "a,y\n1,0\n", "a.csv")
    opened(workspace, "a,y\n007,0\n", "b.csv")
    assert whole(sources.open_source(declared({"path": "data/*.csv"}), workspace))["a"].to_pylist() == [
        "1",
        "007",
    ]


@pytest.mark.parametrize("header", ["y,a", "a,y,z", "a,z"])
def test_files_of_a_glob_have_the_same_columns(workspace: Workspace, header: str) -> None:
    opened(workspace, "a,y\n1,0\n", "a.csv")
    (workspace.root / "data" / "b.csv").write_text(header + "\n1,0\n")
    with pytest.raises(DataError, match=r"data/b.csv must have the columns of data/a.csv"):
        sources.open_source(declared({"path": "data/*.csv"}), workspace)


# JSON lines


def json_column(workspace: Workspace, *values: str, **source: Any) -> tuple[str, list[Any]]:
    lines = "".join(f'{{"x": {value}, "y": 0}}\n' for value in values)
    table = whole(opened(workspace, lines, "x.jsonl", **source))
    return str(table.schema.field("x").type), table["x"].to_pylist()


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "null", "9007199254740993"], "int64", [1, None, 9007199254740993]),
        (["1", "2.5"], "double", [1.0, 2.5]),
        (["true", "null"], "bool", [True, None]),
        (['"a"', '"q\\"uo\\nte"'], "string", ["a", 'q"uo\nte']),
        (["null", "null"], "string", [None, None]),
        (['"2024-01-02"'], "date32[day]", [datetime.date(2024, 1, 2)]),
        (
            ['"2024-01-01T00:00:00-05:00"'],
            "timestamp[us, tz=UTC]",
            [datetime.datetime(2024, 1, 1, 5, tzinfo=UTC)],
        ),
        # A type would change these, so they stay text.
        (["12345678901234567890"], "string", ["12345678901234567890"]),
        (["123456789012345678901234567890"], "string", ["123456789012345678901234567890"]),
        (["9007199254740993", "1.5"], "string", ["9007199254740993", "1.5"]),
        (['"007"', '"1"'], "string", ["007", "1"]),
        (['"true"'], "string", ["true"]),
        (['"03/04/2024"', '"04/05/2024"'], "string", ["03/04/2024", "04/05/2024"]),
        (['"NA"', '""'], "string", ["NA", ""]),
    ],
)
def test_json_lines_keep_what_json_says(
    workspace: Workspace, texts: list[str], kind: str, values: list[Any]
) -> None:
    assert json_column(workspace, *texts) == (kind, values)


def test_a_type_declared_for_json_lines_holds(workspace: Workspace) -> None:
    assert json_column(workspace, "1", types={"x": "string"}) == ("string", ["1"])
    assert json_column(workspace, '"1"', types={"x": "integer"}) == ("int64", [1])


def test_a_key_that_is_left_out_is_missing(workspace: Workspace) -> None:
    table = whole(opened(workspace, '{"a": 1}\n{"y": 2}\n', "x.jsonl"))
    assert table.to_pylist() == [{"a": 1, "y": None}, {"a": None, "y": 2}]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            '{"c":"a"}\n{"c":1}\n',
            "column 'c' must hold values of one type, however it has 1 (number) and \"a\" (text)",
        ),
        ('{"c":true}\n{"c":1}\n', "however it has true (true or false) and 1 (number)"),
        ('{"c":{"a":1}}\n', "column 'c' must hold plain values, however it has a mapping: {\"a\":1}"),
        ('{"c":[1]}\n', "column 'c' must hold plain values, however it has a list: [1]"),
        (
            '{"c":"2024-01-01T00:00Z"}\n{"c":"2024-01-01T00:00"}\n',
            "row 2: '2024-01-01T00:00' has no time zone",
        ),
        ('{"a":1,"a":2}\n', 'duplicate key "a"'),
        ('{"a":1,"A":2}\n', "differ only in case"),
        ('{"_row":1}\n', "column name '_row' is gristmill's own"),
        ('{"a":1}\n{"a":', "Malformed JSON"),
        ("1\n2\n", "expected records"),
        ('[{"a":1}]\n', "expected records"),
        ('{"a":"ü"}\n'.encode("latin-1"), "invalid UTF-8"),
    ],
)
def test_a12_k16_json_lines_that_are_no_table_are_refused(
    workspace: Workspace, content: str | bytes, words: str
) -> None:
    assert words in refused(workspace, content, "x.jsonl")


# Parquet


def parquet(workspace: Workspace, table: pa.Table, name: str = "x.parquet") -> SourceTable:
    pq.write_table(table, workspace.root / "data" / name)
    return sources.open_source(declared({"path": f"data/{name}"}), workspace)


def test_parquet_keeps_types_order_and_missing_values(workspace: Workspace) -> None:
    table = pa.table({"a": [3, None, 1], "b": ["x", "", None], "y": [True, None, False]})
    source = parquet(workspace, table)
    assert source.schema == table.schema
    assert whole(source) == table


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array(["a"]).dictionary_encode(), "string"),
        (pa.array(["a"], pa.large_string()), "string"),
        (pa.array([1], pa.timestamp("s", "America/New_York")), "timestamp[us, tz=UTC]"),
        (pa.array([1000], pa.timestamp("ns")), "timestamp[us]"),
        (pa.array([1.5], pa.float16()), "float"),
        (pa.array([2**64 - 1], pa.uint64()), "uint64"),
        (pa.array([decimal.Decimal("1.23")]), "decimal128(3, 2)"),
        (pa.array([True]), "bool"),
        (pa.nulls(1), "string"),
    ],
)
def test_a_snapshot_has_few_types_none_of_which_loses_a_value(
    workspace: Workspace, tmp_path: Path, given: pa.Array, kind: str
) -> None:
    tables.write_parts(tmp_path / "out", parquet(workspace, pa.table({"x": given, "y": [0]})))
    found = tables.read(tmp_path / "out", ["x"])
    assert str(found.schema.field("x").type) == kind
    moment = (
        given.cast(pa.timestamp("us", "UTC"))
        if pa.types.is_timestamp(given.type) and given.type.tz
        else given
    )
    assert found["x"].to_pylist() == moment.to_pylist()


@pytest.mark.parametrize(
    "given",
    [
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([b"1"]),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.time32("s")),
    ],
    ids=lambda given: str(given.type),
)
def test_a_type_that_a_snapshot_cannot_hold_is_refused(workspace: Workspace, given: pa.Array) -> None:
    source = parquet(workspace, pa.table({"x": given, "y": [0]}))
    with pytest.raises(
        DataError, match="column 'x' must hold numbers, text, truth values or times, however it"
    ):
        tables.plain(source.schema)


@pytest.mark.parametrize("moment", [pa.array([1], pa.timestamp("ns")), pa.array([2**62], pa.timestamp("ms"))])
def test_a_time_that_would_be_rounded_is_refused(
    workspace: Workspace, tmp_path: Path, moment: pa.Array
) -> None:
    source = parquet(workspace, pa.table({"x": moment, "y": [0]}))
    with pytest.raises(DataError, match="column 'x' cannot be held without loss: Casting from timestamp"):
        tables.write_parts(tmp_path / "out", source)


def test_k06_parquet_with_a_name_twice_is_refused(workspace: Workspace) -> None:
    twice = pa.Table.from_arrays([pa.array([1])] * 3, names=["a", "y", "a"])
    with pytest.raises(
        DataError, match=r"data/x.parquet: column name 'a' appears 2 times \(positions 1, 3\)"
    ):
        parquet(workspace, twice)


@pytest.mark.parametrize("name", ["A", "_row"])
def test_parquet_names_that_would_be_lost_are_refused(workspace: Workspace, name: str) -> None:
    with pytest.raises(DataError, match=r"differ in case only|is gristmill's own"):
        parquet(workspace, pa.table({"a": [1], name: [1]}))


def test_types_are_not_declared_for_parquet(workspace: Workspace) -> None:
    parquet(workspace, pa.table({"a": [1], "y": [1]}))
    for option in ({"types": {"a": "string"}}, {"na_values": ["", "NA"]}, {"separator": ";"}):
        source = declared({"path": "data/x.parquet"} | option)
        with pytest.raises(DataError, match=rf"source.{next(iter(option))} is for delimited text, however"):
            sources.open_source(source, workspace)


def test_k02_texts_that_mean_missing_do_so_in_json_lines_where_they_are_declared(
    workspace: Workspace,
) -> None:
    assert json_column(workspace, '"NA"', '"DE"', '""') == ("string", ["NA", "DE", ""])
    assert json_column(workspace, '"NA"', "1", "null", na_values=["NA"]) == ("int64", [None, 1, None])
    content = '{"x": 1, "y": 2}\n'
    assert "source.separator is for delimited text" in refused_options(workspace, content, separator=";")


def refused_options(workspace: Workspace, content: str, **source: Any) -> str:
    with pytest.raises(DataError) as caught:
        opened(workspace, content, "x.jsonl", **source)
    return str(caught.value)


def test_a08_a09_damaged_parquet_is_refused(workspace: Workspace) -> None:
    parquet(workspace, pa.table({"a": list(range(20_000)), "y": [0] * 20_000}))
    good = (workspace.root / "data" / "x.parquet").read_bytes()
    footer = "data/x.parquet: no parquet footer (file truncated?)"
    assert refused(workspace, good[: len(good) // 2], "x.parquet") == footer
    assert refused(workspace, good[:-1], "x.parquet") == footer
    assert refused(workspace, "a,y\n1,2\n", "x.parquet") == footer
    assert refused(workspace, b"P", "x.parquet") == footer
    assert refused(workspace, b"PAR1PAR1", "x.parquet").startswith(
        "data/x.parquet: Parquet file size is 8 bytes"
    )
    assert refused(workspace, good[:1000] + bytes(5000) + good[6000:], "x.parquet").startswith(
        "data/x.parquet: "
    )


def test_parquet_files_of_a_glob_have_the_same_columns(workspace: Workspace) -> None:
    parquet(workspace, pa.table({"a": [1], "y": [0]}), "a.parquet")
    parquet(workspace, pa.table({"a": [2], "y": [0]}), "b.parquet")
    found = sources.open_source(declared({"path": "data/*.parquet"}), workspace)
    assert whole(found)["a"].to_pylist() == [1, 2]
    parquet(workspace, pa.table({"a": [2.0], "y": [0]}), "b.parquet")
    with pytest.raises(DataError, match=r"data/b.parquet must have the columns of data/a.parquet"):
        sources.open_source(declared({"path": "data/*.parquet"}), workspace)


def test_an_asset_is_the_table_it_left(workspace: Workspace) -> None:
    spec = declared({"asset": "raw/flights"})
    with pytest.raises(
        DataError, match=r"source.asset raw/flights must be materialized, however it has no table"
    ):
        sources.open_source(spec, workspace)
    file = workspace.asset_table("raw/flights")
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"y": [1]}), file)
    assert whole(sources.open_source(spec, workspace)).to_pylist() == [{"y": 1}]


# Queries


@pytest.fixture(params=["duckdb", "sqlite"])
def database(request: pytest.FixtureRequest, workspace: Workspace) -> str:
    """A file with flights(id, tail, y): (3, 'x', 0), (1, null, 1), (2, '007', 0)."""
    file = workspace.root / "data" / "flights.db"
    connection: Any = duckdb.connect(str(file)) if request.param == "duckdb" else sqlite3.connect(file)
    connection.execute("CREATE TABLE flights (id BIGINT, tail TEXT, y BIGINT)")
    connection.execute("INSERT INTO flights VALUES (3, 'x', 0), (1, NULL, 1), (2, '007', 0)")
    connection.commit()
    connection.close()
    return f"{request.param}:///data/flights.db"


def test_a_querys_rows_have_an_order(workspace: Workspace, database: str) -> None:
    for sql in (
        "SELECT * FROM flights",
        "SELECT * FROM flights ORDER BY id DESC;",
        "SELECT * FROM flights -- all",
    ):
        source = sources.open_source(declared({"sql": sql, "connection": database}), workspace)
        assert [str(field.type) for field in source.schema] == ["int64", "string", "int64"]
        assert [tuple(row.values()) for row in whole(source).to_pylist()] == [
            (1, None, 1),
            (2, "007", 0),
            (3, "x", 0),
        ]


def test_the_declared_order_comes_first_and_ties_are_decided(workspace: Workspace, database: str) -> None:
    spec = declared({"sql": "SELECT * FROM flights", "connection": database, "order_by": ["y"]})
    assert whole(sources.open_source(spec, workspace))["id"].to_pylist() == [2, 3, 1]


def test_a_connection_may_come_from_the_environment(
    workspace: Workspace, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE", database)
    spec = declared({"sql": "SELECT y FROM flights", "connection": "{{ env.WAREHOUSE }}"})
    assert whole(sources.open_source(spec, workspace)).num_rows == 3


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT nope FROM flights", "nope"),
        ("SELECT * FROM nowhere", "nowhere"),
        ("DROP TABLE flights", "syntax error|readonly"),
        ("DELETE FROM flights", "syntax error|readonly"),
        ("SELECT 1; SELECT 2", "syntax error|one statement"),
        ("-- nothing", "syntax error"),
        ("SELECT id, id FROM flights", r"column name 'id' appears 2 times \(positions 1, 2\)"),
        ("SELECT id, id AS ID FROM flights", "column names 'id' and 'ID' differ in case only"),
        ("SELECT 1 AS _row", "'_row' is gristmill's own"),
    ],
)
def test_a_query_that_is_no_query_is_told_in_a_line(
    workspace: Workspace, database: str, sql: str, words: str
) -> None:
    with pytest.raises(DataError, match=f"^source.sql: .*({words})") as caught:
        sources.open_source(declared({"sql": sql, "connection": database}), workspace)
    assert "\n" not in str(caught.value)
    left = declared({"sql": "SELECT y FROM flights", "connection": database})
    assert whole(sources.open_source(left, workspace)).num_rows == 3


def test_an_order_by_no_column_is_told_with_the_columns(workspace: Workspace, database: str) -> None:
    spec = declared({"sql": "SELECT * FROM flights", "connection": database, "order_by": ["when"]})
    with pytest.raises(DataError, match=r"source.order_by: no column 'when'; the query has id, tail, y"):
        sources.open_source(spec, workspace)


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        ("sqlite:///data/gone.db", "sqlite file data/gone.db must be there, however it is not"),
        ("postgres:///x", "must be duckdb:///FILE or sqlite:///FILE"),
        ("data/x.db", "must be duckdb:///FILE or sqlite:///FILE"),
        ("duckdb:///data/text.db", "not a valid DuckDB database file"),
        ("sqlite:///data/text.db", "file is not a database"),
        ("{{ env.GRISTMILL_NOT_SET }}", "environment variable GRISTMILL_NOT_SET must be set"),
    ],
)
def test_a_connection_that_leads_nowhere_is_told(workspace: Workspace, connection: str, words: str) -> None:
    (workspace.root / "data" / "text.db").write_text("no database " * 500)
    spec = declared({"sql": "SELECT * FROM t", "connection": connection})
    with pytest.raises(InputError, match=words):
        sources.open_source(spec, workspace)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1, "a"], "must hold one type, however it holds int and str"),
        ([b"1"], "must hold one type, however it holds bytes"),
        ([9007199254740993, 1.5], "9007199254740993 would lose digits beside numbers"),
    ],
)
def test_a12_sqlite_types_each_value_and_a_column_has_one_type(
    workspace: Workspace, values: list[Any], words: str
) -> None:
    with sqlite3.connect(workspace.root / "data" / "x.db") as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    connection.close()
    with pytest.raises(DataError, match=words):
        sources.open_source(
            declared({"sql": "SELECT x FROM t", "connection": "sqlite:///data/x.db"}), workspace
        )
