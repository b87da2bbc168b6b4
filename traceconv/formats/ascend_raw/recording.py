"""What the descriptions of a recording say: chips, clocks, processes and counters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.formats.ascend_raw.clocks import (
    JOB_CLOCK,
    Clock,
    device_clock,
    device_info,
    epoch_offset,
    host_clock,
    megahertz,
    number,
    read_entries,
    read_json,
    wall_ns,
)
from traceconv.formats.ascend_raw.folder import RawFolder, Side
from traceconv.formats.ascend_raw.names import STARS_CHIPS, WIDE_CHIPS
from traceconv.formats.ascend_raw.records import COUNTERS
from traceconv.formats.common.file_reader import SOURCE_ID

#: Of IDs of processes, ranks and chips.
_MOST = 2**31 - 1
_EVENT = re.compile(r"0x[0-9a-fA-F]{1,4}")


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What info.json and sample.json say of a device."""

    info: dict[str, Any]
    sample: dict[str, Any]

    @property
    def aic_mhz(self) -> Fraction | None:
        return megahertz(self.info.get("aic_frequency"))

    def cores(self, core: str) -> int | None:
        """Return the number of cores: `aic`, cubes, or `aiv`, vectors."""
        return number(self.info.get("ai_core_num" if core == "aic" else "aiv_num"))

    def events(self, core: str) -> tuple[list[int], str]:
        """Return the events of the counters of a core, in their order, and their group."""
        prefix = "ai_core" if core == "aic" else "aiv"
        listed, group = self.sample.get(f"{prefix}_profiling_events"), self.sample.get(f"{prefix}_metrics")
        events = [int(one, 16) for one in _EVENT.findall(listed)[:COUNTERS]] if isinstance(listed, str) else []
        return events, group if isinstance(group, str) else ""


class Recording:
    """The descriptions of a folder.

    chip            `platform_version`; -1 if it is unknown
    host_clock, framework_clock  of the host's records, and of those of torch_npu
    device_clocks   by device; None where ticks can't be converted
    infos           of the devices
    about, hosts, devices, ranks, sessions  rows of the tables that describe a database
    """

    def __init__(self, folder: RawFolder, log: ImportLog) -> None:
        self.folder = folder
        host = folder.host.descriptions
        info = read_json(host.get("info.json"))
        infos = {side.device or 0: read_json(side.descriptions.get("info.json")) for side in folder.devices}
        starts = [host.get("start_info"), *(side.descriptions.get("start_info") for side in folder.devices)]
        offset = next((found for one in starts if (found := epoch_offset(one)) is not None), None)
        if offset is None and not folder.is_job:
            message = "start_info is missing or damaged: the date of the recording is unknown"
            log.add(Code.PROFILER_WARNING, message, source_id=SOURCE_ID)
        torch = read_json(folder.about)
        every = [torch, info, *infos.values()]
        self.chip = next(
            (chip for one in every if (chip := number(one.get("platform_version"), _MOST)) is not None), -1
        )
        self.pid = next((pid for one in every if (pid := number(one.get("pid"), _MOST)) is not None), 0)
        host_start = read_entries(host.get("host_start.log"))
        if not info:  # only devices were recorded
            info = next((one for one in infos.values() if "CPU" in one), {})
        self.host_clock = host_clock(info, host_start, offset or 0)
        # torch_npu says whether it counts ticks of the host.
        start_of_torch = torch.get("start_info")
        in_ticks = start_of_torch.get("syscnt_enable") if isinstance(start_of_torch, dict) else None
        self.framework_clock = self.host_clock if in_ticks is not False else host_clock({}, {}, offset or 0)
        self.device_clocks: dict[int | None, Clock | None] = {}
        self.infos: dict[int, DeviceInfo] = {}
        for side in folder.devices:
            self._add_device(side, infos[side.device or 0], info, host_start, offset or 0)
        start, end = read_json(host.get("start_info")), read_json(host.get("end_info"))
        times = wall_ns(start, "collectionTimeBegin"), wall_ns(end, "collectionTimeEnd")
        self.sessions = [] if None in times else [times]
        self.about = [
            (key, str(info[key])) for key in ("version", "platform_version", "drvVersion", "pid_name") if key in info
        ]
        hostname = info.get("hostname")
        self.hosts = [(str(info.get("hostUid", "")), hostname)] if isinstance(hostname, str) and hostname else []
        self.devices = [(device, f"platform {self.chip}") for device in self.infos] if self.chip >= 0 else []
        rank = next(
            (found for one in every if (found := number(one.get("rank_id"), _MOST)) is not None and found >= 0), None
        )
        self.ranks = [(rank, device) for device in list(self.infos)[:1]] if rank is not None else []

    @property
    def queue_types(self) -> str:
        """The table of names of entries of queues."""
        if self.chip in WIDE_CHIPS:
            return "wide_stars"
        return "stars" if self.chip in STARS_CHIPS or (self.chip < 0 and not self.folder.is_job) else "hwts"

    def _add_device(
        self, side: Side, info: dict[str, Any], host_info: dict[str, Any], host_start: dict[str, int], epoch_ns: int
    ) -> None:
        device = side.device or 0
        # A device's own start of the host's clock belongs to that of its clock.
        own = read_entries(side.descriptions.get("host_start.log"))
        dev_start = read_entries(side.descriptions.get("dev_start.log"))
        clock = device_clock(info, host_info or info, own or host_start, dev_start, epoch_ns)
        self.device_clocks[side.device] = JOB_CLOCK if self.folder.is_job else clock
        self.infos[device] = DeviceInfo(device_info(info), read_json(side.descriptions.get("sample.json")))
