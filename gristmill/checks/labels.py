"""GM118: labels that a model fitted without the row finds unlikely, by confident learning.

Northcutt, Jiang and Chuang 2021, "Confident Learning: Estimating Uncertainty in Dataset Labels".
"""

# ruff: noqa: PLC0415 - scikit-learn and cleanlab load where the check is declared, and nowhere else

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gristmill import tables
from gristmill.checks import forest
from gristmill.checks.missing import is_missing
from gristmill.records import MAX_CASES, Check, judge, unseen
from gristmill.spec import BinaryTask, MulticlassTask
from gristmill.spec.validation import LabelsCheck
from gristmill.tables import ROW_ID, Roles

CODE, NAME = "GM118", "label quality"
MAX_CLASSES = 200
"""More than these are not judged: the model grows with their number."""
_WORDS = 5_000
_CATEGORIES = 100
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Suspects:
    """Labels that are likely wrong, the likeliest first."""

    rows: np.ndarray
    """Shape (m,): positions in the arrays that were judged."""
    scores: np.ndarray
    """Shape (m,): normalised margin, 0 (surely the suggested class) to 0.5 (either class)."""
    suggested: np.ndarray
    """Shape (m,): code of the likeliest class."""


def suspects(labels: np.ndarray, probabilities: np.ndarray) -> Suspects:
    """Prune by noise rate: as many rows of each pair of classes as the confident joint counts as swapped.

    Shape: labels (n,) codes from 0, probabilities (n, k) of a model that was fitted without the row.
    """
    from cleanlab.filter import find_label_issues

    # One process: the result is the same, and others cost more to start than they save.
    suspect = find_label_issues(labels, probabilities, filter_by="prune_by_noise_rate", n_jobs=1)
    rows = np.flatnonzero(suspect)
    suggested = probabilities[rows].argmax(axis=1)
    places = np.arange(len(rows))
    scores = (probabilities[rows, labels[rows]] - probabilities[rows][places, suggested] + 1) / 2
    order = np.lexsort((rows, scores))
    return Suspects(rows[order], scores[order], suggested[order])


