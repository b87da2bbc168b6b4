"""Keys of events other than the known fields: by column and by event."""

from __future__ import annotations

from msgspec import Raw

from traceconv.events.trace import EventColumns, Extras, coded, join_columns

SAID = [None, {"sf": Raw(b"7"), "cname": Raw(b'"good"')}, None, {"sf": Raw(b"8")}]


def plain(members: dict[str, Raw] | None) -> dict[str, bytes] | None:
    return None if members is None else {key: bytes(value) for key, value in members.items()}


def test_values_are_returned_unchanged() -> None:
    extras = Extras.of_events(SAID)
    assert extras is not None
    assert [plain(one) for one in extras] == [plain(one) for one in SAID]
    assert extras.has_any().tolist() == [False, True, False, True]
    assert (extras.of("sf"), extras.of("cname"), extras.of("id2")) == ({1: b"7", 3: b"8"}, {1: b'"good"'}, {})


def test_without_extra_keys_the_result_is_none() -> None:
    assert Extras.of_events([None, {}]) is None


def test_batches_are_joined() -> None:
    def columns(members: list[dict[str, Raw] | None]) -> EventColumns:
        return EventColumns(len(members), {"ph": coded(["X"] * len(members))}, {}, Extras.of_events(members))

    joined = join_columns([columns([None]), columns(SAID), columns([{"bind_id": Raw(b"1"), "sf": Raw(b"9")}])])
    assert joined.extra is not None
    found = [plain(one) for one in joined.extra]
    assert found == [None, *(plain(one) for one in SAID), {"bind_id": b"1", "sf": b"9"}]
    assert join_columns([columns([None]), columns([None])]).extra is None
