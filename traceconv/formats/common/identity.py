"""Rank, host and group of a run, from the recording's metadata and from its path.

Metadata comes first, then the file name, then the folders above it, the nearest first.

PyTorch (Kineto)   distributedInfo.rank; host_name, hostname and job names that were added as metadata;
                   HOST_PID.TIME.pt.trace.json, as tensorboard_trace_handler names it
torch_npu, msprof  rank_id and hostname of profiler_info*.json and info.json*; HOST_PID_TIME_ascend_pt
rocprofv3, rocpd   metadata.node.hostname; rocpd_info_node         nsys   TARGET_INFO_SYSTEM_ENV.Hostname, MPI_RANKS
JAX, TensorFlow    hostnames of an XSpace; plugins/profile/RUN/HOST.xplane.pb, HOST.trace.json.gz
any                rank0, rank_3, worker-2, node-07 in the name of the file or of a folder
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from traceconv.base.errors import UsageError, option, printable, regular_expression
from traceconv.events.keys import value_at
from traceconv.formats.common.files import STDIN

T = TypeVar("T")

#: Folders above a named file that may identify it.
NAMED_FOLDERS = 3
#: Groups that --rank-pattern may have.
PATTERN_GROUPS = ("rank", "host", "group")

_MAX_RANK = 2**31
#: Timestamps in this range are nanoseconds since 1970: from 2001-09-09 to 2096.
EPOCH_RANGE = range(10**18, 4 * 10**18)
#: Ranks within a dimension of a job or a machine are not the rank in the job.
_RANK = re.compile(
    r"(?<![a-z0-9])(?:(?P<kind>[a-z]+)[-_.])?(?P<what>global[-_]?rank|local[-_]?rank|rank|worker)[-_=.]?"
    r"(?P<number>[0-9]{1,10})(?![0-9])",
    re.IGNORECASE,
)
_PART_RANKS = frozenset(("local", "tp", "dp", "pp", "ep", "cp", "mp", "sp", "etp", "edp", "node", "intra", "inter"))
_HOST = re.compile(r"(?:host|node)[-_.]?[0-9]{1,6}|(?:host|hostname|node)=(?P<name>[a-z0-9._-]+)", re.IGNORECASE)
_TORCH_FILE = re.compile(r"(?P<host>.+)_[0-9]{1,10}\.[0-9]{10,20}\.pt\.trace\.json(?:\.gz)?", re.IGNORECASE)
_NPU_FOLDER = re.compile(r"(?P<host>.+)_[0-9]{1,10}_[0-9]{14,20}_ascend_pt", re.IGNORECASE)
_PROFILE_FILE = re.compile(r"(?P<host>.+?)\.(?:trace\.json(?:\.gz)?|xplane\.pb)", re.IGNORECASE)
_HOST_KEYS = ("hostname", "host_name", "host")
_HOST_PATHS = (
    ("rocprofiler-sdk-tool", "node", "hostname"),
    ("rocpd", "node", "hostname"),
    ("nsys_export", "TARGET_INFO_SYSTEM_ENV", "Hostname"),
)
_GROUP_KEYS = ("job_name", "mast_job_name", "job_id", "slurm_job_id", "SLURM_JOB_ID")
_RANK_KEYS = ("rank", "global_rank", "rank_id")


class Identity(NamedTuple):
    """Rank in the job, host and group (the job) of a run; None: unknown.

    folder   the folder with the runs of all ranks, whose name serves if the group is unknown
    by_name  whether a name in the path identified the run, so that `folder` is certain
    """

    rank: int | None = None
    host: str | None = None
    group: str | None = None
    folder: Path | None = None
    by_name: bool = False

    def over(self, other: Identity) -> Identity:
        """Complete this identity with another."""
        unknown = (name for name in ("rank", "host", "group", "folder") if getattr(self, name) is None)
        known = {name: getattr(other, name) for name in unknown}
        return self._replace(**known, by_name=self.by_name or other.by_name)


class Naming(NamedTuple):
    """The user's names for runs.

    pattern  searched for in each path; its named groups rank, host and group override all else
    group    of all runs
    """

    pattern: re.Pattern[str] | None = None
    group: str | None = None


class RunColumns(NamedTuple):
    """The columns of the table run that identify a run."""

    label: str
    rank: int | None
    host: str | None
    group_label: str | None


class RunNames(NamedTuple):
    """Label and identity of a run from its path; `by_user` overrides everything."""

    label: str
    by_path: Identity = Identity()
    by_user: Identity = Identity()
    group_label: str | None = None

    def columns(self, own: Identity | None = None) -> RunColumns:
        """Return the columns of the run; `own`: its identity from the recording's metadata."""
        known = self.by_user.over(own or Identity()).over(self.by_path)
        group = known.group
        if group is None and (known.rank is not None or self.by_path.host is not None):
            group = self.group_label
        return RunColumns(self.label, known.rank, known.host, group)


