"""The work of a pipeline without its mill: the stages' functions called one after the other in a script.

No record, digest, lock, publishing, Dagster or DVC: the peer of `gristmill run`.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from pathlib import Path

from gristmill import plan
from gristmill.records import PASSED_FILE_NAME, Input, Record
from gristmill.work import Work
from gristmill.workspace import Workspace


def main(root: Path, pipeline: str) -> None:
    workspace = Workspace(root)
    declaration = workspace.pipeline(pipeline)
    inputs: dict[str, Input] = {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=workspace.private) as folder:
        for stage in plan.STAGES:
            output, scratch = Path(folder) / stage.name / "output", Path(folder) / stage.name / "scratch"
            output.mkdir(parents=True)
            scratch.mkdir()
            module, _, name = stage.entry.partition(":")
            work = Work(workspace, declaration, inputs, output, scratch, "bare")
            start = time.perf_counter()
            made = getattr(importlib.import_module(module), name)(work)
            record = Record(
                pipeline, stage.name, {}, {}, {}, {}, {PASSED_FILE_NAME: ""}, made.checks, made.values
            )
            inputs[stage.name] = Input(record, output)
            print(f"{stage.name:<12}{time.perf_counter() - start:8.2f} s", file=sys.stderr)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
