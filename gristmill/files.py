"""Files that are never half there: digests, atomic publishing and locks that die with their holder."""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gristmill.errors import Busy, EnvironmentFault


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values are equal text. NaN is refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    return _digest_now(file, "sha256")


def file_md5(file: Path) -> str:
    """MD5 of a file's bytes, as DVC names it."""
    return _digest_now(file, "md5")


def _digest_now(file: Path, algorithm: str) -> str:
    status = file.stat()
    # The change time counts too: nobody can set it back, as `touch -d` does the modification time.
    changed = (status.st_mtime_ns, status.st_ctime_ns)
    return _file_digest(file, algorithm, status.st_ino, status.st_size, changed)


@functools.lru_cache(maxsize=4096)
def _file_digest(file: Path, algorithm: str, _inode: int, _size: int, _changed: tuple[int, int]) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def tree_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file under a folder by its relative path, in order."""
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in _files(folder)}


def tree_md5(folder: Path) -> str:
    """The digest DVC gives a folder: MD5 of the JSON list of its files' MD5 sums, with `.dir` behind it."""
    listing = [
        {"md5": file_md5(file), "relpath": file.relative_to(folder).as_posix()} for file in _files(folder)
    ]
    return hashlib.md5(json.dumps(listing, sort_keys=True).encode()).hexdigest() + ".dir"


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def write_json(file: Path, value: Any) -> None:
    """Write readable JSON so that a reader finds the old file or the whole new one."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(file, text.encode() + b"\n")


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file so that a reader finds the old one or the whole new one, also after a power cut."""
    with disk_faults(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o644)
            os.replace(name, file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(file.parent)


def publish(staging: Path, target: Path) -> None:
    """Put a finished folder in `target`'s place by rename; both lie on one file system.

    Every byte reaches the disk before the name does. What stood at `target` is moved out of the way
    first, so a reader finds the old folder, none, or the whole new one: never a mixture.
    """
    with disk_faults(target):
        for path in staging.rglob("*"):
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
            else:
                sync_folder(path)
        sync_folder(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        discarded = staging.with_name(staging.name + ".old")
        shutil.rmtree(discarded, ignore_errors=True)
        if target.exists():
            os.rename(target, discarded)
        os.rename(staging, target)
        sync_folder(target.parent)
        shutil.rmtree(discarded, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """A full or forbidden disk becomes one line with the path, what is free and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            existing = next(folder for folder in (path, *path.parents) if folder.exists())
            free = shutil.disk_usage(existing).free >> 20
            raise EnvironmentFault(
                f"no space for {path}: {free} MiB free; free some and run again"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise EnvironmentFault(f"{path} must be writable, however: {error.strerror}") from error
        raise


# Locks


class PipelineLock:
    """One run per pipeline: flocks held by the processes that write, which die with them.

    The steps of one run share the lock, each from its own process: all hold the file shared, and its
    text names the run. A process of another run finds the file held and a name that is not its own.
    """

    def __init__(self, private: Path, pipeline: str, run_id: str) -> None:
        self._file = private / "locks" / f"{pipeline}.lock"
        self._pipeline = pipeline
        self._run_id = run_id
        self._handle: int | None = None

    def __enter__(self) -> PipelineLock:
        with disk_faults(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            guard = os.open(self._file.with_suffix(".guard"), os.O_RDWR | os.O_CREAT, 0o644)
            self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # The guard makes the look and the choice one step; it is held for microseconds.
            fcntl.flock(guard, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = json.loads(os.pread(self._handle, 65536, 0) or b"{}")
                if holder.get("run") != self._run_id:
                    os.close(self._handle)
                    self._handle = None
                    raise Busy(
                        f"{self._pipeline} is busy: run {holder.get('run')}, pid {holder.get('pid')} on "
                        f"{holder.get('host')}, since {holder.get('since')}; wait for it or end it"
                    ) from None
            else:
                holder = {
                    "run": self._run_id,
                    "pid": os.getpid(),
                    "host": socket.gethostname(),
                    "since": time.strftime("%Y-%m-%d %H:%M:%S"),
                }
                os.ftruncate(self._handle, 0)
                os.pwrite(self._handle, json.dumps(holder).encode(), 0)
            fcntl.flock(self._handle, fcntl.LOCK_SH)
        finally:
            os.close(guard)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@contextmanager
def turn(file: Path) -> Iterator[None]:
    """Wait for our turn at something that only one process may do at a time, for moments."""
    with disk_faults(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def stage_lock(private: Path, pipeline: str, stage: str) -> Iterator[None]:
    """One writer per stage; raises Busy when another process writes it now."""
    file = private / "locks" / f"{pipeline}.{stage}.lock"
    with disk_faults(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"{pipeline}/{stage} is being made by another process; wait for it or end it"
            ) from None
        yield
    finally:
        os.close(handle)
