"""Names that a trace has apart from its events: of hashes, of tracks, and of native functions.

Source: Perfetto's published protos/perfetto/trace/translation/translation_table.proto, profiling/profile_common.proto.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.sequences import Sequence, Texts

#: Table and map in it → message, field of the hash, and field of the name.
_HASHES = {
    (1, 1): ("ChromeHistogramSample", "name_hash", "name"),
    (2, 1): ("ChromeUserEvent", "action_hash", "action"),
    (3, 1): ("ChromeHashedPerformanceMark", "site_hash", "site"),
    (3, 2): ("ChromeHashedPerformanceMark", "mark_hash", "mark"),
}
_TRACK_NAMES = 5
#: A function that the compiler generated for a method of a mojo interface.
_MOJO_METHOD = re.compile(r"(.*)::(\w+)_Sym::IPCStableHash.*")


@dataclass(slots=True)
class Translations:
    """Translations of the complete trace.

    hashes   message and field → the field for the name, and names by hash
    tracks   names of tracks of processes
    symbols  build ID and address in the module → function
    """

    texts: Texts
    hashes: dict[tuple[str, str], tuple[str, dict[int, str]]] = field(default_factory=dict)
    tracks: dict[str, str] = field(default_factory=dict)
    symbols: dict[tuple[bytes, int], str] = field(default_factory=dict)
    #: Tables that are not applied.
    unused: int = 0

    def take_table(self, data: bytes, start: int, end: int) -> None:
        """Add a TranslationTable. Raises WireError."""
        table = Message(data, start, end)
        for (number, inner), (message, hash_field, name_field) in _HASHES.items():
            names = self.hashes.setdefault((message, hash_field), (name_field, {}))[1]
            for at, stop in table.spans_left(number):
                for entry in Message(data, at, stop).messages(inner):
                    names[entry.number(1) or 0] = self.texts.text(entry.text(2) or b"")
        for listed in table.messages(_TRACK_NAMES):
            for entry in listed.messages(1):
                self.tracks[self.texts.text(entry.text(1) or b"")] = self.texts.text(entry.text(2) or b"")
        self.unused += bool(table.numbers_left - {number for number, _ in _HASHES})

    def take_symbols(self, data: bytes, start: int, end: int) -> None:
        """Add ModuleSymbols. Raises WireError."""
        module = Message(data, start, end)
        build_id = module.text(2) or b""
        for one in module.messages(3):
            address = one.number(1) or 0
            for line in one.messages(2)[:1]:
                self.symbols[build_id, address] = self.texts.text(line.text(1) or b"")

    def mojo_method(self, sequence: Sequence, iid: int) -> tuple[str, str] | None:
        """The interface and method of a mojo message, by the number of an unsymbolized location."""
        mapping, address = sequence.addresses.get(iid, (0, 0))
        build_id = sequence.build_ids.get(sequence.mappings.get(mapping, 0), b"")
        symbol = self.symbols.get((build_id, address))
        if symbol is None:
            return None
        method = _MOJO_METHOD.fullmatch(symbol)
        return (method[1].replace("::", "."), f"{method[1]}::{method[2]}") if method else (symbol, symbol)
