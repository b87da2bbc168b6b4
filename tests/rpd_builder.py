"""Databases as rpd_tracer writes them: the tables of each version of the schema, and a small recording."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

_ID = "id integer NOT NULL PRIMARY KEY AUTOINCREMENT"
_TIMES = '"start" integer NOT NULL, "end" integer NOT NULL'
_SIZES = ", ".join(f"{what}{axis} integer NOT NULL" for what in ("grid", "workgroup") for axis in "XYZ")
_KERNEL = f"{_SIZES}, groupSegmentSize integer NOT NULL, privateSegmentSize integer NOT NULL"
_FENCES = "kernelArgAddress varchar(18), aquireFence varchar(8), releaseFence varchar(8), codeObject_id integer"
_COPY = "size integer NOT NULL, width integer, height integer, kind integer, dst varchar(18), src varchar(18), "
_COPY += "dstDevice integer, srcDevice integer, sync bool, pinned bool"
_OP = f"{_ID}, gpuId integer NOT NULL, queueId integer NOT NULL, sequenceId integer NOT NULL, "
_NAMES = "description_id integer NOT NULL, opType_id integer NOT NULL"
_API = f"{_ID}, pid integer NOT NULL, tid integer NOT NULL, {_TIMES}, apiName_id integer NOT NULL, "
_MONITOR = f"{_ID}, deviceType varchar(16), deviceId integer, monitorType varchar(16), {_TIMES}, value varchar(255)"
_ALL = {
    "metadata": f"{_ID}, tag varchar(4096) NOT NULL, value varchar(4096) NOT NULL",
    "string": f"{_ID}, string varchar(4096) NOT NULL",
    "api_ops": f"{_ID}, api_id integer NOT NULL, op_id integer NOT NULL",
}
#: Version → its tables. Version 3 has keys that aren't the rowid.
_TABLES = {
    1: {
        **_ALL,
        "op": f"{_OP}completionSignal varchar(18) NOT NULL, {_TIMES}, {_NAMES}",
        "api": f"{_API}args_id integer NOT NULL",
        "kernelop": f"op_ptr_id integer NOT NULL PRIMARY KEY, {_KERNEL}, {_FENCES}, kernelName_id integer NOT NULL",
        "copyop": "op_ptr_id integer NOT NULL PRIMARY KEY, size integer, src integer, dst integer, sync bool",
    },
    2: {
        **_ALL,
        "op": f"{_OP}completionSignal varchar(18) NOT NULL, {_TIMES}, {_NAMES}",
        "api": f"{_API}args_id integer NOT NULL",
        "kernelapi": f"api_ptr_id integer NOT NULL PRIMARY KEY, stream varchar(18), {_KERNEL}, {_FENCES}, "
        "kernelName_id integer NOT NULL",
        "copyapi": f"api_ptr_id integer NOT NULL PRIMARY KEY, stream varchar(18), {_COPY}",
        "monitor": _MONITOR,
    },
    3: {
        **_ALL,
        "ustring": f"{_ID}, string varchar(4096) NOT NULL",
        "op": f"{_OP}{_TIMES}, {_NAMES}",
        "api": f"{_API}category_id bigint NOT NULL, domain_id bigint NOT NULL, args_id bigint NOT NULL",
        "kernelapi": f"api_ptr_id bigint NOT NULL PRIMARY KEY, stream varchar(18), {_KERNEL}, "
        "kernelName_id bigint NOT NULL",
        "copyapi": f"api_ptr_id bigint NOT NULL PRIMARY KEY, stream varchar(18), {_COPY}",
        "monitor": _MONITOR,
        "stackframe": f"{_ID}, api_ptr_id bigint NOT NULL, depth integer NOT NULL, name_id bigint NOT NULL",
    },
}
_VIEWS = (
    "CREATE VIEW op AS SELECT rocpd_op.id, gpuId, A.string AS description FROM rocpd_op "
    "JOIN rocpd_string A ON A.id = rocpd_op.description_id",
    "CREATE VIEW busy AS SELECT gpuId, sum(end - start) AS GpuTime FROM rocpd_op GROUP BY gpuId",
)


class Rpd:
    """A database that is written."""

    def __init__(self, path: Path, version: int = 3) -> None:
        self.connection = sqlite3.connect(path)
        self.version = version
        self.offset = 0
        self._strings: dict[tuple[str, int, str], int] = {}
        for name, columns in _TABLES[version].items():
            self.connection.execute(f'CREATE TABLE IF NOT EXISTS "rocpd_{name}" ({columns})')
        for view in _VIEWS:
            self.connection.execute(view)
        self.add("metadata", tag="schema_version", value=str(version))
        self.start_session(0)

    def start_session(self, number: int) -> None:
        """Begin with another process: its IDs have an offset."""
        self.offset = number << 32
        self.string("")
        if self.version == 3:
            self.string("", "ustring")

    def add(self, table: str, **values: Any) -> int:
        """Insert a row; returns its ID."""
        names = ", ".join(f'"{name}"' for name in values)
        sql = f"INSERT INTO rocpd_{table} ({names}) VALUES ({', '.join('?' * len(values))})"
        return self.connection.execute(sql, list(values.values())).lastrowid or 0

    def string(self, text: str, table: str = "string") -> int:
        """Return the ID of a text."""
        key = (table, self.offset, text)
        if key not in self._strings:
            number = self.offset + 1 + sum(one[:2] == key[:2] for one in self._strings)
            self._strings[key] = self.add(table, id=number, string=text)
        return self._strings[key]

    def api(
        self, number: int, name: str, start: int, end: int, args: str = "", domain: str = "hip/", **more: Any
    ) -> None:
        """Insert a call; `domain`: with its category, for version 3."""
        values = {"pid": 70, "tid": 71, "start": start, "end": end, "apiName_id": self.string(name), **more}
        if self.version == 3:
            whose, _, category = domain.partition("/")
            values |= {"domain_id": self.string(whose), "category_id": self.string(category)}
        values["args_id"] = self.string(args, "ustring" if self.version == 3 else "string")
        self.add("api", id=self.offset + number, **values)

    def op(self, number: int, kind: str, name: str, start: int, end: int, *calls: int, **more: Any) -> None:
        """Insert an operation, and the calls that launched it."""
        values = {"gpuId": 1, "queueId": 4, "sequenceId": 0, "start": start, "end": end, **more}
        if self.version < 3:
            values["completionSignal"] = ""
        values |= {"description_id": self.string(name), "opType_id": self.string(kind)}
        self.add("op", id=self.offset + number, **values)
        for call in calls:
            self.add("api_ops", api_id=self.offset + call, op_id=self.offset + number)

    def kernel(self, table: str, number: int, name: str, **more: Any) -> None:
        """Insert the sizes of a launch: of a call, or of an operation in version 1."""
        key = "op_ptr_id" if table == "kernelop" else "api_ptr_id"
        sizes = {f"{what}{axis}": place for what in ("grid", "workgroup") for place, axis in enumerate("XYZ", 2)}
        values = {**sizes, "groupSegmentSize": 512, "privateSegmentSize": 0, "kernelName_id": self.string(name)}
        self.add(table, **{key: self.offset + number}, **values, **more)

    def close(self) -> None:
        """Close the file."""
        self.connection.commit()
        self.connection.close()


def recording(path: Path, version: int = 3) -> None:
    """A step with a kernel, a copy, a collective and a graph of two kernels; clocks; and a second process."""
    rpd = Rpd(path, version)
    for session in (0, 1):
        rpd.start_session(session)
        whose: dict[str, Any] = {"pid": 70 + session, "tid": 71 + session}
        at = 10_000 * session
        rpd.api(1, "hipLaunchKernel", at + 100, at + 150, **whose)
        rpd.op(1, "KernelExecution", "gemm", at + 200, at + 700, 1)
        rpd.api(2, "hipMemcpyAsync", at + 160, at + 170, '{"kind":"1",\n"dst":"0x7f"}', **whose)
        rpd.op(2, "CopyHostToDevice", "", at + 210, at + 260, 2)
        rpd.api(3, "hipMalloc", at + 180, at + 190, "ptr=0x7f | size=0x40", **whose)
        rpd.api(4, "hipGraphLaunch", at + 300, at + 310, **whose)
        rpd.op(3, "KernelExecution", "ncclDevKernel_AllReduce", at + 700, at + 900, 4)
        rpd.op(4, "KernelExecution", "relu", at + 900, at + 950, 4)
        rpd.op(5, "Barrier", "", at + 950, at + 960, 9)  # the call is not in the file
        rpd.op(6, "Memcpy", "Fill", at + 960, at + 970)
        if version == 1:
            rpd.kernel("kernelop", 1, "gemm")
            rpd.add("copyop", op_ptr_id=rpd.offset + 2, size=64, src=0, dst=1)
        else:
            rpd.kernel("kernelapi", 1, "gemm", stream="0x0")
            rpd.kernel("kernelapi", 4, "relu", stream="0x0")
            rpd.add("copyapi", api_ptr_id=rpd.offset + 2, stream="0x5", size=64, kind=1)
            rpd.add("copyapi", api_ptr_id=rpd.offset + 3, stream="", size=64)
            for start, end, value in ((100, 300, "1500"), (300, 500, "1320.5")):
                times = {"start": at + start, "end": at + end}
                rpd.add("monitor", deviceType="gpu", deviceId=1, monitorType="sclk", value=value, **times)
        rpd.api(11, "UserMarker", at + 50, at + 990, "step 3", "roctx/range", **whose)
        rpd.api(12, "UserMarker", at + 500, at + 500, "half", "roctx/mark", **whose)
        if version == 3:
            rpd.api(13, "aten::mm", at + 90, at + 160, '{"seq":1,"sizes":[[2,3]]}', "torch/function", **whose)
            rpd.api(14, "OpTable::writeRows", at + 980, at + 985, "count=5", "rpd_tracer/overhead", tid=75)
    rpd.close()
