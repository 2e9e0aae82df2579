import re
import signal
from pathlib import Path

from gristmill import errors
from gristmill.errors import DeclarationError, GristmillError, Interrupted, Problem


def descendants(kind: type[Exception]) -> set[type[Exception]]:
    return {kind}.union(*(descendants(child) for child in kind.__subclasses__()))


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for indent, name in re.findall(r"^([ │├└─]*)([A-Z]\w+)(?: +\d.*)?$", errors.__doc__ or "", re.MULTILINE):
        above = [(depth, other) for depth, other in above if depth < len(indent)]
        drawn[name] = above[-1][1] if above else None
        above.append((len(indent), name))

    written = {
        kind.__name__: None if kind is GristmillError else kind.__bases__[0].__name__
        for kind in descendants(GristmillError)
        if kind.__module__ == "gristmill.errors"
    }
    assert drawn == written | {"KeyboardInterrupt": None, "Interrupted": "KeyboardInterrupt"}


def test_no_handler_of_failures_catches_an_interrupt() -> None:
    assert not issubclass(Interrupted, Exception)


def test_the_exit_codes_in_the_docstring_are_those_of_the_classes() -> None:
    drawn = dict(re.findall(r"([A-Z]\w+) +(\d+)(?:/\d+)? ", errors.__doc__ or ""))
    codes = {name: str(getattr(errors, name).exit_code) for name in drawn if name != "Interrupted"}
    assert codes | {"Interrupted": str(Interrupted().exit_code)} == drawn


def test_an_interrupt_ends_as_a_shell_expects() -> None:
    assert Interrupted().exit_code == 130
    assert Interrupted(signal.SIGTERM).exit_code == 143


def test_problems_are_told_in_the_order_of_their_lines() -> None:
    file = Path("pipelines/flights/defs.yaml")
    error = DeclarationError([Problem(file, 9, "split.test", "must be < 1"), Problem(file, 2, "", "no")])
    assert str(error) == f"{file}:2: no\n{file}:9: split.test: must be < 1"
