import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gristmill import files
from gristmill.errors import Busy, EnvironmentFault
from gristmill.files import PipelineLock, stage_lock


def folder_with(folder: Path, **content: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in content.items():
        (folder / name).write_text(text)
    return folder


# Digests


def test_equal_values_are_equal_text() -> None:
    assert files.canonical({"b": [1, 2.5, None], "a": "ü"}) == '{"a":"ü","b":[1,2.5,null]}'
    assert files.digest({"a": 1, "b": 2}) == files.digest({"b": 2, "a": 1})
    assert files.digest({"a": 1}) != files.digest({"a": "1"})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_json_cannot_say_has_no_digest(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        files.digest([value])


def test_a_digest_is_of_the_bytes_that_are_there_now(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"one")
    first = files.file_digest(file)
    assert first == "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert files.file_md5(file) == "f97c5d29941bfb1b2fdab0874906ab82"
    status = file.stat()
    # Same size, and the time of change set back: as a tool does that keeps times.
    file.write_bytes(b"two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert files.file_digest(file) != first


def test_a_tree_is_its_files_by_their_paths(tmp_path: Path) -> None:
    folder_with(tmp_path / "t" / "sub", b="2")
    (tmp_path / "t" / "a").write_text("1")
    assert list(files.tree_digests(tmp_path / "t")) == ["a", "sub/b"]


def test_a_tree_has_the_digest_that_dvc_gives_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    folder_with(data / "a", x="1", y="2")
    folder_with(data / "a-b", x="1")
    folder_with(data / "A", x="\r\ntext\r\n")
    for name in ("a.txt", "ü é", "_", "Z"):
        (data / name).write_text(name)
    dvc = Path(sys.executable).with_name("dvc")
    home = {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": f"{tmp_path}/site", "HOME": str(tmp_path)}
    for arguments in (["init", "--no-scm", "--quiet"], ["add", "data", "--quiet"]):
        subprocess.run([dvc, *arguments], cwd=tmp_path, env=os.environ | home, check=True, timeout=60)

    pinned = yaml.safe_load((tmp_path / "data.dvc").read_text())["outs"][0]["md5"]
    assert files.tree_md5(data) == pinned


# Single files


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "x.json"
    files.write_json(file, {"b": 1, "a": "ü"})
    files.write_json(file, {"b": 2})
    assert file.read_text() == '{\n  "b": 2\n}\n'
    assert list(file.parent.iterdir()) == [file]
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "x"
    files.write_bytes(file, b"old")
    with pytest.raises(TypeError, match="bytes-like object"):
        files.write_bytes(file, "text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Out of range float values"):
        files.write_json(file, math.nan)
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_f05_a_full_disk_is_told_and_the_old_file_stays(full_disk: Path) -> None:
    file = full_disk / "x"
    files.write_bytes(file, b"old")
    with pytest.raises(EnvironmentFault, match=rf"no space for {file}: 0 MiB free; free some and run again"):
        files.write_bytes(file, b"x" * (1 << 20))
    assert file.read_bytes() == b"old"
    assert list(full_disk.iterdir()) == [file]
    files.write_bytes(file, b"new")
    assert file.read_bytes() == b"new"


def test_f06_a_folder_that_is_not_writable_is_told(full_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(full_disk)], check=True)
    with pytest.raises(EnvironmentFault, match="must be writable, however: Read-only file system"):
        files.write_bytes(full_disk / "x", b"new")


# Folders


def test_a_folder_takes_the_others_place(tmp_path: Path) -> None:
    folder_with(tmp_path / "out", a="old", gone="old")
    files.publish(folder_with(tmp_path / "work" / "staging", a="new"), tmp_path / "out")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"a": "new"}
    assert list((tmp_path / "work").iterdir()) == []


def test_where_nothing_stood_the_folder_appears(tmp_path: Path) -> None:
    files.publish(folder_with(tmp_path / "staging", a="new"), tmp_path / "deep" / "out")
    assert (tmp_path / "deep" / "out" / "a").read_text() == "new"


def test_without_a_staged_folder_the_old_one_stays(tmp_path: Path) -> None:
    folder_with(tmp_path / "out", a="old")
    with pytest.raises(FileNotFoundError, match="staging"):
        files.publish(tmp_path / "staging", tmp_path / "out")
    assert (tmp_path / "out" / "a").read_text() == "old"


def test_a_reader_never_sees_a_mixture(tmp_path: Path) -> None:
    target = tmp_path / "out"
    folder_with(target, a="0", b="0")
    seen: set[tuple[str, str]] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                folder = os.open(target, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                pair = []
                for name in ("a", "b"):
                    with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=folder)) as stream:
                        pair.append(stream.read())
                seen.add((pair[0], pair[1]))
            except FileNotFoundError:
                pass  # the folder was discarded while it was read
            finally:
                os.close(folder)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for version in range(1, 40):
            files.publish(folder_with(tmp_path / "staging", a=str(version), b=str(version)), target)
    finally:
        done.set()
        reader.join()
    assert len(seen) > 1
    assert {a for a, b in seen if a != b} == set()


# Dies at the n-th call that touches the disk's order of things.
_KILLED = """
import os, signal, sys
from pathlib import Path
from gristmill import files

left = int(sys.argv[3])

def dies_at_its_turn(call):
    def counted(*arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments)
    return counted

for name in ("rename", "replace", "fsync"):
    setattr(os, name, dies_at_its_turn(getattr(os, name)))
what, folder = sys.argv[1], Path(sys.argv[2])
if what == "publish":
    files.publish(folder / "staging", folder / "out")
else:
    files.write_bytes(folder / "x", b"new")
"""


def killed(what: str, folder: Path, turn: int) -> bool:
    """Whether the process was killed before it came to its end."""
    command = [sys.executable, "-c", _KILLED, what, str(folder), str(turn)]
    code = subprocess.run(command, check=False, timeout=60).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_f01_killed_anywhere_in_publish_the_next_attempt_succeeds(tmp_path: Path) -> None:
    states = []
    for turn in range(1, 20):
        world = tmp_path / str(turn)
        folder_with(world / "out", a="old", b="old")
        folder_with(world / "staging", a="new", b="new")
        was_killed = killed("publish", world, turn)
        out = world / "out"
        states.append(tuple(sorted((path.name, path.read_text()) for path in out.glob("*"))))
        shutil.rmtree(world / "staging", ignore_errors=True)
        files.publish(folder_with(world / "staging", a="next"), out)
        assert [path.read_text() for path in out.iterdir()] == ["next"]
        assert not (world / "staging.old").exists()
        if not was_killed:
            break
    else:
        pytest.fail("publish never came to its end")
    old, new = (("a", "old"), ("b", "old")), (("a", "new"), ("b", "new"))
    assert set(states) == {old, (), new}
    assert states == sorted(states, key=[old, (), new].index)


def test_f02_killed_anywhere_in_a_write_the_file_is_old_or_new(tmp_path: Path) -> None:
    states = []
    for turn in range(1, 10):
        (tmp_path / "x").write_bytes(b"old")
        was_killed = killed("write", tmp_path, turn)
        states.append((tmp_path / "x").read_bytes())
        if not was_killed:
            break
    assert states == [b"old", b"old", b"new", b"new"]


# Locks

_HOLDS = """
import sys, time
from pathlib import Path
from gristmill.errors import Busy
from gristmill.files import PipelineLock, stage_lock

what, private, run = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
lock = stage_lock(private, "flights", "split") if what == "stage" else PipelineLock(private, "flights", run)
try:
    with lock:
        print("held", flush=True)
        time.sleep(60)
except Busy as error:
    print(error, flush=True)
"""


class Holder:
    """Another process that asks for a lock, and holds it until it is killed with -9."""

    def __init__(self, what: str, private: Path, run: str = "one") -> None:
        command = [sys.executable, "-c", _HOLDS, what, str(private), run]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def __enter__(self) -> "Holder":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_k54_a_second_run_is_told_who_holds_the_pipeline(tmp_path: Path) -> None:
    with Holder("pipeline", tmp_path, "one") as first:
        assert first.said == "held"
        words = rf"flights is busy: run one, pid {first.process.pid} on .+, since \d{{4}}-.*; wait for it or end it"
        with pytest.raises(Busy, match=words), PipelineLock(tmp_path, "flights", "two"):
            pass


def test_k54_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    with Holder("pipeline", tmp_path, "one"):
        pass
    with PipelineLock(tmp_path, "flights", "two"), Holder("pipeline", tmp_path, "one") as late:
        assert late.said.startswith(f"flights is busy: run two, pid {os.getpid()} on ")


def test_the_steps_of_one_run_share_the_pipeline(tmp_path: Path) -> None:
    with Holder("pipeline", tmp_path, "one") as first, Holder("pipeline", tmp_path, "one") as second:
        assert (first.said, second.said) == ("held", "held")
        # As long as one step is left, the run holds the pipeline.
        first.process.kill()
        first.process.wait()
        with pytest.raises(Busy, match="flights is busy: run one"), PipelineLock(tmp_path, "flights", "two"):
            pass
    with PipelineLock(tmp_path, "flights", "two"):
        pass


def test_other_pipelines_are_free(tmp_path: Path) -> None:
    with Holder("pipeline", tmp_path, "one"), PipelineLock(tmp_path, "other", "two"):
        pass


def test_f14_what_a_dead_holder_left_in_the_file_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    for text in ("", "{", '{"run": "gone", "pid": 1, "host": "elsewhere"}'):
        (tmp_path / "locks" / "flights.lock").write_text(text)
        with PipelineLock(tmp_path, "flights", "two"):
            pass


def test_of_many_that_start_at_once_one_run_gets_the_pipeline(tmp_path: Path) -> None:
    holders: list[Holder] = []
    threads = [
        threading.Thread(target=lambda run=str(run): holders.append(Holder("pipeline", tmp_path, run)))
        for run in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = sorted(holder.said.split(":")[0] for holder in holders)
    for holder in holders:
        holder.__exit__()
    assert said == ["flights is busy"] * 3 + ["held"]


def test_a_stage_has_one_writer(tmp_path: Path) -> None:
    with Holder("stage", tmp_path) as first:
        assert first.said == "held"
        words = "flights/split is being made by another process; wait for it or end it"
        with pytest.raises(Busy, match=words), stage_lock(tmp_path, "flights", "split"):
            pass
        with stage_lock(tmp_path, "flights", "baseline"):
            pass
    started = time.monotonic()
    with stage_lock(tmp_path, "flights", "split"):
        assert time.monotonic() - started < 1
