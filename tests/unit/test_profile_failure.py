"""A disk that fails during a profile: the program continues, nothing blocks, and the end of the profile reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceconv
from traceconv.base.errors import OutputError
from traceconv.runtime.live import PROCESS
from traceconv.wire.log_writer import CaptureWriter


def test_a_disk_that_fills_up_stops_the_log_and_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with traceconv.Session("mini_resnet", compute=False) as session:
        inputs = session.random_inputs()
        full = traceconv.profile(tmp_path / "full")
        full.start()
        with traceconv.profile(tmp_path / "good") as good:
            session.run(inputs)
            refuse_in(tmp_path / "full", monkeypatch)
            PROCESS.deliver()
            assert [capture.folder.parent.name for capture in PROCESS.recording] == ["good"]
            session.run(inputs)
        with pytest.raises(OutputError, match="no space"):
            full.stop()
        assert not PROCESS.captures
        assert not PROCESS.store.on
        session.run(inputs)
        assert PROCESS.store.pending == 0
    assert len(list(good.report("inference"))) == 2
    [folder] = (tmp_path / "full").iterdir()
    assert not (folder / "manifest.json").exists()


def refuse_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = CaptureWriter.flush

    def refuse(writer: CaptureWriter) -> None:
        if folder in writer.folder.parents:
            raise OutputError("can't write: no space left on the device")
        flush(writer)

    monkeypatch.setattr(CaptureWriter, "flush", refuse)
