"""The user's own Python, named `module:name` in a declaration and found in the workspace."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from gristmill.errors import InputError


def load(root: Path, entry: str) -> Any:
    """The object an entry names; raises InputError where the module or the name is not there."""
    module_name, _, name = entry.partition(":")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise InputError(
                f"{entry}: {module_name} imports {error.name}, which is not installed"
            ) from error
        raise InputError(f"{entry}: module {module_name} must lie in {root}, however it does not") from error
    except Exception as error:
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{entry}: {module_name} must load, however it raises {line}") from error
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).resolve().is_relative_to(root.resolve()):
        raise InputError(f"{entry}: module {module_name} must lie in {root}, however it was found at {file}")
    if not hasattr(module, name):
        raise InputError(f"{entry}: {module_name} must define {name!r}, however it does not")
    return getattr(module, name)
