"""Messages of the Python API speak of its parameters, not of the command line's options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceconv
from traceconv.cli.app import run


def _npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "x.npz", **arrays)
    return folder / "x.npz"


def _npy(folder: Path) -> Path:
    np.save(folder / "x.npy", np.zeros(3))
    return folder / "x.npy"


def _file(folder: Path, content: bytes) -> Path:
    (folder / "file").write_bytes(content)
    return folder / "file"


_IMAGES = np.zeros((4, 3, 64, 64), np.float32)
_TRAIN = traceconv.TrainOptions()
WRONG: dict[str, Callable[[Path], object]] = {
    "batch": lambda folder: traceconv.record("mini_resnet", folder, batch=0),
    "batch of another type": lambda _: traceconv.Session("mini_resnet", batch="x"),  # type: ignore[arg-type]
    "streams": lambda _: traceconv.get_profile("mini_resnet", streams=65),
    "iterations": lambda folder: traceconv.record("mini_resnet", folder, iterations=-1),
    "input": lambda folder: traceconv.record("mini_resnet", folder, input_path=_npz(folder, wrong=_IMAGES)),
    "input in one array": lambda folder: traceconv.record("mini_resnet", folder, input_path=_npy(folder)),
    "no target": lambda folder: traceconv.record(
        "mini_resnet", folder, input_path=_npz(folder, input=_IMAGES), train=_TRAIN
    ),
    "large batch": lambda folder: traceconv.record(
        "mini_resnet", folder, input_path=_npz(folder, input=_IMAGES, target=np.arange(4)), batch=8, train=_TRAIN
    ),
    "types of samples": lambda folder: traceconv.record(
        "mini_resnet", folder, input_path=_npz(folder, input=_IMAGES, target=np.zeros(4)), batch=2, train=_TRAIN
    ),
    "learning rate": lambda folder: traceconv.record(
        "mini_resnet", folder, train=traceconv.TrainOptions(traceconv.Optimizer(lr=-1.0))
    ),
    "no store": lambda folder: traceconv.open_store(folder / "none.duckdb"),
    "empty store": lambda folder: traceconv.open_store(_file(folder, b"")),
    "trace as a store": lambda folder: traceconv.open_store(_file(folder, b"x" * 3000)),
    "folder as a store": lambda folder: traceconv.open_store(folder),
    "no trace": lambda folder: traceconv.ingest(_file(folder, b"no trace"), db=folder / "t.duckdb"),
    "unknown reader": lambda folder: traceconv.ingest(_file(folder, b"[]"), db=folder / "t.duckdb", reader="x"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_no_message_of_the_api_names_an_option(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(traceconv.TraceconvError) as raised:
        WRONG[wrong](tmp_path)
    assert "--" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["record", "mini_resnet", "-o", "raw", "--batch", "0"], "--batch 0"),
        (["report", "op-statistic", "--db", "none.duckdb"], "--db FILE"),
        (["model", "mini_resnet", "--streams", "65"], "--streams 65"),
    ],
)
def test_messages_of_the_command_line_name_options(
    words: list[str], flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) != 0
    assert flag in capfd.readouterr().err
