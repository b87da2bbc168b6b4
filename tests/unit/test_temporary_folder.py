from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

import pytest

from traceconv.base.temporary_folder import temporary_folder


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_an_interrupt_after_the_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Path.mkdir

    def interrupted(folder: Path, mode: int) -> None:
        make(folder, mode)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), temporary_folder():
        pytest.fail("the block is not entered")
    assert not list(tmp_path.iterdir())


def test_the_folder_of_another_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "name")
    (tmp_path / "traceconv-name").mkdir()
    with pytest.raises(FileExistsError), temporary_folder():
        pytest.fail("the block is not entered")
    assert list(tmp_path.iterdir()) == [tmp_path / "traceconv-name"]
