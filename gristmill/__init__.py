"""gristmill: from one declaration per pipeline to a model that can be trusted and made again."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gristmill.bundle import Bundle, load_model
    from gristmill.orchestrate.component import Pipeline

__version__ = "0.1.0"
__all__ = ["Bundle", "Pipeline", "__version__", "load_model"]

# Names load on first use: `import gristmill` costs nothing, and a served model never loads Dagster.
_HOMES = {
    "Bundle": "gristmill.bundle",
    "load_model": "gristmill.bundle",
    "Pipeline": "gristmill.orchestrate.component",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gristmill' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
