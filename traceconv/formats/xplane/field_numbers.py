"""Numbers of the fields of an XSpace. Source: xplane.proto of OpenXLA (tsl/profiler/protobuf)."""

from __future__ import annotations

# XSpace
ERRORS, WARNINGS, HOSTNAMES = 2, 3, 4
# XPlane
PLANE_ID, PLANE_NAME, EVENT_METADATA, STAT_METADATA, PLANE_STATS = 1, 2, 4, 5, 6
# XLine
LINE_ID, LINE_NAME, LINE_START, EVENTS, DISPLAY_ID, DISPLAY_NAME = 1, 2, 3, 4, 10, 11
# An entry of a map
KEY, ENTRY = 1, 2
# XEventMetadata, XStatMetadata
NAME, SHOWN_NAME, METADATA_STATS = 2, 4, 5
# XEvent
METADATA_ID, OFFSET, DURATION, STATS, OCCURRENCES = 1, 2, 3, 4, 5
# XStat
STAT_ID, DOUBLE, UNSIGNED, SIGNED, TEXT, BYTES, REFERENCE, COMPRESSED = range(1, 9)
