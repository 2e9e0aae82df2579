"""The UI as a user starts it: real servers, a real browser, real signals."""

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import toy


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def served(folder: Path, *command: str, port: int, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server started as from a shell, up when it answers, ended by Ctrl-C."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=toy.environment(**more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    try:
        wait(lambda: answers(port))
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def answers(port: int) -> bool:
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info") as found,
    ):
        return bool(found.status == 200)
    return False


def wait(condition: object, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.25)


def processes_in(folder: Path) -> list[int]:
    """Processes whose working directory is in the workspace."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                found.append(int(entry.name))
    return found


def query(port: int, text: str) -> dict[str, object]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        json.dumps({"query": text}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as found:
        body: dict[str, object] = json.load(found)["data"]
        return body


def test_the_ui_serves_the_workspace_on_this_machine_only_and_ends_with_all_its_children(
    tmp_path: Path,
) -> None:
    toy.workspace(tmp_path)
    port = free_port()
    with served(tmp_path, "gristmill", "ui", "--port", str(port), port=port) as process:
        wait(
            lambda: (
                "toy"
                in str(
                    query(
                        port,
                        "{repositoriesOrError{...on RepositoryConnection{nodes{assetGroups{groupName}}}}}",
                    )
                )
            )
        )
        listening = (
            subprocess.run(["ss", "-ltn"], capture_output=True, text=True).stdout
            if shutil.which("ss")
            else ""
        )
        assert f"0.0.0.0:{port}" not in listening
        assert len(processes_in(tmp_path)) > 1
    assert process.returncode == 0
    wait(lambda: processes_in(tmp_path) == [], 20)


def test_no_telemetry_leaves_the_webserver(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    home = tmp_path / "home"

    def waiting_to_be_sent() -> None:
        """What dg writes down of its commands, which a webserver uploads when it starts."""
        log = home / ".dagster" / "logs" / "event.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text('{"action": "something"}\n')

    came: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.path)
            self.send_response(200)
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{listener.server_address[1]}/actions"
        port = free_port()
        # As a user types it: nothing but the workspace's own files says that telemetry is off.
        environment = {"HOME": str(home), "DAGSTER_TELEMETRY_URL": url}
        arguments = ("env", "-u", "DAGSTER_DISABLE_TELEMETRY", "dg", "dev", "--port", str(port))
        waiting_to_be_sent()
        with served(tmp_path, *arguments, port=port, **environment):
            time.sleep(5)
        assert came == []
        # The listener hears what is sent: the same webserver without the workspace's file does send.
        # Dagster gives up without a word when another of its processes writes the log just then.
        (tmp_path / ".env").unlink()
        for _ in range(4):
            waiting_to_be_sent()
            with served(tmp_path, *arguments, port=port, **environment), contextlib.suppress(AssertionError):
                wait(lambda: bool(came), 10)
            if came:
                break
        listener.shutdown()
    assert came[0] == "/actions"


@pytest.mark.ui
def test_a_browser_shows_the_chain_runs_it_and_shows_what_was_found(tmp_path: Path) -> None:
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    browser_program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser_program, "chromium must be installed, such as by `apt-get install chromium`"
    toy.workspace(tmp_path)
    port = free_port()
    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    pictures = Path(os.environ.get("SCREENSHOTS", tmp_path / "screenshots"))
    pictures.mkdir(parents=True, exist_ok=True)
    with served(tmp_path, "gristmill", "ui", "--port", str(port), port=port), sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"),
            executable_path=browser_program,
            args=flags,
            viewport={"width": 1500, "height": 1000},
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        base = f"http://127.0.0.1:{port}"
        page.goto(f"{base}/locations/{location_name(tmp_path)}/asset-groups/toy")
        page.get_by_text("snapshot", exact=True).first.wait_for()
        page.get_by_text("model", exact=True).first.wait_for()
        with page.expect_response(
            lambda response: "LaunchPipelineExecution" in (response.request.post_data or "")
        ) as launched:
            page.get_by_role("button", name="Materialize all").click()
        run = launched.value.json()["data"]["launchPipelineExecution"]["run"]["id"]

        def status() -> str:
            found = query(port, f'{{runOrError(runId:"{run}"){{...on Run{{status}}}}}}')
            return str(found["runOrError"]["status"])  # type: ignore[index]

        wait(lambda: status() in ("SUCCESS", "FAILURE", "CANCELED"), 240)
        assert status() == "SUCCESS"
        page.wait_for_timeout(3000)
        page.screenshot(path=pictures / "group.png")
        page.goto(f"{base}/assets/toy/evaluation?view=overview")
        page.get_by_text("champion", exact=True).first.wait_for()
        page.screenshot(path=pictures / "evaluation.png")
        page.goto(f"{base}/assets/toy/validation?view=checks")
        page.get_by_text("gm103_duplicates").first.wait_for()
        page.screenshot(path=pictures / "checks.png")
        context.close()


def location_name(folder: Path) -> str:
    """The code location's name, which `init` makes of the folder's."""
    line = next(
        line
        for line in (folder / "pyproject.toml").read_text().splitlines()
        if line.startswith("code_location_name")
    )
    return line.partition('"')[2].rstrip('"')
