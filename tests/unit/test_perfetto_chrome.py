"""Chrome's traces in Perfetto's format end in a packet of metadata, which is kept in the run's options."""

from __future__ import annotations

import json
from pathlib import Path

import perfetto_builder as pb
import pytest
from ingest_checks import taken
from stores import query

from traceconv.pipeline.inspect import inspect_trace

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
    more = bundle((2, pb.message((1, "more"), (5, '{"a":1}'))))
    run, store = taken(EVENTS + bundle(*metadata) + more, tmp_path, "chrome.pftrace")
    assert not run.log
    assert run.accounts["chrome's metadata"].used == 2
    [(options,)] = query(store, "SELECT options FROM run")
    assert json.loads(options)["chrome"] == {
        "os-name": "Linux",
        "num-cpus": 2,
        "tz": -60,
        "quiet": True,
        "nothing": None,
        "more": '{"a":1}',
    }


@pytest.mark.parametrize(("discarded", "codes"), [(0, []), (2, ["missing_records"])])
def test_what_buffers_discarded_is_missing(discarded: int, codes: list[str], tmp_path: Path) -> None:
    early = pb.packet((35, pb.message((1, pb.message((18, 99))))))
    last = pb.packet((35, pb.message(*((1, pb.message((2, 9), (18, count))) for count in (0, discarded)))))
    run, _ = taken(EVENTS + early + last, tmp_path, "full.pftrace")
    assert [entry.code.text for entry in run.log] == codes
    assert [entry.code.text for entry in inspect_trace(tmp_path / "full.pftrace", "perfetto_proto").log] == codes


def test_legacy_events_are_a_loss(tmp_path: Path) -> None:
    for number, broken in enumerate((bundle((1, pb.message((1, "a")))), bundle((2, b"\x0a\x7f")), bundle((4, "f")))):
        run, _ = taken(EVENTS + broken, tmp_path, f"{number}.pftrace")
        assert [(entry.code.text, entry.event_count) for entry in run.log] == [("unknown_record", 1)]
