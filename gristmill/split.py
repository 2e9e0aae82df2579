"""Which row trains, which selects and which tests, and the proofs that none leaks into another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gristmill import spec, tables
from gristmill.errors import DataError
from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec.base import duration
from gristmill.tables import ROW_ID
from gristmill.work import Made, Work

FILE_NAME = "split.parquet"
PARTS = ("train", "validation", "test")
# Rows in no part: between two parts in time, or without a target.
GAP, NO_TARGET = "gap", "no_target"
_NAMES = (*PARTS, GAP, NO_TARGET)
_TRAIN, _VALIDATION, _TEST, _GAP, _NO_TARGET = range(len(_NAMES))


def make(work: Work) -> Made:
    """Assign every row of the snapshot; raises DataError for a wish that cannot be met, with its reason."""
    declared = work.spec.split
    roles = tables.roles(work.spec, tables.schema_of(work.snapshot))
    wanted = dict.fromkeys(
        name for name in (roles.target, declared.time_on, declared.group_on, declared.stratify_on) if name
    )
    table = tables.read(work.snapshot, wanted)
    # Rows are equal when a model cannot tell them apart; in time, when it is the same moment too.
    alike = [*roles.features, declared.time_on] if declared.time_on else list(roles.features)
    equal = tables.row_hashes(work.snapshot, alike)
    eligible = ~_missing(table[roles.target])
    parts = np.full(len(table), _NO_TARGET, dtype=np.int8)
    rows = np.flatnonzero(eligible)
    chosen = table.take(pa.array(rows)).append_column(ROW_ID, pa.array(rows))
    facts: dict[str, Any] = {}
    if declared.time_on:
        parts[rows], facts = _by_time(chosen, declared)
    else:
        parts[rows] = _by_chance(chosen, equal[rows], work.spec)
    counts = {name: int((parts == code).sum()) for code, name in enumerate(_NAMES)}
    for name in PARTS:
        if counts[name] == 0:
            raise DataError(f"split: {name} would have 0 rows of {len(rows)}; change the shares or the gap")
    written = pa.table(
        {
            ROW_ID: pa.array(np.arange(len(parts)), pa.int64()),
            "part": pa.array([_NAMES[code] for code in range(len(_NAMES))]).take(pa.array(parts)),
        }
    )
    pq.write_table(written, work.output / FILE_NAME, compression="zstd")
    checks = _proofs(written, table, equal, work.spec)
    return Made(tuple(checks), counts | facts)


def read(folder: Any) -> dict[str, pa.Array]:
    """Row ids of each part, in row order, from a split stage's output."""
    table = pq.read_table(folder / FILE_NAME)
    return {name: table.filter(pc.equal(table["part"], name))[ROW_ID].combine_chunks() for name in PARTS}


# By time


def _by_time(table: pa.Table, declared: spec.Split) -> tuple[np.ndarray, dict[str, Any]]:
    """Cut at two moments; all rows of one moment are on one side, rows within the gap in no part."""
    column = table[declared.time_on]
    if column.null_count:
        row = table[ROW_ID][pc.index(pc.is_null(column), True).as_py()]
        raise DataError(
            f"split.time_on: {declared.time_on} is missing in {column.null_count} rows (first: {row})"
        )
    moments = _microseconds(column)
    distinct, counts = np.unique(moments, return_counts=True)
    if len(distinct) < 3:
        raise DataError(
            f"split.time_on: cannot cut {declared.time_on}: {len(distinct)} distinct times, 3 needed"
        )
    before = np.concatenate([[0], np.cumsum(counts)])[:-1]
    total = len(moments)

    def cut(share_after: float, latest: int) -> int:
        """The distinct moment whose rows before it come nearest to the share wanted."""
        place = int(np.abs(before - total * (1 - share_after)).argmin())
        return min(max(place, 1), latest)

    test_place = cut(declared.test, len(distinct) - 1)
    validation_place = cut(declared.test + declared.validation, test_place - 1)
    if validation_place < 1:
        raise DataError(f"split.time_on: cannot cut {declared.time_on} twice; {len(distinct)} distinct times")
    test_from, validation_from = distinct[test_place], distinct[validation_place]
    gap = int(duration(declared.gap).total_seconds() * 1_000_000) if declared.gap else 0
    parts = np.full(total, _GAP, dtype=np.int8)
    parts[moments >= test_from] = _TEST
    parts[(moments >= validation_from) & (moments < test_from - gap)] = _VALIDATION
    parts[moments < validation_from - gap] = _TRAIN
    for code in (_TRAIN, _VALIDATION):
        if not (parts == code).any():
            raise DataError(f"split.gap: {declared.gap} leaves 0 {_NAMES[code]} rows; shorten it")
    return parts, {"validation_from": _moment(validation_from), "test_from": _moment(test_from)}


def _microseconds(column: pa.ChunkedArray) -> np.ndarray:
    """Moments as whole microseconds since 1970 (UTC where a zone is known)."""
    zone = getattr(column.type, "tz", None)
    return pc.cast(column, pa.timestamp("us", tz=zone)).cast(pa.int64()).to_numpy()


