"""Field numbers of a Perfetto trace, and titles of the packets that are not read.

Source: Perfetto's published protos/perfetto/trace/*.proto.
"""

from __future__ import annotations

from typing import Final

# TracePacket
PROCESS_TREE: Final = 2
CHROME_EVENTS: Final = 5
CLOCK_SNAPSHOT: Final = 6
TIMESTAMP: Final = 8
PROCESS_STATS: Final = 9
SEQUENCE: Final = 10
TRACK_EVENT: Final = 11
INTERNED: Final = 12
FLAGS: Final = 13
TRACE_STATS: Final = 35
CLEARED: Final = 41
DROPPED: Final = 42
PROCESS_DESCRIPTOR: Final = 43
THREAD_DESCRIPTOR: Final = 44
PACKED: Final = 50
GPU_COUNTERS: Final = 52
GPU_STAGE: Final = 53
CLOCK_ID: Final = 58
DEFAULTS: Final = 59
TRACK_DESCRIPTOR: Final = 60
MODULE_SYMBOLS: Final = 61
GPU_LOG: Final = 63
VULKAN_CALL: Final = 65
SMAPS: Final = 68
GPU_MEMORY: Final = 71
EXTENSIONS: Final = 72
MEMORY_SNAPSHOT: Final = 73
TRANSLATIONS: Final = 82
FIRST_ON_SEQUENCE: Final = 87
MACHINE: Final = 98
REMOTE_SYNC: Final = 107
GPU_INFO: Final = 128
GPU_FREQUENCY: Final = 129
PACKED_ZSTD: Final = 133
#: In the range for extensions (1000 to 1999): packets of our own exports; `own_export.py` has their fields.
OWN: Final = 1109

#: Packets of GPU producers with events (gpu.py).
GPU_PACKETS = (GPU_COUNTERS, GPU_STAGE, GPU_LOG, VULKAN_CALL, GPU_MEMORY, GPU_FREQUENCY)
#: Packets with events that are not track events: those, and those about the memory of processes (memory_packets.py).
EVENT_PACKETS = (*GPU_PACKETS, PROCESS_STATS, SMAPS, MEMORY_SNAPSHOT)

FLAG_CLEARED: Final = 1
FLAG_NEEDS_STATE: Final = 2

#: Fields about how, and by which sequence, a packet was written.
BOOKKEEPING = frozenset((3, TIMESTAMP, SEQUENCE, FLAGS, CLEARED, DROPPED, CLOCK_ID, 76, 79, FIRST_ON_SEQUENCE, MACHINE))
#: Packets that are read.
READ = {
    TRACK_EVENT: "track events",
    TRACK_DESCRIPTOR: "track descriptors",
    CLOCK_SNAPSHOT: "clock snapshots",
    REMOTE_SYNC: "clock syncs",
    INTERNED: "interned data",
    DEFAULTS: "packet defaults",
    PROCESS_DESCRIPTOR: "process descriptors",
    THREAD_DESCRIPTOR: "thread descriptors",
    PROCESS_TREE: "process trees",
    EXTENSIONS: "extension descriptors",
    MODULE_SYMBOLS: "module symbols",
    TRANSLATIONS: "translation tables",
    TRACE_STATS: "trace stats",
    GPU_INFO: "gpu info",
    PACKED: "compressed packets",
    PACKED_ZSTD: "compressed packets",
}
#: What a buffer lost: fields of TraceStats.BufferStats.
BUFFER_LOSSES = {"chunks_overwritten": 3, "chunks_discarded": 18, "trace_writer_packet_loss": 19}
#: Packets about the recording, without events.
ABOUT = {
    33: "trace config",
    34: "ftrace stats",
    36: "synchronization markers",
    45: "system info",
    46: "triggers",
    47: "packages lists",
    48: "chrome benchmark metadata",
    51: "chrome metadata",
    64: "deobfuscation mappings",
    67: "cpu info",
    69: "service events",
    83: "android game interventions",
    86: "android system properties",
    89: "trace uuid",
    109: "chrome triggers",
    113: "clone snapshot triggers",
    123: "user list",
    124: "trace provenance",
    126: "trace attributes",
    127: "android aflags",
}
#: Packets of other data sources, which are not read.
OTHER_DATA = {
    1: "ftrace events",
    4: "inode file maps",
    5: "chrome events",
    7: "sys stats",
    37: "profile packets",
    38: "battery counters",
    39: "android log",
    40: "power rails",
    49: "perfetto metatrace",
    54: "streaming profile packets",
    56: "heap graphs",
    57: "graphics frame events",
    62: "vulkan memory events",
    66: "perf samples",
    70: "initial display state",
    74: "streaming allocations",
    75: "streaming frees",
    77: "energy estimations",
    78: "ui states",
    84: "statsd atoms",
    90: "track event ranges of interest",
    91: "entity state residency",
    95: "etw events",
    99: "v8 js code",
    110: "pixel modem events",
    117: "generic kernel task states",
    118: "generic kernel cpu frequencies",
    135: "stack samples",
}

# TrackEvent
DELTA_US: Final = 1
THREAD_DELTA_US: Final = 2
CATEGORY_IIDS: Final = 3
ANNOTATIONS: Final = 4
TASK_EXECUTION: Final = 5
LEGACY: Final = 6
INSTRUCTIONS_DELTA: Final = 8
TYPE: Final = 9
NAME_IID: Final = 10
TRACK_UUID: Final = 11
EXTRA_VALUES: Final = 12
ABSOLUTE_US: Final = 16
THREAD_ABSOLUTE_US: Final = 17
INSTRUCTIONS: Final = 20
LOG_MESSAGE: Final = 21
CATEGORIES: Final = 22
NAME: Final = 23
COUNTER_VALUE: Final = 30
EXTRA_TRACKS: Final = 31
LOCATION: Final = 33
LOCATION_IID: Final = 34
FLOWS_OLD: Final = 36
FLOW_ENDS_OLD: Final = 42
DOUBLE_VALUE: Final = 44
EXTRA_DOUBLE_TRACKS: Final = 45
EXTRA_DOUBLE_VALUES: Final = 46
FLOWS: Final = 47
FLOW_ENDS: Final = 48
CORRELATION_ID: Final = 52
CORRELATION_TEXT: Final = 53
CORRELATION_IID: Final = 54
CALLSTACK_IID: Final = 56
GPU_CORRELATION: Final = 3000
GPU_API: Final = 3001

#: Lists of interned texts that are read.
TEXT_LISTS = {1: "categories", 2: "names", 3: "annotations", 5: "functions", 18: "source_files", 20: "log",
              29: "values", 43: "correlations", 1001: "compute_args"}  # fmt: skip
LOCATIONS: Final = 4
FRAMES: Final = 6
CALLSTACKS: Final = 7
BUILD_IDS: Final = 16
MAPPINGS: Final = 19
ADDRESSES: Final = 28
#: Descriptions that packets of GPU producers refer to.
CONTEXTS: Final = 23
GPU_STAGES: Final = 24
COUNTERS: Final = 47
KERNELS: Final = 1000
GPU_LISTS = frozenset((CONTEXTS, GPU_STAGES, COUNTERS, KERNELS))
NATIVE_LISTS = frozenset((FRAMES, CALLSTACKS, BUILD_IDS, MAPPINGS, ADDRESSES))

#: Fields of a TrackEvent that have columns.
PLAIN = frozenset((CATEGORY_IIDS, ANNOTATIONS, TYPE, NAME_IID, TRACK_UUID, CATEGORIES, NAME, COUNTER_VALUE))