def rank_pattern(text: str) -> re.Pattern[str]:
    """Compile --rank-pattern. Raises UsageError if it is invalid or has none of the groups."""
    try:
        pattern = regular_expression(text)
    except re.error as error:
        raise UsageError(
            f"{option('--rank-pattern')} '{printable(text)}' is not a valid regular expression: {error}"
        ) from error
    if not set(PATTERN_GROUPS) & set(pattern.groupindex):
        raise UsageError(
            f"{option('--rank-pattern')} '{printable(text)}' has no group (?P<rank>[0-9]+), (?P<host>…) or (?P<group>…)"
        )
    return pattern


def names_of(places: Sequence[tuple[Path, Path | None]], naming: Naming) -> list[RunNames]:
    """Name the runs of one ingest.

    places  (path, the folder that was searched, or None if the path itself was named)

    The label of a run is the name of its file or folder, with as many folders above as needed to distinguish it. The
    group label is likewise the name of the folder with all ranks.
    """
    resolved = [path.resolve() for path, _ in places]
    tops = {top: None if top is None else top.resolve().name for top in {top for _, top in places}}
    labels = distinct_ends([_parts(place, path.name) for place, (path, _) in zip(resolved, places, strict=True)])
    identities = _with_job_folders(
        [_by_path(path, top, tops[top], place) for place, (path, top) in zip(resolved, places, strict=True)]
    )
    folders = {one.folder for one in identities if one.folder is not None}
    ordered = sorted(folders)
    titles = dict(zip(ordered, distinct_ends([_parts(folder, folder.name) for folder in ordered]), strict=True))
    return [
        RunNames(
            label if path != STDIN else "stdin",
            one,
            _by_user(path, naming),
            None if one.folder is None else titles[one.folder] or None,
        )
        for (path, _), label, one in zip(places, labels, identities, strict=True)
    ]


def of_keys(keys: Mapping[str, bytes]) -> Identity:
    """Return the identity in a trace's metadata: key → JSON text of its value."""
    distributed = value_at(keys, "distributedInfo")
    inner_rank = distributed.get("rank") if isinstance(distributed, dict) else None
    ranks = (inner_rank, *(value_at(keys, key) for key in _RANK_KEYS), value_at(keys, "nsys_export", "mpi_rank"))
    rank = _first(map(_rank_of, ranks))
    hosts = [value_at(keys, key) for key in _HOST_KEYS] + [value_at(keys, *steps) for steps in _HOST_PATHS]
    return Identity(rank, _first(map(_name_of, hosts)), _first(_name_of(value_at(keys, key)) for key in _GROUP_KEYS))


def epoch_offset_ns(keys: Mapping[str, bytes], start_ns: object) -> int | None:
    """Return the offset from the trace's timestamps to times since 1970; None: unknown.

    start_ns  the trace's earliest timestamp
    """
    if not isinstance(start_ns, int):
        return None
    if start_ns in EPOCH_RANGE:
        return 0
    base = _first(
        (
            value_at(keys, "nsys_export", "session_start", "utcEpochNs"),
            value_at(keys, "xplane", "planes", "Task Environment", "profile_start_time"),
            value_at(keys, "baseTimeNanoseconds"),
        )
    )
    return base if type(base) is int and base in EPOCH_RANGE and start_ns + base in EPOCH_RANGE else None


