"""Which process of which job a recording is of: its rank, host and group, by what it says of itself and by its name.

What the recording says goes first, then the name of the file, then the folders above it, the nearest first.

PyTorch (Kineto)   distributedInfo.rank; host_name, hostname and job names that were added as metadata;
                   HOST_PID.TIME.pt.trace.json, as tensorboard_trace_handler names it
torch_npu, msprof  rank_id and hostname of profiler_info*.json and info.json*; HOST_PID_TIME_ascend_pt
rocprofv3          metadata.node.hostname         nsys   TARGET_INFO_SYSTEM_ENV.Hostname
JAX, TensorFlow    plugins/profile/RUN/HOST.trace.json.gz
any                rank0, rank_3, worker-2, node-07 in the name of the file or of a folder
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from traceconv.base.errors import UsageError, printable, regular_expression
from traceconv.formats.common.files import STDIN

#: Folders above a named file whose names are looked at.
NAMED_FOLDERS = 3
#: Groups that a pattern of the user may have.
PATTERN_GROUPS = ("rank", "host", "group")

_MAX_RANK = 2**31
#: Times in this range are taken for nanoseconds since 1970: from 2001-09-09 to 2096.
EPOCH_RANGE = range(10**18, 4 * 10**18)
#: A value beside the events that is longer says nothing of this; it is not looked at.
_MAX_VALUE_BYTES = 1 << 20
#: Ranks inside of a job's dimension or machine are not the rank in the job.
_RANK = re.compile(
    r"(?<![a-z0-9])(?:(?P<kind>[a-z]+)[-_.])?(?P<what>global[-_]?rank|local[-_]?rank|rank|worker)[-_=.]?"
    r"(?P<number>[0-9]{1,10})(?![0-9])",
    re.IGNORECASE,
)
_PART_RANKS = frozenset(("local", "tp", "dp", "pp", "ep", "cp", "mp", "sp", "etp", "edp", "node", "intra", "inter"))
_HOST = re.compile(r"(?:host|node)[-_.]?[0-9]{1,6}|(?:host|hostname|node)=(?P<name>[a-z0-9._-]+)", re.IGNORECASE)
_TORCH_FILE = re.compile(r"(?P<host>.+)_[0-9]{1,10}\.[0-9]{10,20}\.pt\.trace\.json(?:\.gz)?", re.IGNORECASE)
_NPU_FOLDER = re.compile(r"(?P<host>.+)_[0-9]{1,10}_[0-9]{14,20}_ascend_pt", re.IGNORECASE)
_PROFILE_FILE = re.compile(r"(?P<host>.+?)\.trace\.json(?:\.gz)?", re.IGNORECASE)
_HOST_KEYS = ("hostname", "host_name", "host")
_GROUP_KEYS = ("job_name", "mast_job_name", "job_id", "slurm_job_id", "SLURM_JOB_ID")
_RANK_KEYS = ("rank", "global_rank", "rank_id")


@dataclass(frozen=True, slots=True)
class Identity:
    """None: not known.

    rank    of the process in its job
    host    name of the machine
    group   what the recordings of one job share
    folder  the folder that holds those of all ranks, by their names: its name serves where no group is known
    by_name whether a name said what is known, so that `folder` is sure
    """

    rank: int | None = None
    host: str | None = None
    group: str | None = None
    folder: Path | None = None
    by_name: bool = False

    def over(self, other: Identity) -> Identity:
        """What this one knows, completed by what another does."""
        return Identity(
            other.rank if self.rank is None else self.rank,
            other.host if self.host is None else self.host,
            other.group if self.group is None else self.group,
            other.folder if self.folder is None else self.folder,
            self.by_name or other.by_name,
        )


@dataclass(frozen=True, slots=True)
class Naming:
    """What the user says of the recordings.

    pattern  is looked for in each path; its named groups rank, host and group count more than all else
    group    of all of them
    """

    pattern: re.Pattern[str] | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class RunColumns:
    """The columns of the table run that tell runs apart."""

    label: str
    rank: int | None
    host: str | None
    group_label: str | None


@dataclass(frozen=True, slots=True)
class RunNames:
    """What a run is to be called, and whose it is as far as its path says. `said`: by the user, who is right."""

    label: str
    by_path: Identity = field(default_factory=Identity)
    said: Identity = field(default_factory=Identity)
    group_label: str | None = None

    def columns(self, own: Identity | None = None) -> RunColumns:
        """How the run is called; `own`: what the recording says of itself."""
        known = self.said.over(own or Identity()).over(self.by_path)
        group = known.group
        if group is None and (known.rank is not None or self.by_path.host is not None):
            group = self.group_label
        return RunColumns(self.label, known.rank, known.host, group)


def rank_pattern(text: str) -> re.Pattern[str]:
    """A pattern for paths. Raises UsageError when it is none, or has none of the groups."""
    try:
        pattern = regular_expression(text)
    except re.error as error:
        raise UsageError(f"--rank-pattern '{printable(text)}' is no regular expression: {error}") from error
    if not set(PATTERN_GROUPS) & set(pattern.groupindex):
        raise UsageError(
            f"--rank-pattern '{printable(text)}' has no group that says what it finds; write (?P<rank>[0-9]+), "
            "(?P<host>…) or (?P<group>…)"
        )
    return pattern


def names_of(places: Sequence[tuple[Path, Path | None]], naming: Naming) -> list[RunNames]:
    """What the runs of one ingest are called.

    places  (path, the folder in which it was found, None when it was named itself)

    A run is called like its file or folder, with as many of the folders above as tell it from the others; so are the
    groups, which are called like the folder that holds their ranks.
    """
    labels = _telling([_parts(path) for path, _ in places])
    identities = _beside([_by_path(path, top) for path, top in places])
    folders = {one.folder for one in identities if one.folder is not None}
    ordered = sorted(folders)
    titles = dict(zip(ordered, _telling([_parts(folder) for folder in ordered]), strict=True))
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
    """What a trace says of itself beside its events: key → JSON text of its value."""

    distributed = _value(keys, "distributedInfo")
    rank = _rank_of(distributed.get("rank")) if isinstance(distributed, dict) else None
    ranks = [rank, *(_rank_of(_value(keys, key)) for key in _RANK_KEYS)]
    host = _first(_name_of(_value(keys, key)) for key in _HOST_KEYS)
    group = _first(_name_of(_value(keys, key)) for key in _GROUP_KEYS)
    for key, steps in (
        ("rocprofiler-sdk-tool", ("node", "hostname")),
        ("nsys_export", ("TARGET_INFO_SYSTEM_ENV", "Hostname")),
    ):
        inner: object = _value(keys, key) if host is None else None
        for step in steps:
            inner = inner.get(step) if isinstance(inner, dict) else None
        host = host or _name_of(inner)
    return Identity(next((one for one in ranks if one is not None), None), host, group)


def epoch_offset_ns(keys: Mapping[str, bytes], start_ns: object) -> int | None:
    """What makes times since 1970 of the trace's times, as far as it says so; None: not known.

    start_ns  the earliest time of the trace
    """
    if not isinstance(start_ns, int):
        return None
    if start_ns in EPOCH_RANGE:
        return 0
    session = _value(keys, "nsys_export")
    found: object = session.get("session_start") if isinstance(session, dict) else None
    base = found.get("utcEpochNs") if isinstance(found, dict) else _value(keys, "baseTimeNanoseconds")
    return base if type(base) is int and base in EPOCH_RANGE and start_ns + base in EPOCH_RANGE else None


def of_facts(facts: Mapping[str, object]) -> Identity:
    """What the small files of a torch_npu or msprof recording say: name of the file → its content."""
    found = Identity()
    for fact in facts.values():
        if isinstance(fact, dict):
            found = found.over(Identity(_rank_of(fact.get("rank_id")), _name_of(fact.get("hostname"))))
    return found


def _first(names: Iterable[str | None]) -> str | None:
    return next((name for name in names if name is not None), None)


def _value(keys: Mapping[str, bytes], key: str) -> object:
    text = keys.get(key, b"")
    if not text or len(text) > _MAX_VALUE_BYTES:
        return None
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found


def _by_path(path: Path, top: Path | None) -> Identity:
    """`path` lies in the folder `top`, or was named itself: then the folders right above it count, as named."""
    if top is None:
        parts = [part for part in path.parts if part not in (path.anchor, ".", "..")]
        parts = parts[-1 - NAMED_FOLDERS :]
    else:
        inside = path.relative_to(top).parts if path.is_relative_to(top) else (path.name,)
        parts = [top.resolve().name, *(part for part in inside if part != ".")]
    rank: int | None = None
    host: str | None = None
    highest = 0  # how many of the parts, from the end, tell one rank from another
    for depth, part in enumerate(reversed(parts), 1):
        found = _rank_in(part) if rank is None else None
        if found is not None:
            rank, highest = found, depth
        name = _host_in(part, parts[: len(parts) - depth]) if host is None else None
        if name is not None:
            host, highest = name, max(highest, depth)
    place = path.resolve()
    for _ in range(max(highest, 1)):
        place = place.parent
    return Identity(rank, host, None, place, by_name=highest > 0)


def _beside(identities: Sequence[Identity]) -> list[Identity]:
    """Where no name tells ranks apart, folders that hold one recording each are those of one job: its is above."""
    silent = Counter(one.folder for one in identities if not one.by_name)
    lonely = Counter(folder.parent for folder, count in silent.items() if folder is not None and count == 1)

    def raised(one: Identity) -> Identity:
        folder = one.folder
        if one.by_name or folder is None or silent[folder] > 1 or lonely[folder.parent] < 2:
            return one
        return replace(one, folder=folder.parent)

    return [raised(one) for one in identities]


def _by_user(path: Path, naming: Naming) -> Identity:
    found = naming.pattern.search(path.as_posix()) if naming.pattern is not None else None
    said = found.groupdict() if found is not None else {}
    return Identity(_rank_of(said.get("rank")), said.get("host") or None, said.get("group") or naming.group)


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


def _parts(path: Path) -> tuple[str, ...]:
    """The names that lead to a file, as text: bytes that are no UTF-8 are spelled out."""
    found = path.resolve().parts[1:] or (path.name,)
    return tuple(part.encode("utf-8", "backslashreplace").decode() for part in found)


def _telling(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """Of each path the last name, with as many before it as tell it from the other paths."""
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
