"""A checkpoint is there or not there: whatever moment the process dies at, whatever happens to the bytes."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gristmill.errors import EnvironmentFault
from gristmill.training import checkpoint


def state(epoch: int) -> dict[str, Any]:
    return {"model": {"w": torch.full((50,), float(epoch))}, "history": [{"loss": float("nan")}] * epoch}


def saved(folder: Path, *epochs: int) -> list[str]:
    for epoch in epochs:
        checkpoint.save(folder, epoch, state(epoch))
    return names(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def newest(folder: Path) -> int:
    """The epoch of the state that is found, 0 for none; its tensors are what was saved."""
    found = checkpoint.latest(folder)
    if found is None:
        return 0
    epoch = len(found["history"])
    assert torch.equal(found["model"]["w"], state(epoch)["model"]["w"])
    return epoch


def test_nothing_is_found_where_nothing_was_saved(tmp_path: Path) -> None:
    assert newest(tmp_path / "none") == 0


def test_k44_the_last_two_are_kept_in_the_order_of_their_epochs(tmp_path: Path) -> None:
    assert saved(tmp_path, 1) == ["epoch-000001"]
    assert saved(tmp_path, 2, 3) == ["epoch-000002", "epoch-000003"]
    assert saved(tmp_path, 9_999, 10_000, 100_000) == ["epoch-010000", "epoch-100000"]
    assert newest(tmp_path) == 100_000 % 1_000_000


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("state.pt", lambda content: content[:-1]),
        ("state.pt", lambda content: b""),
        ("state.pt", lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:]),
        ("state.pt", None),
        ("manifest.json", lambda content: content[:-3]),
        ("manifest.json", lambda content: b""),
        ("manifest.json", lambda content: b"[]"),
        ("manifest.json", lambda content: b"null"),
        ("manifest.json", lambda content: b"{}"),
        ("manifest.json", lambda content: bytes([255]) + content),
        ("manifest.json", None),
    ],
)
def test_k50_f09_a_damaged_one_is_passed_over(
    tmp_path: Path, file: str, damage: Callable[[bytes], bytes] | None
) -> None:
    saved(tmp_path, 1, 2, 3)
    broken = tmp_path / "epoch-000003" / file
    if damage is None:
        broken.unlink()
    else:
        broken.write_bytes(damage(broken.read_bytes()))
    assert newest(tmp_path) == 2
    # It is made again, and then counts.
    assert saved(tmp_path, 3) == ["epoch-000002", "epoch-000003"]
    assert newest(tmp_path) == 3


def test_k50_any_flipped_bit_is_found(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    file = tmp_path / "epoch-000002" / "state.pt"
    content = file.read_bytes()
    for place in range(0, len(content), 97):
        file.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        assert newest(tmp_path) == 1


def test_all_damaged_is_as_none(tmp_path: Path) -> None:
    for folder in saved(tmp_path, 1, 2):
        (tmp_path / folder / "state.pt").write_bytes(b"")
    assert newest(tmp_path) == 0


def test_k44_damaged_newer_ones_do_not_push_the_good_one_out(tmp_path: Path) -> None:
    for folder in saved(tmp_path, 4, 5):
        (tmp_path / folder / "state.pt").write_bytes(b"")
    assert saved(tmp_path, 1) == ["epoch-000001"]
    assert newest(tmp_path) == 1


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    saved(tmp_path, 1)

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    from gristmill import files

    file = tmp_path / "epoch-000001" / "state.pt"
    torch.save({"model": Bomb()}, file)
    manifest = {"epoch": 1, "sha256": files.file_digest(file)}
    file.with_name("manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        checkpoint.latest(tmp_path)
    assert not (tmp_path / "exploded").exists()


class Killed(BaseException):
    """The process is gone: no code of ours may tidy up after it."""


def test_f02_f04_a_kill_at_any_step_of_a_save_leaves_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "rmdir")}
    left = -1

    def dying(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return counted[name](*arguments, **options)

        return call

    for name in counted:
        monkeypatch.setattr(os, name, dying(name))
    moments = 0
    while True:
        folder = tmp_path / str(moments)
        left = -1
        saved(folder, 1, 2, 3)
        left = moments
        try:
            checkpoint.save(folder, 4, state(4))
        except Killed:
            left = -1
            assert newest(folder) in (3, 4)
            # The next attempt is not disturbed by what lies around.
            saved(folder, newest(folder) + 1)
            assert newest(folder) in (4, 5)
        else:
            break
        moments += 1
    # Manifest, its folder, state, staging, publishing, the parent, and the removal of the oldest.
    assert moments >= 8


def test_f04_every_byte_is_on_disk_before_the_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename = os.fsync, os.rename
    synced: set[str] = set()

    def noting(handle: int) -> None:
        synced.add(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")).lstrip("."))
        fsync(handle)

    def checking(source: Any, target: Any) -> None:
        assert {"state.pt", "manifest.json", "epoch-000001"} <= synced
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "rename", checking)
    checkpoint.save(tmp_path, 1, state(1))
    assert newest(tmp_path) == 1


def test_f06_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(EnvironmentFault, match=r"locked.* must be writable, however: Permission denied"):
        checkpoint.save(tmp_path / "locked", 1, state(1))
