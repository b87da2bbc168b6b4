"""Chrome's traces in Perfetto's format end in a packet of metadata, which is kept in the run's options."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import perfetto_builder as pb

from traceconv.pipeline.ingest import ingest

EVENTS = pb.process(1, 7, "Browser") + pb.begin(1000, 1, "a") + pb.end(2000, 1)


def bundle(*fields: tuple[int, object]) -> bytes:
    return pb.packet((10, 1), (5, pb.message(*fields)))


def test_metadata_is_kept_in_the_options(tmp_path: Path) -> None:
    metadata = [
        (2, pb.message((1, "os-name"), (2, "Linux"))),
        (2, pb.message((1, "num-cpus"), (4, 2))),
        (2, pb.message((1, "tz"), (4, -60))),
        (2, pb.message((1, "quiet"), (3, True))),
        (2, pb.message((1, "nothing"))),
    ]
    path = tmp_path / "chrome.pftrace"
    path.write_bytes(EVENTS + bundle(*metadata) + bundle((2, pb.message((1, "more"), (5, '{"a":1}')))))
    [run] = ingest([path], tmp_path / "trace.duckdb")
    assert not run.log
    assert run.accounts["chrome's metadata"].used == 2
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        [(options,)] = store.execute("SELECT options FROM run").fetchall()
    assert json.loads(options)["chrome"] == {
        "os-name": "Linux",
        "num-cpus": 2,
        "tz": -60,
        "quiet": True,
        "nothing": None,
        "more": '{"a":1}',
    }


def test_legacy_events_are_a_loss(tmp_path: Path) -> None:
    for number, broken in enumerate((bundle((1, pb.message((1, "a")))), bundle((2, b"\x0a\x7f")), bundle((4, "f")))):
        path = tmp_path / f"{number}.pftrace"
        path.write_bytes(EVENTS + broken)
        [run] = ingest([path], tmp_path / "trace.duckdb")
        assert [(entry.code.text, entry.event_count) for entry in run.log] == [("unknown_record", 1)]
        assert all(account.balanced for account in run.accounts.by_record.values())
