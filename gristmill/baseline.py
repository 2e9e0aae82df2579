"""The plain models to beat: a dummy, a linear model and boosted trees, fitted on training rows."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import xgboost as xgb
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from gristmill import files, metrics, parts
from gristmill.encode import Target
from gristmill.models import linear
from gristmill.models.dummy import Dummy
from gristmill.models.linear import Linear
from gristmill.models.xgboost import Trees, matrix
from gristmill.records import Check, judge
from gristmill.spec import Baseline
from gristmill.work import Made, Work

FILE_NAME = "baseline.json"
MODELS = ("dummy", "linear", "xgboost")


def make(work: Work) -> Made:
    """Fit all three, score them on the validation rows, and name the best of them."""
    data = parts.training(work)
    work.progress("fitting linear model", 0, 0)
    linear_model, converged = _fit_linear(data)
    trees, rounds = _fit_trees(data, work.spec.baseline, work)
    models: dict[str, Dummy | Linear | Trees] = {
        "dummy": Dummy.fit(data.train.target, data.target),
        "linear": linear_model,
        "xgboost": trees,
    }
    metric = work.spec.task.metric
    predicted = {}
    for name, model in models.items():
        model.save(work.output)
        predicted[name] = model.predict(data.validation.encoded)
    data.encoder.save(work.output)
    data.target.save(work.output)
    truth = data.validation.target
    scores = {name: metrics.score(metric, truth, found) for name, found in predicted.items()}
    best = max(MODELS, key=lambda name: metrics.gain(metric, scores[name], scores["dummy"]) or 0.0)
    facts = {"best": best, "rounds": rounds, "linear_converged": converged}
    files.write_json(work.output / FILE_NAME, facts | {"metric": metric, "validation": scores})
    check = _beats_the_dummy(work, truth, predicted, scores, best)
    return Made((check,), facts | {f"{metric}_{name}": score for name, score in scores.items()})


def _beats_the_dummy(
    work: Work,
    truth: np.ndarray,
    predicted: dict[str, np.ndarray],
    scores: dict[str, float | None],
    best: str,
) -> Check:
    """Better than the model that looks at nothing, by more than the chance of these rows (paired bootstrap)."""
    metric = work.spec.task.metric
    settings = work.spec.evaluation
    gain = metrics.gain(metric, scores[best], scores["dummy"])
    found = metrics.intervals(
        [metric],
        truth,
        {name: predicted[name] for name in {best, "dummy"}},
        settings.resamples,
        settings.confidence,
        work.spec.baseline.seed,
        [(best, "dummy")],
    ).difference[(best, "dummy")][metric]
    sure = metrics.surely_better(metric, found)
    shown = ", ".join(f"{name} {_shown(score)}" for name, score in scores.items())
    interval = "" if found is None else f"; {best} minus dummy {found[0]:.4g} to {found[1]:.4g}"
    return Check(
        "GM301",
        "beats the dummy",
        judge(sure, "fail", len(truth)),
        len(truth),
        f"{metric} on validation rows: {shown}{interval}",
        gain,
        0.0,
        (),
        "the features say nothing of the target here: look at them before training anything larger",
    )


def _shown(score: float | None) -> str:
    return "undefined" if score is None else f"{score:.4g}"


def _fit_linear(data: parts.Training) -> tuple[Linear, bool]:
    """Logistic regression, or ridge for a number, over standardised numbers and one-hot categories."""
    cardinalities = data.encoder.cardinalities
    design = linear.design(data.train.encoded, cardinalities)
    regression = data.target.classes is None
    model: Any = Ridge(alpha=1.0) if regression else LogisticRegression(C=1.0, tol=1e-3, max_iter=200)
    label = data.target.standardise(data.train.target) if regression else data.train.target
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(design, label)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    weights = np.atleast_2d(model.coef_).T
    intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    if regression:
        weights, intercept = weights * data.target.scale, data.target.restore(intercept)
    elif weights.shape[1] == 1:
        # scikit-learn keeps one column for two classes; a softmax over (0, score) is the same model.
        weights = np.hstack([np.zeros_like(weights), weights])
        intercept = np.array([0.0, intercept[0]])
    num_numeric = data.encoder.num_numeric
    fitted = Linear(weights[:num_numeric], weights[num_numeric:], intercept, linear.offsets_of(cardinalities))
    return fitted, converged


def _fit_trees(data: parts.Training, settings: Baseline, work: Work) -> tuple[Trees, int]:
    """Boosted trees, stopped on the validation loss and cut to their best round."""
    objectives = {0: ("reg:squarederror", "rmse"), 2: ("binary:logistic", "logloss")}
    classes = _num_classes(data.target)
    objective, loss = objectives.get(classes, ("multi:softprob", "mlogloss"))
    settings_of_library = {
        "objective": objective,
        "eval_metric": loss,
        "eta": settings.learning_rate,
        "max_depth": settings.max_depth,
        "tree_method": "hist",
        "seed": settings.seed,
        "nthread": os.cpu_count(),
    } | ({"num_class": classes} if objective == "multi:softprob" else {})
    train = matrix(data.train.encoded, data.train.target)
    validation = matrix(data.validation.encoded, data.validation.target)

    class Tell(xgb.callback.TrainingCallback):
        def after_iteration(self, model: xgb.Booster, epoch: int, evals_log: Any) -> bool:
            work.progress("growing trees", epoch + 1, settings.rounds)
            return False

    booster = xgb.train(
        settings_of_library,
        train,
        settings.rounds,
        evals=[(validation, "validation")],
        early_stopping_rounds=settings.patience,
        verbose_eval=False,
        callbacks=[Tell()],
    )
    rounds = booster.best_iteration + 1
    # Cut and cleared of the search, so that the file holds the model that is scored and nothing else.
    best = booster[:rounds]
    best.set_attr(best_iteration=None, best_score=None)
    return Trees(best), rounds


def _num_classes(target: Target) -> int:
    return 0 if target.classes is None else len(target.classes)
