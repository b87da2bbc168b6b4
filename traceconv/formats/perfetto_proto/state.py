"""What the packets of a trace share."""

from __future__ import annotations

from traceconv.formats.perfetto_proto.clocks import Clocks
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.sequences import Sequences, Texts
from traceconv.formats.perfetto_proto.tracks import Descriptors


class TraceState:
    """Descriptors, clocks and sequences of a trace, and the counts of its losses."""

    def __init__(self) -> None:
        self.losses = Losses()
        self.texts = Texts(self.losses)
        self.clocks = Clocks()
        self.tracks = Descriptors(self.texts)
        self.sequences = Sequences(self.clocks)
