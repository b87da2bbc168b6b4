"""The report links: rows worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from stores import query as ask

MakeStore = Callable[..., Path]

#: Name, link, transport, peer, bytes, ns, step
PARTS = [
    ("Memcpy", "HCCS", "SDMA", 1, 3000, 1000, 1),
    ("Reduce_Inline", "HCCS", "SDMA", 1, 1000, 1000, 2),
    ("Memcpy", "SIO", "SDMA", 1, 500, 100, 2),
    ("Notify_Record", "INVALID_TYPE", "SDMA", 1, 0, 5, 2),
    ("Notify_Wait", "INVALID_TYPE", "LOCAL", 1, 0, 70, 1),
    ("Notify_Wait", "INVALID_TYPE", "LOCAL", 1, 0, 30, 2),
    ("RDMASend", "ROCE", "RDMA", 8, 4000, 7, 1),
    ("Notify_Wait", "INVALID_TYPE", "LOCAL", 8, 0, 900, 1),
    ("Notify_Wait", "INVALID_TYPE", "LOCAL", 3, 0, 20, 1),
    ("Memcpy", "ON_CHIP", "SDMA", 4294967295, 800, 4, 2),
]


def test_transfers_and_waits_per_pair_of_ranks(make_store: MakeStore) -> None:
    parts = [
        {"id": number, "track_id": 1, "kind": "summary", "name": name, "start_ns": number, "dur_ns": dur,
         "step_id": step, "args": json.dumps({"src rank": 0, "dst rank": peer, "link type": link,
                                              "transport type": by, "size(Byte)": size})}
        for number, (name, link, by, peer, size, dur, step) in enumerate(PARTS, 1)
    ]  # fmt: skip
    other = {"id": 99, "track_id": 1, "kind": "summary", "name": "x", "start_ns": 1, "dur_ns": 1}
    store = make_store(track=[{"track_id": 1, "kind": "thread", "name": "Plane 0"}], range=[*parts, other])
    columns = (
        "rank, peer_rank, link_type, count, transfer_bytes, transfer_ns, bytes_per_s, wait_count, wait_ns, max_wait_ns"
    )
    assert ask(store, f"SELECT {columns} FROM links") == [
        (0, 1, "HCCS", 2, 4000, 2000, 2_000_000_000, 2, 100, 70),
        (0, 1, "SIO", 1, 500, 100, 5_000_000_000, 0, 0, None),
        (0, 0, "ON_CHIP", 1, 800, 4, 200_000_000_000, 0, 0, None),
        (0, 3, None, 0, 0, None, None, 1, 20, 20),
        (0, 8, "ROCE", 1, 4000, None, None, 1, 900, 900),
    ]
    assert ask(store, f"SELECT {columns} FROM links(step := 2)") == [
        (0, 1, "HCCS", 1, 1000, 1000, 1_000_000_000, 1, 30, 30),
        (0, 1, "SIO", 1, 500, 100, 5_000_000_000, 0, 0, None),
        (0, 0, "ON_CHIP", 1, 800, 4, 200_000_000_000, 0, 0, None),
    ]
