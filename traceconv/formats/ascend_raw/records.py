"""The layouts of records, as their writers declare them. All numbers are little-endian; times are described there too.

Of each stream: the size of its records, and a number that all of them contain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Layout(NamedTuple):
    """Records of a stream.

    dtype  of a record, whose size is that of the dtype
    check  the field with the number that all records contain; None if there is none
    magic  these numbers
    """

    dtype: np.dtype[np.void]
    check: str | None
    magic: tuple[int, ...]


HOST_MAGIC, DEVICE_MAGIC = 0x5A5A, 0x6BD3
#: A context, a model or a stream that is none.
NONE = 2**32 - 1
#: The end of an api_event that is half an interval.
HALF = 2**64 - 1


def _layout(fields: str, check: str | None, *magic: int) -> Layout:
    """Return the layout of `name:type`, where `:Vn` skips n bytes."""
    names, formats, offsets, at = [], [], [], 0
    for one in fields.split():
        name, _, kind = one.partition(":")
        size = np.dtype(kind.replace("*", "V")) if kind.startswith("V") else _type(kind)
        if name:
            names.append(name)
            formats.append(size)
            offsets.append(at)
        at += size.itemsize
    return Layout(np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": at}), check, magic)


def _type(kind: str) -> np.dtype[np.void]:
    one, _, count = kind.partition("*")
    return np.dtype((f"<{one}", (int(count),))) if count else np.dtype(f"<{one}" if one[0] != "V" else one)


_HEAD = "magic:u2 level:u2 type:u4 thread:u4 length:u4 time:u8 "


def _host(fields: str) -> Layout:
    return _layout(_HEAD + fields, "magic", HOST_MAGIC)


def _device(fields: str) -> Layout:
    return _layout(fields, "magic", DEVICE_MAGIC)


API_EVENT = _layout("magic:u2 level:u2 type:u4 thread:u4 request:u4 begin:u8 end:u8 item:u8", "magic", HOST_MAGIC)
NODE_BASIC = _host("op:u8 task_type:u4 op_type:u8 blocks:u4 flag:u4 :V12")
NODE_ATTR = _host("op:u8 kind:u4 attr:u8 :V20")
#: `launch`: blocks, bytes of args and, in 3 bits, blocks of the other core per block; of SIMT kernels, the extents of
#: the grid and of a block.
TASK_TRACK = _host("device:u2 stream:u2 task:u4 task_type:u8 kernel:u8 launch:u2*8")
TASK_TRACK_V2 = _host("device:u2 :V2 stream:u4 task:u4 task_type:u4 kernel:u8 launch:u2*8")
MEMCPY_INFO = _host("bytes:u8 max_bytes:u8 direction:u2 :V22")
HCCL_OP_INFO = _host("bits:u1 data_type:u1 alg:u8 count:u8 group:u8 :V14")
EXPAND_STREAMS = _host("expand:u1 :V39")
TENSOR_INFO = _host("op:u8 count:u4 tensors:V220")
CONTEXT_IDS = _host("op:u8 count:u4 ids:u4*55")
HCCL_INFO = _host(
    "item:u8 tag:u8 group:u8 local_rank:u4 remote_rank:u4 rank_size:u4 workflow:u4 plane:u4 context:u4 notify:u8 "
    "stage:u4 role:u4 estimate:f8 src:u8 dst:u8 bytes:u8 op_type:u4 data_type:u4 link:u4 transport:u4 rdma:u4 :V116"
)
TASK_MEMORY = _host("addr:u8 bytes:i8 op:u8 allocated:u8 reserved:u8 device:u4 device_type:u4 :V184")
#: A range or a point of the program (mstx); a long message has several records, by `segment`.
TX = _host(
    "info_type:u2 segment:u2 :V8 pid:u4 tid:u4 category:u4 kind:u4 :V12 start:u8 end:u8 mark:u8 domain:u8 :V4 "
    "message:S156"
)
#: A tensor of TENSOR_INFO. `kind`: 0 input, 1 output; a 0 ends the shape.
TENSOR = _layout("kind:u4 format:u4 dtype:u4 shape:u4*8", None).dtype
TENSORS_PER_RECORD = 5

STARS = _device("head:u2 magic:u2 stream:u2 task:u2 ticks:u8 sub_type:u2 sub_task:u2 :V44")
STARS_WIDE = _device("head:u2 magic:u2 task:u4 ticks:u8 :V16")
FFTS_PROFILE = _device(
    "head:u2 magic:u2 stream:u2 task:u2 :V8 sub_type:u2 sub_task:u2 core:u1 bits:u1 :V10 cycles:u8 :V8 pmu:u8*8 "
    "start:u8 end:u8"
)
FFTS_PROFILE_WIDE = _device(
    "head:u2 magic:u2 task:u4 cycles:u8 sub_type:u1 bits:u1 :V2 core:u1 :V1 :V2 :V4 :V4 pmu:u8*10 start:u8 end:u8"
)
TS_TRACK = _layout("mode:u1 kind:u1 size:u2 :V4 ticks:u8 index:u8 model:u8 words:u2*4", "kind", 3, 10, 11, 12, 14, 15)
HWTS = _device("head:u1 task_type:u1 magic:u2 block:u2 task:u2 ticks:u8 stream:u4 :V44")
AICORE = _device("head:u1 kind:u1 magic:u2 :V2 task:u2 :V8 cycles:u8 :V8 pmu:u8*8 stream:u4 :V28")
#: A mark of a step of a job.
TRAINING_TRACE = _layout("tag:u8 task:u2 stream:u2 ticks:u8", None)
#: The most hardware counters of a record.
COUNTERS = 10
FREQUENCIES = _layout("count:u4 kind:u4 samples:V880", None)
FREQUENCY = _layout("ticks:u8 value:u4 :V4", None).dtype
NPU_MODULE_MEMORY = _layout("module:u4 :V4 ticks:u8 bytes:u8", None)