def out_of_fold(
    features: pd.DataFrame, labels: np.ndarray, groups: np.ndarray, limits: LabelsCheck
) -> np.ndarray:
    """Probabilities (n, k) of each row's classes, by a model of the other folds.

    Rows of one group are in one fold. A row is NaN where the other folds do not hold its class.
    Columns of float64 are amounts, all others categories, or text where they hold sentences: a random
    forest, or a logistic regression where there is text.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    texts = [str(name) for name in features if _is_text(features[name])]
    design = _with_words(features, texts) if texts else forest.ranks(features)
    predict = _linear if texts else forest.probabilities
    folds = StratifiedGroupKFold(limits.folds, shuffle=True, random_state=limits.seed)
    probabilities = np.full((len(labels), int(labels.max()) + 1), np.nan)
    for train, held_out in folds.split(design, labels, groups):
        known = np.unique(labels[train])
        rows = held_out[np.isin(labels[held_out], known)]
        if len(known) > 1 and len(rows):
            found = predict(design[train], labels[train], design[rows], limits.seed)
            probabilities[rows] = 0.0
            probabilities[np.ix_(rows, known)] = found
    return probabilities


def check(
    snapshot: Path, roles: Roles, task: BinaryTask | MulticlassTask, limits: LabelsCheck, group: str | None
) -> Check:
    """Judge the share of suspect labels in a sample of the rows that have one.

    Rows of one `group`, and rows with equal features, are in one fold.
    """
    table = tables.scan(snapshot)
    present = table.filter(~is_missing(table[task.target]))[[ROW_ID]].to_pyarrow()
    labelled = np.sort(present[ROW_ID].to_numpy())
    if len(labelled) == 0:
        return Check(CODE, NAME, "not verified", 0, "no row has a target", way_out="see the source")
    rows = tables.draw(labelled, limits.rows, limits.seed)
    sample = tables.read_sample(
        snapshot, dict.fromkeys([*roles.features, task.target, *([group] if group else [])]), rows
    )
    about = f", in a sample of {len(rows):,} of {len(labelled):,} rows" if len(rows) < len(labelled) else ""
    features = forest.frame(sample, roles.numeric, roles.categorical)
    groups = _groups(features, sample[group].to_pandas() if group else None)
    labels, classes = pd.factorize(sample[task.target].to_pandas(), sort=True)
    independent = pd.DataFrame({"label": labels, "group": groups}).drop_duplicates()
    counts = np.bincount(independent["label"], minlength=len(classes))
    kept = np.flatnonzero(counts >= limits.folds)
    if len(kept) < len(classes):
        out = [repr(_plain(classes[code])) for code in np.flatnonzero(counts < limits.folds)]
        about += f"; left out, with fewer than {limits.folds} independent rows: {tables.listed(out)}"
    if not 2 <= len(kept) <= MAX_CLASSES:
        text = f"not judged: 2 to {MAX_CLASSES} classes can be, and there are {len(kept):,}{about}"
        return Check(
            CODE, NAME, unseen(limits.severity), 0, text, way_out="collect more rows, or merge classes"
        )
    chosen = np.isin(labels, kept)
    codes = np.searchsorted(kept, labels[chosen])
    probabilities = out_of_fold(features[chosen], codes, groups[chosen], limits)
    judged = ~np.isnan(probabilities[:, 0])
    if lost := np.count_nonzero(~judged):
        about += f"; left out, with their class in one fold only: {lost:,} rows"
    num_judged = int(np.count_nonzero(judged))
    if num_judged == 0:
        text = f"not judged: no class stands in two folds{about}"
        return Check(CODE, NAME, unseen(limits.severity), 0, text, way_out="collect more groups")
    found = suspects(codes[judged], probabilities[judged])
    share = len(found.rows) / num_judged
    places = np.flatnonzero(chosen)[judged][found.rows[:MAX_CASES]]
    cases = tuple(
        {
            "row": int(rows[place]),
            "score": round(float(score), 6),
            "label": _plain(classes[labels[place]]),
            "suggested": _plain(classes[kept[suggestion]]),
        }
        for place, score, suggestion in zip(places, found.scores, found.suggested, strict=False)
    )
    text = f"{len(found.rows):,} of {num_judged:,} labels are suspect ({share:.2%}){about}"
    way_out = (
        "look at the cases, the worst come first: mend wrong labels upstream, or raise "
        "validation.labels.max_suspect_share where the classes do overlap"
    )
    verdict = judge(share <= limits.max_suspect_share, limits.severity, num_judged)
    return Check(CODE, NAME, verdict, num_judged, text, share, limits.max_suspect_share, cases, way_out)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _groups(features: pd.DataFrame, declared: pd.Series | None) -> np.ndarray:
    """A number for each row, the same for rows with equal features and for rows of one declared group."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    alike = features.groupby(list(features), dropna=False, sort=False).ngroup().to_numpy()
    if declared is None:
        return alike
    groups = pd.factorize(declared)[0]
    # A row without a group is one of its own.
    alone = groups < 0
    groups[alone] = groups.max() + 1 + np.arange(np.count_nonzero(alone))
    # Two groups that share an equal row stay together as well: components of the graph of both.
    offset = int(groups.max()) + 1
    size = offset + int(alike.max()) + 1
    edges = coo_array((np.ones(len(groups), dtype=np.int8), (groups, offset + alike)), shape=(size, size))
    return connected_components(edges, directed=False)[1][groups]


def _is_text(column: pd.Series) -> bool:
    """Whether it holds sentences: most values differ, and have three words or more."""
    values = column.dropna()
    if column.dtype == np.float64 or 2 * values.nunique() <= len(values):
        return False
    return bool(values.str.count(r"\S+").mean() >= 3)


def _with_words(features: pd.DataFrame, texts: list[str]) -> Any:
    """A sparse matrix: weighted words of the texts, ranks of amounts in 0 to 1, a column each category.

    It is made of all folds' rows at once, for it does not look at their labels.
    """
    from scipy.sparse import csr_array, hstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import OneHotEncoder

    amounts = [name for name in features if features[name].dtype == np.float64]
    categories = [name for name in features if name not in (*texts, *amounts)]
    words = TfidfVectorizer(max_features=_WORDS, sublinear_tf=True, analyzer=_TOKEN.findall)
    blocks = [words.fit_transform(features[name].fillna("").str.lower()) for name in texts]
    if amounts:
        blocks.append(csr_array(features[amounts].rank(method="dense", pct=True).fillna(0.5).to_numpy()))
    if categories:
        one_hot = OneHotEncoder(max_categories=_CATEGORIES, handle_unknown="infrequent_if_exist")
        blocks.append(one_hot.fit_transform(forest.ranks(features[categories])))
    return hstack(blocks, format="csr")


def _linear(train: Any, labels: np.ndarray, wanted: Any, seed: int) -> np.ndarray:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10.0, tol=1e-3, max_iter=200, random_state=seed)
    with warnings.catch_warnings():
        # Probabilities of a solver that stopped early still rank the rows.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train, labels)
    return model.predict_proba(wanted)