def _moment(microseconds: int) -> str:
    return str(np.datetime64(int(microseconds), "us").astype("datetime64[s]"))


# By chance


def _by_chance(table: pa.Table, equal: np.ndarray, declared: spec.PipelineSpec) -> np.ndarray:
    """Draw clusters of rows that must stay together, one by one, until each part has its share."""
    split = declared.split
    for name, share in (("test", split.test), ("validation", split.validation)):
        if round(share * len(table)) == 0:
            raise DataError(f"split.{name} would have 0 rows ({share:g} of {len(table)}); raise the share")
    clusters = _clusters(table, equal, split)
    strata = np.zeros(len(table), dtype=np.int64)
    if split.stratify_on:
        strata = _strata(table[split.stratify_on], split.stratify_on)
    random = np.random.default_rng(split.seed)
    return _assign(clusters, strata, np.array([split.test, split.validation]), random)


def _clusters(table: pa.Table, equal: np.ndarray, split: spec.Split) -> np.ndarray:
    """A number for each row; rows with the same number stay together: equal rows, and rows of one group."""
    _, rows_alike = np.unique(equal, return_inverse=True)
    if split.group_on is None:
        return rows_alike
    column = table[split.group_on]
    missing = _missing(column)
    if missing.any():
        first = table[ROW_ID][int(missing.argmax())]
        raise DataError(
            f"split.group_on: {split.group_on} is missing in {int(missing.sum())} rows (first: {first}); "
            "fill it or drop those rows upstream"
        )
    groups = _codes(column)
    if groups.max() + 1 < len(PARTS):
        raise DataError(f"split.group_on: 3 parts but {groups.max() + 1} groups in {split.group_on}")
    # Two groups that share an equal row must stay together as well: components of the graph of both.
    offset = int(groups.max()) + 1
    size = offset + int(rows_alike.max()) + 1
    edges = coo_array(
        (np.ones(len(groups), dtype=np.int8), (groups, offset + rows_alike)), shape=(size, size)
    )
    _, component = connected_components(edges, directed=False)
    return component[groups]


def _strata(column: pa.ChunkedArray, name: str) -> np.ndarray:
    strata = _codes(column)
    counts = np.bincount(strata)
    if counts.min() < len(PARTS):
        place = int(counts.argmin())
        value = column[int(np.flatnonzero(strata == place)[0])].as_py()
        raise DataError(
            f"split.stratify_on: class {value!r} of {name} has {counts.min()} row(s); a stratified train, "
            f"validation and test needs {len(PARTS)}; merge the class, drop it, or leave stratify_on out"
        )
    return strata


