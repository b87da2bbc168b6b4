"""Records of rocprofv3's JSON, with the fields that are used."""

from __future__ import annotations

import msgspec
from msgspec import Raw


class Handle(msgspec.Struct, gc=False):
    """A number that ROCm wraps in an object."""

    handle: int = 0


class Correlation(msgspec.Struct, gc=False):
    """Links a call to the work that it launched."""

    internal: int = 0


class Dispatch(msgspec.Struct, gc=False):
    """A launch of a kernel."""

    agent_id: Handle | None = None
    queue_id: Handle | None = None
    kernel_id: int = 0
    dispatch_id: int = 0


class DispatchData(msgspec.Struct, gc=False):
    """A launch with its times, in a record of counters."""

    correlation_id: Correlation | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    dispatch_info: Dispatch | None = None


class CounterValue(msgspec.Struct, gc=False):
    """A counter's value for one part of the device."""

    counter_id: Handle | None = None
    value: Raw = Raw(b"")


class Variant(msgspec.Struct, gc=False):
    """A record that some versions of rocprofv3 wrap."""

    data: Record | None = None


class Record(msgspec.Struct, gc=False):
    """A record of any kind; missing fields are None. `timestamp`: of an instant; `pid`: of a driver's record."""

    kind: int | None = None
    operation: int | None = None
    thread_id: int | None = None
    pid: int | None = None
    correlation_id: Correlation | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    timestamp: int | None = None
    dispatch_info: Dispatch | None = None
    agent_id: Handle | None = None
    queue_id: Handle | None = None
    src_agent_id: Handle | None = None
    dst_agent_id: Handle | None = None
    dispatch_data: DispatchData | None = None
    records: list[CounterValue] | None = None
    record: Variant | None = None


class Agent(msgspec.Struct, gc=False):
    """A CPU (type 1) or a GPU (type 2)."""

    id: Handle
    type: int = 0
    logical_node_type_id: int = -1
    name: str = ""
    product_name: str = ""


class KernelSymbol(msgspec.Struct, gc=False):
    """The names of a kernel."""

    kernel_id: int
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    truncated_kernel_name: str = ""


class CounterSymbol(msgspec.Struct, gc=False):
    """The name of a counter."""

    id: Handle
    name: str = ""
