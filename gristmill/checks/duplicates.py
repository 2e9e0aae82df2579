"""GM103, GM111 and GM112: repeated rows, repeated keys, equal features with different classes.

Each judges by 64-bit hashes of rows (NaN equals NaN, -0.0 equals 0.0), one a row in row order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec.validation import ConflictsCheck, DuplicatesCheck

CODE, NAME = "GM103", "duplicates"
_STRETCH = 1 << 20
_TABLE_BITS = 26


def check(row_hashes: np.ndarray, limits: DuplicatesCheck) -> Check:
    """Judge by the hashes of all columns, one a row in row order."""
    rows = len(row_hashes)
    if rows == 0:
        return Check(CODE, NAME, "not verified", 0, "no row to look at")
    repeats, cases = _repeats(row_hashes, "equals row")
    share = repeats / rows
    verdict = judge(share <= limits.max_share, limits.severity, rows)
    text = f"{repeats:,} of {rows:,} rows repeat an earlier one ({share:.2%})"
    way_out = "remove the repeats upstream, or raise validation.duplicates.max_share if they are real"
    return Check(CODE, NAME, verdict, rows, text, share, limits.max_share, cases, way_out)


def key(key_hashes: np.ndarray, columns: Sequence[str]) -> Check:
    """Judge that no two rows have the same values in the columns of the declared key."""
    rows = len(key_hashes)
    repeats, cases = _repeats(key_hashes, "same key as row")
    verdict = judge(repeats == 0, "fail", rows)
    text = f"{repeats:,} of {rows:,} rows have the key ({', '.join(columns)}) of an earlier one"
    way_out = "remove the repeats upstream, or declare the columns that tell two rows apart"
    return Check("GM111", "key", verdict, rows, text, repeats, 0, cases, way_out)


def conflicts(
    feature_hashes: np.ndarray, target_hashes: np.ndarray, present: np.ndarray, limits: ConflictsCheck
) -> Check:
    """Judge the share of rows, among those with a target, whose features also stand with another class.

    No model can be right about all of them: it is noise in the labels, or a feature is lacking.
    """
    rows = int(np.count_nonzero(present))
    if rows == 0:
        return Check("GM112", "conflicting labels", "not verified", 0, "no row has a target")
    # Only rows that another equals can conflict: most often few, and only they are brought in order.
    ids = np.concatenate([np.empty(0, np.int64), *_places(feature_hashes, _repeated(feature_hashes)[1])])
    ids = ids[present[ids]]
    if len(ids) == 0:
        return _conflicting(0, rows, (), limits)
    order = ids[np.lexsort((ids, target_hashes[ids], feature_hashes[ids]))]
    features, targets = feature_hashes[order], target_hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], features[1:] != features[:-1]]))
    ends = np.append(starts[1:], len(order))
    mixed = targets[starts] != targets[ends - 1]
    conflicting = int((ends - starts)[mixed].sum())
    earliest = np.minimum.reduceat(order, starts)
    groups = np.flatnonzero(mixed)
    cases = []
    for group in groups[np.argsort(earliest[groups])[:MAX_CASES]]:
        members, classes = order[starts[group] : ends[group]], targets[starts[group] : ends[group]]
        other = members[classes != classes[members.argmin()]].min()
        cases.append({"row": int(members.min()), "equals row": int(other)})
    return _conflicting(conflicting, rows, tuple(cases), limits)


def _conflicting(
    conflicting: int, rows: int, cases: tuple[dict[str, Any], ...], limits: ConflictsCheck
) -> Check:
    share = conflicting / rows
    text = f"{conflicting:,} of {rows:,} rows equal another in every feature and have another class ({share:.2%})"
    way_out = (
        "look at the labels, add the feature that tells them apart, or raise validation.conflicts.max_share"
    )
    verdict = judge(share <= limits.max_share, limits.severity, rows)
    return Check("GM112", "conflicting labels", verdict, rows, text, share, limits.max_share, cases, way_out)


def _repeats(hashes: np.ndarray, words: str) -> tuple[int, tuple[dict[str, Any], ...]]:
    """How many rows have the hash of an earlier one, and the first of them, each beside that row."""
    repeats, values = _repeated(hashes)
    # So many are enough to show a few of, and their table stays in the processor's cache.
    values = values[:_STRETCH]
    first = np.full(len(values), -1)
    cases: list[dict[str, Any]] = []
    if repeats:
        for rows in _places(hashes, values):
            place = np.searchsorted(values, hashes[rows])
            met, at = np.unique(place, return_index=True)
            new = first[met] < 0
            first[met[new]] = rows[at[new]]
            again = np.flatnonzero(first[place] != rows)[: MAX_CASES - len(cases)]
            cases += [{"row": int(rows[i]), words: int(first[place[i]])} for i in again]
            if len(cases) == MAX_CASES:
                break
    return repeats, tuple(cases)


def _repeated(hashes: np.ndarray) -> tuple[int, np.ndarray]:
    """How many hashes stand earlier already, and those that stand more than once, in order."""
    # One sorted copy is all the memory it takes; np.unique with indices takes five times as much.
    ordered = np.sort(hashes)
    again = ordered[1:] == ordered[:-1]
    values = ordered[1:][again]
    return len(values), values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values


def _places(hashes: np.ndarray, values: np.ndarray) -> Iterator[np.ndarray]:
    """The rows that hold one of the values, a stretch of rows at a time; `values` are in order."""
    # A table of the hashes' last bits rules most rows out, at a twentieth of a search's price.
    bits = np.uint64((1 << _TABLE_BITS) - 1)
    known = np.zeros(1 << _TABLE_BITS, dtype=bool)
    known[values & bits] = True
    for start in range(0, len(hashes), _STRETCH):
        stretch = hashes[start : start + _STRETCH]
        likely = np.flatnonzero(known[stretch & bits])
        if len(likely):
            found = stretch[likely]
            place = np.minimum(np.searchsorted(values, found), len(values) - 1)
            yield start + likely[values[place] == found]
