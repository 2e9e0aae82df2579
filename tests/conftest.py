"""Small worlds: a workspace in a temporary folder, with what a test declares in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Declare = Callable[..., Path]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """Write a declaration (text as it is, or attributes) into a workspace at tmp_path; gives its file."""

    def write(content: str | bytes | dict[str, Any], name: str = "flights") -> Path:
        (tmp_path / "dvc.yaml").touch()
        file = tmp_path / "pipelines" / name / "defs.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, dict):
            content = yaml.safe_dump({"type": "gristmill.Pipeline", "attributes": content}, sort_keys=False)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return write
