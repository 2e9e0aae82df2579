"""Every error gristmill raises on purpose, each with the exit code a shell sees.

    GristmillError              5  a fault of ours
    ├── InputError              2  what the user gave: a declaration, data, a model file, an argument
    │   ├── DeclarationError    2  a declaration, with all its problems
    │   └── DataError           2  a source, a table or a column
    ├── GateRefused             1  the work is done and a gate said no, or a gate's record is missing
    ├── Busy                    3  another run holds the pipeline
    └── EnvironmentFault        4  disk, memory, permission, a missing device or program

    KeyboardInterrupt
    └── Interrupted       130/143  a signal asked the work to stop; what was finished is kept

A message is one line: what must hold, what was given, where, and what to do.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path


class GristmillError(Exception):
    """The root: whoever catches it has caught everything gristmill raises on purpose."""

    exit_code = 5


class InputError(GristmillError):
    exit_code = 2


class DataError(InputError):
    pass


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a declaration: where (file, line, dotted path) and what must hold."""

    file: Path
    line: int
    path: str
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}: {self.path}: {self.text}" if self.path else f"{where}: {self.text}"


class DeclarationError(InputError):
    """All problems of one declaration, in the order of their lines."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (str(problem.file), problem.line))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class GateRefused(GristmillError):
    exit_code = 1


class Busy(GristmillError):
    exit_code = 3


class EnvironmentFault(GristmillError):
    exit_code = 4


class Interrupted(KeyboardInterrupt):
    """SIGINT ends with 130, SIGTERM with 143, as a shell expects.

    It is a KeyboardInterrupt and no GristmillError, so that no `except Exception` on its way takes it
    for a failed check or a failed fit.
    """

    def __init__(self, signal_number: int = signal.SIGINT) -> None:
        super().__init__("interrupted; what was finished is kept, run it again to continue")
        self.exit_code = 128 + signal_number