def _assign(
    clusters: np.ndarray, strata: np.ndarray, shares: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Part of each row. Clusters of several rows go first, the largest first, each to the part that then
    lacks most of its strata; single rows fill up what is missing, stratum by stratum.
    """
    _, clusters = np.unique(clusters, return_inverse=True)
    num_clusters = int(clusters.max()) + 1
    num_strata = int(strata.max()) + 1
    totals = np.bincount(strata, minlength=num_strata).astype(float)
    wanted = np.outer([1 - shares.sum(), shares[1], shares[0]], totals)  # parts x strata, in rows
    given = np.zeros_like(wanted)
    sizes = np.bincount(clusters, minlength=num_clusters)
    part_of_cluster = np.empty(num_clusters, dtype=np.int8)
    order = random.permutation(num_clusters)
    rows_by_cluster = np.argsort(clusters, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    large = order[sizes[order] > 1]
    for cluster in large[np.argsort(-sizes[large], kind="stable")]:
        members = rows_by_cluster[starts[cluster] : starts[cluster + 1]]
        held = np.bincount(strata[members], minlength=num_strata)
        lack = ((wanted - given) / np.maximum(wanted.sum(axis=1, keepdims=True), 1)) @ held
        part = int(lack.argmax())
        given[part] += held
        part_of_cluster[cluster] = part
    single = order[sizes[order] == 1]
    stratum = strata[rows_by_cluster[starts[single]]]
    for code in range(num_strata):
        members = single[stratum == code]
        room = np.maximum(wanted[:, code] - given[:, code], 0)
        if room.sum() == 0:
            room = wanted[:, code]
        bounds = np.round(np.cumsum(room[::-1]) / room.sum() * len(members)).astype(int)
        if len(members) >= len(PARTS) and room.all():
            # Each part that has room for a class gets a row of it.
            bounds[0] = np.clip(bounds[0], 1, len(members) - 2)
            bounds[1] = np.clip(bounds[1], bounds[0] + 1, len(members) - 1)
        # Test first, then validation; training takes the rest.
        part_of_cluster[members[: bounds[0]]] = _TEST
        part_of_cluster[members[bounds[0] : bounds[1]]] = _VALIDATION
        part_of_cluster[members[bounds[1] :]] = _TRAIN
    return part_of_cluster[clusters]


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Whole numbers from 0 by sorted value, so that they do not depend on the order of the rows.

    Missing values are one value, the last; -0.0 is 0.0.
    """
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, pc.add(column, 0.0))
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    num_values = len(encoded.dictionary)
    rank = np.full(num_values + 1, num_values, dtype=np.int64)
    rank[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(num_values)
    return rank[pc.fill_null(encoded.indices, num_values).to_numpy()]


def _missing(column: pa.ChunkedArray) -> np.ndarray:
    return pc.is_null(column, nan_is_null=True).to_numpy()


# Proofs: each looks at the written parts and the real values again, not at how they were made


def _proofs(
    written: pa.Table, table: pa.Table, equal: np.ndarray, declared: spec.PipelineSpec
) -> list[Check]:
    split = declared.split
    part = written["part"].to_numpy(zero_copy_only=False)
    rows = {name: np.flatnonzero(part == name) for name in PARTS}
    checks = [_shares(rows, len(part), split), _apart("GM202", "equal rows", equal, rows, "equal rows")]
    if split.group_on:
        groups = _codes(table[split.group_on])
        checks.append(_apart("GM203", "groups", groups, rows, f"groups of {split.group_on}"))
    if split.time_on:
        checks.append(_time_order(_microseconds(table[split.time_on]), rows, split))
    if not isinstance(declared.task, spec.RegressionTask):
        checks.append(_classes(_codes(table[declared.task.target]), rows))
    return checks


def _shares(rows: dict[str, np.ndarray], total: int, split: spec.Split) -> Check:
    placed = sum(len(ids) for ids in rows.values())
    wanted = {"test": split.test, "validation": split.validation}
    off = {name: len(rows[name]) / placed - share for name, share in wanted.items()}
    worst = max(off, key=lambda name: abs(off[name]))
    # A cluster or a moment cannot be cut: a part may miss its share by a fifth before that is a failure.
    ok = all(abs(off[name]) <= max(0.2 * wanted[name], 1 / placed) for name in wanted)
    sizes = ", ".join(f"{name} {len(ids):,}" for name, ids in rows.items())
    text = f"{sizes} rows; {total - placed:,} in no part"
    way_out = "the groups or times are too coarse for these shares; change the shares or the grouping"
    return Check(
        "GM201",
        "sizes",
        judge(ok, "fail", total),
        total,
        text,
        abs(off[worst]),
        0.2 * wanted[worst],
        (),
        way_out,
    )


def _apart(code: str, name: str, keys: np.ndarray, rows: dict[str, np.ndarray], what: str) -> Check:
    """No key stands in two parts."""
    present = np.concatenate([np.unique(keys[ids]) for ids in rows.values()])
    found, counts = np.unique(present, return_counts=True)
    shared = found[counts > 1]
    evaluated = sum(len(ids) for ids in rows.values())
    first = (
        {part: ids[np.isin(keys[ids], shared[:1])][:1] for part, ids in rows.items()} if len(shared) else {}
    )
    cases = ({f"{part} row": int(ids[0]) for part, ids in first.items() if len(ids)},) if first else ()
    text = f"{len(shared):,} of {len(found):,} {what} stand in more than one part"
    way_out = "the split is at fault; report it with the declaration"
    return Check(
        code,
        name,
        judge(len(shared) == 0, "fail", evaluated),
        evaluated,
        text,
        len(shared),
        0,
        cases,
        way_out,
    )


def _time_order(moments: np.ndarray, rows: dict[str, np.ndarray], split: spec.Split) -> Check:
    gap = int(duration(split.gap).total_seconds() * 1_000_000) if split.gap else 0
    ends = {name: (moments[ids].min(), moments[ids].max()) for name, ids in rows.items()}
    ok = ends["train"][1] < ends["validation"][0] - gap and ends["validation"][1] < ends["test"][0] - gap
    text = "; ".join(f"{name} {_moment(low)} to {_moment(high)}" for name, (low, high) in ends.items())
    evaluated = sum(len(ids) for ids in rows.values())
    return Check(
        "GM204", "time order", judge(bool(ok), "fail", evaluated), evaluated, text, None, split.gap or "0s"
    )


def _classes(codes: np.ndarray, rows: dict[str, np.ndarray]) -> Check:
    """Training and every other part know all classes that stand anywhere."""
    everywhere = set(np.unique(np.concatenate([codes[ids] for ids in rows.values()])).tolist())
    lacking = {name: sorted(everywhere - set(np.unique(codes[ids]).tolist())) for name, ids in rows.items()}
    cases = tuple({"part": name, "classes lacking": len(gone)} for name, gone in lacking.items() if gone)
    text = "; ".join(
        f"{name} has {len(everywhere) - len(gone)} of {len(everywhere)} classes"
        for name, gone in lacking.items()
    )
    evaluated = sum(len(ids) for ids in rows.values())
    way_out = "declare split.stratify_on, or larger parts"
    return Check(
        "GM205",
        "classes",
        judge(not cases, "fail", evaluated),
        evaluated,
        text,
        len(cases),
        0,
        cases[:MAX_CASES],
        way_out,
    )
