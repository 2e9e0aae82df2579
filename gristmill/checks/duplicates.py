"""GM103: few rows repeat an earlier row (NaN equals NaN, -0.0 equals 0.0)."""

from __future__ import annotations

import numpy as np

from gristmill.records import MAX_CASES, Check, judge
from gristmill.spec import DuplicatesCheck

CODE, NAME = "GM103", "duplicates"


def check(row_hashes: np.ndarray, limits: DuplicatesCheck) -> Check:
    """Judge by the hashes of all columns, one a row in row order."""
    rows = len(row_hashes)
    if rows == 0:
        return Check(CODE, NAME, "not verified", 0, "no row to look at")
    _, first, inverse = np.unique(row_hashes, return_index=True, return_inverse=True)
    repeats = np.flatnonzero(first[inverse] != np.arange(rows))
    share = len(repeats) / rows
    verdict = judge(share <= limits.max_share, limits.severity, rows)
    cases = tuple({"row": int(row), "equals row": int(first[inverse[row]])} for row in repeats[:MAX_CASES])
    text = f"{len(repeats):,} of {rows:,} rows repeat an earlier one ({share:.2%})"
    way_out = "remove the repeats upstream, or raise validation.duplicates.max_share if they are real"
    return Check(CODE, NAME, verdict, rows, text, share, limits.max_share, cases, way_out)
