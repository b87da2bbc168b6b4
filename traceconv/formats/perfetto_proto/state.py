"""What the packets of a trace share."""

from __future__ import annotations

from traceconv.formats.perfetto_proto.clocks import Clocks
from traceconv.formats.perfetto_proto.gpu import GpuPackets
from traceconv.formats.perfetto_proto.losses import Losses
from traceconv.formats.perfetto_proto.sequences import Sequences, Texts
from traceconv.formats.perfetto_proto.tracks import Descriptors
from traceconv.formats.perfetto_proto.translations import Translations
from traceconv.formats.perfetto_proto.typed_fields import known_schema


class TraceState:
    """Descriptors, clocks, sequences and typed fields of a trace, and the counts of its losses."""

    def __init__(self) -> None:
        self.losses = Losses()
        self.texts = Texts(self.losses)
        self.clocks = Clocks()
        self.translations = Translations(self.texts)
        self.tracks = Descriptors(self.texts, self.translations.tracks)
        self.sequences = Sequences(self.clocks)
        self.gpu = GpuPackets(self.tracks, self.losses.counts)
        #: Whether the trace has the header of our own exports.
        self.is_own = False
        self.schema = known_schema()
