"""The accepted champion as a bundle, proven in a fresh process, with its card and its lineage."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from gristmill import bundle, evaluation, lineage, parts, split, tables
from gristmill.records import RUN_FILE_NAME, Check, judge
from gristmill.work import Made, Work

CARD_FILE_NAME = "card.md"
LINEAGE_FILE_NAME = "lineage.json"
_KINDS = {"network": "mlp"}
# What a fresh process runs: load the bundle, read raw rows, predict, and nothing of ours beside.
_FRESH = """
import sys
import numpy, pandas
from gristmill.bundle import load_model
folder, rows, answer = sys.argv[1:]
model = load_model(folder)
frame = pandas.read_parquet(rows)
found = model.predict(frame) if model.target.classes is None else model.predict_proba(frame)
numpy.save(answer, found.to_numpy())
# Not scikit-learn: XGBoost imports it where it is installed.
loaded = {"dagster", "dvc", "duckdb"} & set(sys.modules)
assert not loaded, loaded
"""


def make(work: Work) -> Made:
    """Gather the champion's files, and compare what the bundle predicts with what evaluation saw."""
    scores = json.loads((work.inputs["evaluation"].folder / evaluation.FILE_NAME).read_text())
    champion = scores["champion"]
    kind = _KINDS.get(champion, champion)
    source = work.inputs["network" if champion == "network" else "baseline"].folder
    manifest = ["encoder.json"]
    for file in sorted(source.iterdir()):
        if file.stem == kind or file.name == "encoder.json":
            shutil.copyfile(file, work.output / file.name)
            manifest.append(file.name)
    encoder, target = parts.fitted(work)
    task = work.spec.task
    schema = tables.schema_of(work.snapshot)
    facts = {
        "pipeline": work.declaration.name,
        "description": work.spec.description,
        "task": task.kind,
        "target": task.target,
        "features": list(encoder.features),
        # How a text file of rows is read, so that a value is to the model what it was in training.
        "types": {name: str(schema.field(name).type) for name in encoder.features},
        "na_values": list(getattr(work.spec.source, "na_values", ("",))),
        "champion": champion,
        "kind": kind,
        "metric": task.metric,
        "test": scores["test"][champion],
        "snapshot": work.inputs["snapshot"].record.output_digest,
    }
    bundle.write(work.output, facts, target, sorted(set(manifest)))
    (work.output / CARD_FILE_NAME).write_text(_card(work, scores, facts))
    work.progress("predicting in a fresh process", 0, 0)
    check = _parity(work)
    return Made(
        (check,),
        {"champion": champion, "features": len(facts["features"])},
        (CARD_FILE_NAME,),
        {LINEAGE_FILE_NAME: _lineage(work)},
    )


def _parity(work: Work) -> Check:
    """The bundle, loaded in a fresh process from raw rows, predicts what evaluation saw, bit for bit."""
    rows = split.read(work.inputs["split"].folder)["test"]
    seen = pq.read_table(work.inputs["evaluation"].folder / evaluation.PREDICTIONS_FILE_NAME).to_pandas()
    wanted = seen.drop(columns=[tables.ROW_ID, "truth"]).to_numpy()
    wanted = wanted[:, 0] if work.spec.task.kind == "regression" else wanted
    raw, answer = work.scratch / "raw.parquet", work.scratch / "answer.npy"
    columns = [name for name in tables.schema_of(work.snapshot).names if name != tables.ROW_ID]
    # Columns in reverse order: a model finds them by name.
    pq.write_table(tables.read(work.snapshot, columns[::-1], rows), raw)
    command = [sys.executable, "-W", "ignore", "-c", _FRESH, str(work.output), str(raw), str(answer)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    way_out = "the model that is kept is not the model that was scored; do not use it, report it"
    if ran.returncode != 0:
        last = ran.stderr.strip().splitlines()[-1:] or ["no message"]
        return Check(
            "GM601", "parity", "failed", len(rows), f"the fresh process failed: {last[0]}", way_out=way_out
        )
    found = np.load(answer)
    raw.unlink()
    answer.unlink()
    differing = int((found != wanted).reshape(len(rows), -1).any(axis=1).sum())
    text = f"{differing:,} of {len(rows):,} test rows predicted otherwise in a fresh process from raw rows"
    return Check(
        "GM601",
        "parity",
        judge(differing == 0, "fail", len(rows)),
        len(rows),
        text,
        differing,
        0,
        (),
        way_out,
    )


def _card(work: Work, scores: dict[str, Any], facts: dict[str, Any]) -> str:
    """A model card (Mitchell et al. 2019) in Hugging Face's form: front matter, then prose and tables."""
    task = work.spec.task
    counts = work.inputs["split"].record.values
    lines = [
        "---",
        "library_name: gristmill",
        f"tags: [tabular-{'regression' if task.kind == 'regression' else 'classification'}]",
        "---",
        f"# {work.declaration.name}",
        "",
        work.spec.description or "No description is declared.",
        "",
        f"Predicts `{task.target}` ({task.kind}) from {len(facts['features'])} columns. "
        f"The champion on the validation rows is `{facts['champion']}`; the best plain model is "
        f"`{scores['best_baseline']}`.",
        "",
        f"| model | {task.metric} on {scores['test_rows']:,} test rows | {scores['confidence']:.0%} interval |",
        "|---|---|---|",
    ]
    for name, of in scores["test"].items():
        bounds = scores["intervals"][name][task.metric]
        shown = "undefined" if of[task.metric] is None else f"{of[task.metric]:.4f}"
        interval = "undefined" if bounds is None else f"{bounds['low']:.4f} to {bounds['high']:.4f}"
        lines.append(f"| {name} | {shown} | {interval} |")
    snapshot = work.inputs["snapshot"].record
    lines += [
        "",
        f"Data: {snapshot.values['rows']:,} rows, snapshot `{snapshot.output_digest[:16]}`. Split: "
        + ", ".join(f"{counts[name]:,} {name}" for name in split.PARTS)
        + f" rows, seed {work.spec.split.seed}"
        + (f", by time on `{work.spec.split.time_on}`." if work.spec.split.time_on else "."),
        "",
        f"Columns it needs: {', '.join(f'`{name}`' for name in facts['features'])}.",
        "",
        f"Make it again: `gristmill run {work.declaration.name}`. Use it: "
        f'`gristmill.load_model("pipelines/{work.declaration.name}/data/model").predict(frame)`.',
        "",
    ]
    return "\n".join(lines)


def _lineage(work: Work) -> dict[str, Any]:
    """All that this model was made of, readable without gristmill."""
    stages = {}
    for name, found in work.inputs.items():
        run = found.folder.parent / RUN_FILE_NAME
        stages[name] = {
            "fingerprint": found.record.fingerprint,
            "output": found.record.output_digest,
            "code": found.record.code,
            "run": json.loads(run.read_text()) if run.is_file() else None,
        }
    spec = work.spec
    ref = f"refs/gristmill/{work.declaration.name}/{work.run_id}"
    return {
        "pipeline": work.declaration.name,
        "run": work.run_id,
        "snapshot": work.inputs["snapshot"].record.output_digest,
        "declaration": spec.model_dump(mode="json"),
        "seeds": {
            "split": spec.split.seed,
            "baseline": spec.baseline.seed,
            "training": spec.training.seed,
            "evaluation": spec.evaluation.seed,
        },
        "code": lineage.commit(work.workspace.root, ref),
        "environment": lineage.environment(),
        "stages": stages,
        "made_at": pd.Timestamp.now("UTC").isoformat(timespec="seconds"),
    }
