"""The command line: parse, delegate, print. Each command loads only what it needs."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gristmill import interrupts
from gristmill.errors import DeclarationError, GristmillError, InputError, Interrupted

if TYPE_CHECKING:
    from gristmill.declaration import Declaration
    from gristmill.plan import Standing
    from gristmill.workspace import Workspace

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="From one declaration per pipeline to a model that can be trusted and made again.",
)

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="A folder's name under pipelines/.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Run a command and end with the exit code that says how it went (0 to 5, 130, 143)."""
    # Threads that spin while they wait make small steps ten times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    interrupts.install()
    message = ""
    try:
        app(standalone_mode=False)
        code = 0
    except GristmillError as error:
        code, message = error.exit_code, str(error)
    except typer.Exit as done:
        code = done.exit_code
    except typer.TyperException as error:
        error.show()  # type: ignore[attr-defined]
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        # One that a library's own handler took: which signal it was is not known any more.
        code, message = Interrupted().exit_code, str(Interrupted())
    except MemoryError:
        code, message = 4, "out of memory; free some, or give the work fewer rows"
    except Exception:
        code, message = 5, f"a fault of gristmill's own; the traceback is in {_log_fault()}"
    # Libraries turn an interrupt into other errors, or into none: the signal itself has the last word.
    if (interrupted := interrupts.received()) is not None:
        code, message = interrupted.exit_code, str(interrupted)
    for line in message.splitlines():
        print(f"gristmill: {line}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: a library's threads (Dagster's, DVC's) must not hold back a command that is done.
    os._exit(code)


def _log_fault() -> Path:
    from gristmill.workspace import Workspace

    try:
        folder = Workspace.find().private / "logs"
    except GristmillError:
        folder = Path.cwd() / ".gristmill" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / time.strftime("fault-%Y%m%d-%H%M%S.log")
    file.write_text(traceback.format_exc())
    return file


@app.command()
def run(
    pipeline: PipelineName,
    to: Annotated[str, typer.Option(help="The last stage to make.")] = "model",
    refresh: Annotated[
        bool, typer.Option(help="Take a new snapshot where the pinned one would be kept.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Make every stage again, whatever is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a pipeline's stages, reusing what nothing changed for."""
    from gristmill import dvc_files, plan, records, terminal
    from gristmill.workspace import Workspace

    workspace = Workspace.find()
    declaration = workspace.pipeline(pipeline)
    stages = plan.through(to)
    screen = terminal.Screen(quiet=as_json)
    if not (refresh or force or _pin_moved(workspace, declaration)):
        standings = plan.standing(workspace, declaration, stages)
        for standing in standings:
            if standing.state not in ("current", "failed"):
                break
            if standing.state == "failed" and standing.record is not None:
                screen.skipped(standings)
                plan.refuse_failed(standing.record)
        else:
            dvc_files.refuse_stale(workspace, declaration)
            if _is_settled(workspace, declaration, standings):
                screen.skipped(standings)
                _print_result(workspace, declaration, stages[-1].name, screen, as_json)
                return
    from gristmill.orchestrate import launch
    from gristmill.orchestrate.engine import Door

    with screen.live():
        door = Door("gristmill run", refresh, force, True, screen.progress, screen.finished)
        launch.run(workspace, declaration, stages, door)
    for stage in stages:
        record = records.read(workspace.stage_folder(pipeline, stage.name))
        if record is not None:
            plan.refuse_failed(record)
    _print_result(workspace, declaration, stages[-1].name, screen, as_json)


def _is_settled(workspace: Workspace, declaration: Declaration, standings: list[Standing]) -> bool:
    """Whether lock and reports say what the records say; a kill may have come before they did."""
    from gristmill import dvc_files, plan

    return all(
        standing.record is not None
        and dvc_files.is_locked(workspace, declaration, plan.stage(standing.stage))
        and plan.reports_are_kept(workspace, standing.record)
        for standing in standings
    )


def _pin_moved(workspace: Workspace, declaration: Declaration) -> bool:
    """Whether dvc.lock pins another snapshot than the one that lies there, as after `git checkout`."""
    from gristmill import dvc_files, files, records

    pin = dvc_files.pinned(declaration)
    output = workspace.stage_folder(declaration.name, "snapshot") / records.OUTPUT
    return pin is None or not output.is_dir() or files.tree_md5(output) != pin


def _print_result(
    workspace: Workspace, declaration: Declaration, last: str, screen: Any, as_json: bool
) -> None:
    from gristmill import plan

    file = workspace.stage_folder(declaration.name, "evaluation") / "output" / "metrics.json"
    facts = json.loads(file.read_text()) if last == "model" else None
    if as_json:
        standings = plan.standing(workspace, declaration, plan.through(last))
        stages = [{"stage": s.stage, "state": s.state, "why": s.why} for s in standings]
        print(json.dumps({"pipeline": declaration.name, "stages": stages, "evaluation": facts}, indent=2))
    elif facts is not None:
        screen.result(workspace, declaration, facts)


@app.command()
def materialize(
    target: Annotated[str, typer.Argument(metavar="PIPELINE/STAGE", help="What DVC's stages ask for.")],
    refresh: Annotated[
        bool, typer.Option(help="Take a new snapshot where the pinned one would be kept.")
    ] = False,
) -> None:
    """Make one stage; the stages before it must have passed. DVC's stages call this."""
    from gristmill import plan, records, terminal
    from gristmill.orchestrate import launch
    from gristmill.orchestrate.engine import Door
    from gristmill.workspace import Workspace

    pipeline, slash, name = target.partition("/")
    if not slash:
        raise InputError(f"what to make must be PIPELINE/STAGE, such as flights/split, got {target!r}")
    workspace = Workspace.find()
    declaration = workspace.pipeline(pipeline)
    stage = plan.stage(name)
    screen = terminal.Screen(quiet=False)
    by = "dvc repro" if "DVC_STAGE" in os.environ else "gristmill materialize"
    door = Door(by, refresh, False, True, screen.progress, screen.finished)
    with screen.live():
        launch.run(workspace, declaration, [stage], door)
    record = records.read(workspace.stage_folder(pipeline, name))
    assert record is not None
    plan.refuse_failed(record)


@app.command()
def status(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="[PIPELINE]", help="All pipelines when left out.")
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Say why each stage stands as it does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which stages are current, stale, failed or missing; makes nothing."""
    from gristmill import plan, terminal
    from gristmill.workspace import Workspace

    workspace = Workspace.find()
    names = [pipeline] if pipeline else workspace.pipeline_names()
    found = {name: plan.standing(workspace, workspace.pipeline(name)) for name in names}
    if as_json:
        body = {
            name: [{"stage": s.stage, "state": s.state, "why": s.why} for s in standings]
            for name, standings in found.items()
        }
        print(json.dumps(body, indent=2))
        return
    screen = terminal.Screen(quiet=False)
    for name, standings in found.items():
        screen.standings(name, standings, why)


@app.command()
def check(
    fix: Annotated[bool, typer.Option("--fix", help="Write what follows from the declarations.")] = False,
) -> None:
    """Check every declaration and all that must agree with it."""
    from gristmill import consistency
    from gristmill.workspace import Workspace

    workspace = Workspace.find()
    problems, written = consistency.check(workspace, fix=fix)
    for file in written:
        print(f"wrote {file}")
    if problems:
        raise DeclarationError(problems)
    print(f"{len(workspace.pipeline_names())} declarations are right")


@app.command()
def render(pipeline: PipelineName) -> None:
    """Print a declaration with every default filled in."""
    from ruamel.yaml import YAML

    from gristmill.declaration import TYPE
    from gristmill.workspace import Workspace

    declaration = Workspace.find().pipeline(pipeline)
    writer = YAML()
    writer.default_flow_style = False
    attributes = declaration.spec.model_dump(mode="json")
    writer.dump({"type": TYPE, "attributes": attributes}, sys.stdout)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a declaration, for editors."""
    from gristmill.declaration import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A pipeline's name, or a model's folder.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rows, as CSV or Parquet.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A CSV or Parquet file; standard output when left out."),
    ] = None,
) -> None:
    """Predict the rows of a file with an accepted model."""
    from gristmill import plan, prediction, records

    folder = Path(model)
    if not folder.is_dir():
        from gristmill.workspace import Workspace

        workspace = Workspace.find()
        declaration = workspace.pipeline(model)
        folder = workspace.stage_folder(model, "model")
        standing = plan.standing(workspace, declaration)[-1]
        if standing.record is not None and standing.state != "current":
            made = json.loads((folder / records.RUN_FILE_NAME).read_text())["started"]
            print(
                f"gristmill: the model of {made} answers, which is not what {model} declares now ({standing.why})",
                file=sys.stderr,
            )
    rows = prediction.predict_file(folder, file, output)
    if output is not None:
        print(f"predicted {rows:,} rows into {output}")


@app.command()
def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where; the working directory when left out.")
    ] = Path(),
) -> None:
    """Write an empty workspace: its folders, settings, git and DVC."""
    from gristmill import init as workspace_init

    for written in workspace_init.write(folder.resolve()):
        print(f"wrote {written}")


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="The port on this machine.")] = 3000,
) -> None:
    """Open the workspace in Dagster's UI on this machine, with its schedules running."""
    from gristmill import ui as user_interface
    from gristmill.workspace import Workspace

    user_interface.serve(Workspace.find(), port)


if __name__ == "__main__":
    main()
