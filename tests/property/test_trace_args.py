"""Keys next to the args of an event are added to its args, whatever these contain."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from traceconv.normalize.trace.args import EXTRA_KEY, Members, members_of, with_members

ARGS = st.sampled_from([None, "{}", "{ }", '{"a":1}', '{"a":"}"} ', '{"a": {"b": 1 } \n}\t', '{"é":"\\\\"}'])
VALUES = st.sampled_from(["1", '"x"', "[{}]"])
KEYS = st.one_of(st.none(), st.dictionaries(st.sampled_from(["id", 'q"uote', "é", "cname"]), VALUES, min_size=1))


@given(st.lists(st.tuples(ARGS, KEYS, KEYS, st.booleans())))
def test_keys_next_to_args(
    events: list[tuple[str | None, dict[str, str] | None, dict[str, str] | None, bool]],
) -> None:
    beside = []
    for added in ([event[1] for event in events], [event[2] for event in events]):
        own = {row: {key: text.encode() for key, text in keys.items()} for row, keys in enumerate(added) if keys}
        beside.append(members_of(list(own), list(own.values())))
    flagged = [row for row, event in enumerate(events) if event[3]]
    beside.append(Members(np.array(flagged, np.intp), pa.array(['"bp":"e"'] * len(flagged), pa.string())))
    column = pa.array([event[0] for event in events], pa.string())
    added = [one for one in beside if len(one.rows)]
    found = with_members(column, added).to_pylist()
    for (args, one, two, flag), text in zip(events, found, strict=True):
        members = {**(one or {}), **(two or {}), **({"bp": '"e"'} if flag else {})}
        if not members:
            assert text == args
            continue
        expected = {key: json.loads(value) for key, value in members.items()}
        assert json.loads(text) == {**json.loads(args or "{}"), EXTRA_KEY: expected}