def of_facts(facts: Mapping[str, object]) -> Identity:
    """Return the identity in the info files of a torch_npu or msprof recording: file name → content."""
    files = [fact for fact in facts.values() if isinstance(fact, dict)]
    rank = _first(_rank_of(file.get("rank_id")) for file in files)
    return Identity(rank, _first(_name_of(file.get("hostname")) for file in files))


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _by_path(path: Path, top: Path | None, top_name: str | None, resolved: Path) -> Identity:
    """The identity by the names in a path, from the searched folder `top` on, or else the nearest folders as named."""
    if top is None or top_name is None:
        parts = [part for part in path.parts if part not in (path.anchor, ".", "..")]
        parts = parts[-1 - NAMED_FOLDERS :]
    else:
        inside = path.relative_to(top).parts if path.is_relative_to(top) else (path.name,)
        parts = [top_name, *(part for part in inside if part != ".")]
    rank: int | None = None
    host: str | None = None
    highest = 0  # number of parts, from the end, up to the highest that identifies the run
    for depth, part in enumerate(reversed(parts), 1):
        found = _rank_in(part) if rank is None else None
        if found is not None:
            rank, highest = found, depth
        name = _host_in(part, parts[: len(parts) - depth]) if host is None else None
        if name is not None:
            host, highest = name, max(highest, depth)
    place = resolved
    for _ in range(max(highest, 1)):
        place = place.parent
    return Identity(rank, host, None, place, by_name=highest > 0)


def _with_job_folders(identities: Sequence[Identity]) -> list[Identity]:
    """If no name identifies ranks, sibling folders with one run each belong to one job: the folder above them."""
    silent = Counter(one.folder for one in identities if not one.by_name)
    lonely = Counter(folder.parent for folder, count in silent.items() if folder is not None and count == 1)

    def raised(one: Identity) -> Identity:
        folder = one.folder
        if one.by_name or folder is None or silent[folder] > 1 or lonely[folder.parent] < 2:
            return one
        return one._replace(folder=folder.parent)

    return [raised(one) for one in identities]


def _by_user(path: Path, naming: Naming) -> Identity:
    found = naming.pattern.search(path.as_posix()) if naming.pattern is not None else None
    groups = found.groupdict() if found is not None else {}
    return Identity(_rank_of(groups.get("rank")), groups.get("host") or None, groups.get("group") or naming.group)


def _rank_in(name: str) -> int | None:
    for match in _RANK.finditer(name):
        kind, what = (match["kind"] or "").lower(), match["what"].lower()
        if kind not in _PART_RANKS and not what.startswith("local"):
            return _rank_of(match["number"])
    return None


def _host_in(name: str, above: Sequence[str]) -> str | None:
    for pattern in (_TORCH_FILE, _NPU_FOLDER):
        match = pattern.fullmatch(name)
        if match is not None:
            return None if _RANK.fullmatch(match["host"]) else match["host"]
    if len(above) >= 3 and tuple(above[-3:-1]) == ("plugins", "profile"):
        match = _PROFILE_FILE.fullmatch(name)
        return None if match is None else match["host"]
    match = _HOST.fullmatch(name)
    return None if match is None else match["name"] or name


def _rank_of(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    return value if type(value) is int and 0 <= value < _MAX_RANK else None


def _name_of(value: object) -> str | None:
    return value.strip()[:1000] or None if isinstance(value, str) else None


def _parts(path: Path, name: str) -> tuple[str, ...]:
    """The parts of an absolute path, or `name` if it has none; bytes that are not UTF-8 are escaped."""
    found = path.parts[1:] or (name,)
    return tuple(part.encode("utf-8", "backslashreplace").decode() for part in found)


def distinct_ends(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """The shortest end of each path that distinguishes it from the others."""
    depths = [1] * len(paths)
    open_places = list(range(len(paths)))
    while open_places:
        by_title: dict[tuple[str, ...], list[int]] = {}
        for place in open_places:
            by_title.setdefault(paths[place][-depths[place] :], []).append(place)
        open_places = [
            place
            for same in by_title.values()
            if len({paths[one] for one in same}) > 1
            for place in same
            if depths[place] < len(paths[place])
        ]
        for place in open_places:
            depths[place] += 1
    return ["/".join(path[-depth:]) for path, depth in zip(paths, depths, strict=True)]
