"""GM103, GM111 and GM112: repeated rows, repeated keys, equal features with different classes.

Each judges by 64-bit hashes of rows (NaN equals NaN, -0.0 equals 0.0), one a row in row order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec.validation import ConflictsCheck, DuplicatesCheck

CODE, NAME = "GM103", "duplicates"


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
    code, name = "GM112", "conflicting labels"
    ids = np.flatnonzero(present)
    if len(ids) == 0:
        return Check(code, name, "not verified", 0, "no row has a target")
    order = ids[np.lexsort((ids, target_hashes[ids], feature_hashes[ids]))]
    features, targets = feature_hashes[order], target_hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], features[1:] != features[:-1]]))
    ends = np.append(starts[1:], len(order))
    mixed = targets[starts] != targets[ends - 1]
    conflicting = int((ends - starts)[mixed].sum())
    share = conflicting / len(ids)
    earliest = np.minimum.reduceat(order, starts)
    groups = np.flatnonzero(mixed)
    cases = []
    for group in groups[np.argsort(earliest[groups])[:MAX_CASES]]:
        members, classes = order[starts[group] : ends[group]], targets[starts[group] : ends[group]]
        other = members[classes != classes[members.argmin()]].min()
        cases.append({"row": int(members.min()), "equals row": int(other)})
    text = f"{conflicting:,} of {len(ids):,} rows equal another in every feature and have another class ({share:.2%})"
    way_out = (
        "look at the labels, add the feature that tells them apart, or raise validation.conflicts.max_share"
    )
    verdict = judge(share <= limits.max_share, limits.severity, len(ids))
    return Check(code, name, verdict, len(ids), text, share, limits.max_share, tuple(cases), way_out)


def _repeats(hashes: np.ndarray, words: str) -> tuple[int, tuple[dict[str, Any], ...]]:
    """How many rows have the hash of an earlier one, and the first of them, each beside that row."""
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first[inverse] != np.arange(len(hashes)))
    cases = tuple({"row": int(row), words: int(first[inverse[row]])} for row in repeats[:MAX_CASES])
    return len(repeats), cases
