"""`gristmill ui`: Dagster's webserver and daemon for this workspace, on this machine only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from gristmill import interrupts
from gristmill.errors import EnvironmentFault, Interrupted
from gristmill.workspace import Workspace


def serve(workspace: Workspace, port: int) -> None:
    """Run `dg dev` in the workspace until a signal ends it; its whole process group ends with it."""
    beside = Path(sys.executable).parent / "dg"
    dg = str(beside) if beside.is_file() else shutil.which("dg")
    if dg is None:
        raise EnvironmentFault("dg must be installed, however it is not found; install dagster-dg-cli")
    command = [dg, "dev", "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore"}
    print(f"http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
    # A group of its own, with SIGINT as it was: a background shell ignores it, and dg then ignores
    # SIGTERM as well and leaves its children behind.
    served = subprocess.Popen(
        command,
        cwd=workspace.root,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    code = 0
    try:
        code = served.wait()
    except Interrupted:
        interrupts.obeyed()
    finally:
        if served.poll() is None:
            served.terminate()
            try:
                served.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(served.pid, signal.SIGKILL)
    if code:
        raise EnvironmentFault(f"dg dev ended with {code}; is port {port} taken?")
