"""SIGINT and SIGTERM as one exception, and the memory of which of them came."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gristmill.errors import Interrupted

_received: list[int] = []


def install() -> None:
    """Let both signals raise Interrupted in the main thread; a second one ends the process at once.

    What is published is published by rename, so that ending at once is safe at any moment.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise)


@contextmanager
def ours() -> Iterator[None]:
    """Keep our handlers in place around work inside a library that has put in its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def received() -> Interrupted | None:
    """The interrupt that has come, if one has."""
    return Interrupted(_received[0]) if _received else None


def obeyed() -> None:
    """Forget the interrupt: it asked a server to end, which is what the server did."""
    _received.clear()


def _raise(number: int, _frame: Any) -> None:
    _received.append(number)
    if len(_received) > 1:
        os._exit(128 + number)
    raise Interrupted(number)
