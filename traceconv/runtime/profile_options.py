"""The options of a profile, from arguments or from JSON with the keys of Ascend's profiling_options."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from traceconv.base.errors import InputError, OutputError, UsageError, option, printable, reason_of, suggestion
from traceconv.runtime import counters
from traceconv.runtime.recorder import Selection

#: Values of `resource`, and what each records.
RESOURCES: Mapping[str, str] = {
    "host": "calls of the runtime, and the modules of a model",
    "inferences": "runs of a model and their executions on the device",
    "operators": "the host's own work on tensors: Quantize, Lower, Unlower, Dequantize …",
    "npu": "tasks, steps and sampled values of the devices",
    "pmu": "hardware counters of the tasks",
    "memory": "allocations and frees of device memory",
}
#: Names of groups of resources.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "all": tuple(RESOURCES),
    "cpu": ("host", "inferences", "operators"),
    "device": ("npu", "pmu"),
}
#: Resources that level 1 (kernels only) excludes unless they are named.
_LEVEL_2 = frozenset({"host", "inferences", "operators", "memory"})
#: Files that can be written when a profile ends → their file name endings. `raw` is the capture's folder.
FORMATS: Mapping[str, str] = {
    "raw": "",
    "chrome_timeline.json": ".chrome_timeline.json",
    "memory_flow.svg": ".memory_flow.svg",
    "perfetto": ".pftrace",
    "store": ".duckdb",
}
FORMAT_NAMES: Mapping[str, str] = {
    **{name: name for name in FORMATS},
    "chrome": "chrome_timeline.json",
    "chrome_trace": "chrome_timeline.json",
    "memory-flow": "memory_flow.svg",
    "memory_flow": "memory_flow.svg",
    "pftrace": "perfetto",
    "duckdb": "store",
}
#: Formats without a file: `df()`, `arrow()` and `report()` work after every profile.
_IN_MEMORY = ("data frame", "dataframe", "pandas", "pandas_dataframe", "arrow", "report")
#: File name endings that select a format when none is named.
_ENDINGS: Mapping[str, str] = {".json": "chrome_timeline.json", ".json.gz": "chrome_timeline.json",
                               ".svg": "memory_flow.svg", ".pftrace": "perfetto", ".pftrace.gz": "perfetto",
                               ".perfetto-trace": "perfetto", ".duckdb": "store"}  # fmt: skip
_SWITCHES = {"on": True, "off": False, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Valid options. `output` None: only the files requested from the profiler remain.

    file         the single file to write, when `output` names a file instead of a folder
    resources    what to record, names of `RESOURCES`
    sample_rate  memory in use is sampled after this many ops; 0: every 100 µs of device time
    fp_point     op that begins a step's forward part; None: its first op
    bp_point     op that ends its backward part; None: its last backward op
    clock        the host's clock: "virtual" stops during emulation, "wall" goes on
    """

    output: Path | None = None
    file: Path | None = None
    formats: tuple[str, ...] = ("raw",)
    resources: frozenset[str] = frozenset(RESOURCES)
    level: int = 2
    sample_rate: int = 0
    aic_metrics: str = counters.DEFAULT_GROUP
    training_trace: bool = True
    task_trace: bool = True
    fp_point: str | None = None
    bp_point: str | None = None
    clock: str = "virtual"

    def below(self, folder: Path) -> ProfileOptions:
        """Return the same options with relative paths resolved against `folder`."""
        output, file = (None if path is None else folder / path for path in (self.output, self.file))
        return replace(self, output=output, file=file)

    @property
    def selection(self) -> Selection:
        """What a recorder has to write."""
        has = self.resources.__contains__
        npu = has("npu")
        return Selection(
            calls=has("host"),
            inferences=has("inferences"),
            operators=has("operators"),
            tasks=npu and self.task_trace,
            pmu=npu and has("pmu") and self.task_trace,
            counters=npu,
            steps=npu and self.training_trace,
            memory=has("memory"),
        )

    def described(self) -> dict[str, object]:
        """Return the options as logged, without paths."""
        logged = {field.name: getattr(self, field.name) for field in fields(self)[2:]}
        return logged | {"formats": list(self.formats), "resources": sorted(self.resources)}


#: All options, in arguments or in JSON, in the order of the documentation.
KEYS = (
    "output", "path", "format", "formats", "resource", "level", "sample_rate", "profile_device", "aic_metrics",
    "training_trace", "task_trace", "fp_point", "bp_point", "clock",
)  # fmt: skip


def parse_options(
    given: Mapping[str, object],
    profiling_options: str | os.PathLike[str] | Mapping[str, object] | None = None,
    *,
    override: bool = False,
) -> ProfileOptions:
    """Return options from arguments (None: not given) and from JSON: a text, a file or a mapping.

    override  whether arguments override the JSON; otherwise an option may be given only once

    Raises UsageError for an invalid option, one given twice, or options that exclude each other; InputError for an
    unreadable file.
    """
    values = {name: value for name, value in given.items() if value is not None}
    source = "profile"
    if profiling_options is not None:
        from_json = _read(profiling_options)
        twice = sorted(set(values) & set(from_json))
        if twice and not override:
            raise UsageError(f"{twice[0]} is given both as an argument and in profiling_options; remove one")
        if override and "output" in values:
            from_json.pop("path", None)
        values = from_json | values
        source = "profiling_options"
    # Ascend's switch for all of it, which its programs set next to the options.
    if not _switch({"profiling_mode": values.pop("profiling_mode", True)}, "profiling_mode"):
        raise UsageError("profiling_mode is off: to record nothing, don't begin a profile; else turn it on")
    for name in values:
        _check_name(f"{source}: option", name, KEYS)
    return _checked(values)


def _check_name(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        near = suggestion(name, list(known))
        raise UsageError(f"{what} '{printable(name, 60)}': unknown.{near} All: {', '.join(known)}")


def _read(source: object) -> dict[str, object]:
    """Return the keys and values of profiling_options, except for empty texts, which mean not given."""
    content: object = source
    if not isinstance(source, (str, os.PathLike, Mapping)):
        kind = type(source).__name__
        raise UsageError(f"profiling_options must be JSON text, the path of a JSON file or a mapping, not {kind}")
    if not isinstance(source, Mapping):
        text = os.fspath(source)
        where = "profiling_options"
        if not text.lstrip().startswith("{"):
            where = printable(text)
            try:
                text = Path(text).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise InputError(f"profiling_options: can't read {where}: {reason}") from error
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON: {printable(str(error))}") from error
    if not isinstance(content, Mapping):
        raise UsageError('profiling_options must be a JSON object, such as {"output": "raw", "task_trace": "on"}')
    return {str(key): value for key, value in content.items() if value not in ("", None)}


def _checked(values: Mapping[str, object]) -> ProfileOptions:
    if "output" in values and "path" in values:
        raise UsageError("output and path mean the same: give one")
    if "format" in values and "formats" in values:
        raise UsageError("format and formats exclude each other: give one")
    level = _integer(values, "level", 2)
    if level not in (1, 2):
        raise UsageError(f"level {level}: must be 1 (kernels only) or 2 (kernels and host execution)")
    sample_rate = _integer(values, "sample_rate", 0)
    if not 0 <= sample_rate < 1 << 31:
        raise UsageError(f"sample_rate {sample_rate}: must be 0 or a number of ops")
    resources = _resources(values.get("resource"), level)
    metrics = _text(values, "aic_metrics") or counters.DEFAULT_GROUP
    if metrics.lower() in ("off", "none"):
        metrics, resources = counters.DEFAULT_GROUP, resources - {"pmu"}
    _check_name(option("--aic-metrics"), metrics, (*counters.RECORDS, "off"))
    if not _switch(values, "profile_device"):
        resources -= {"npu", "pmu"}
    clock = _text(values, "clock") or "virtual"
    _check_name(option("--clock"), clock, ("virtual", "wall"))
    output, file, formats = _files(values)
    options = ProfileOptions(
        output=output,
        file=file,
        formats=formats,
        resources=frozenset(resources),
        level=level,
        sample_rate=sample_rate,
        aic_metrics=metrics,
        training_trace=_switch(values, "training_trace"),
        task_trace=_switch(values, "task_trace"),
        fp_point=_text(values, "fp_point"),
        bp_point=_text(values, "bp_point"),
        clock=clock,
    )
    check_formats(options)
    return options


def check_formats(options: ProfileOptions) -> None:
    """Raise UsageError for a format that needs what is not recorded, or that can't have the name of its file."""
    path = str(options.file or options.output)
    if "store" in options.formats and path.encode(errors="replace").decode() != path:
        raise UsageError(f"output {printable(path)}: DuckDB only opens paths that are valid UTF-8; choose another")
    if "memory_flow.svg" in options.formats and "memory" not in options.resources:
        where = "level 1" if options.level == 1 else "resource"
        raise UsageError(f"memory_flow.svg draws allocations, which {where} excludes: add memory to resource")


def _resources(given: object, level: int) -> set[str]:
    if given is None:
        return set(RESOURCES) - (_LEVEL_2 if level == 1 else set())
    found: set[str] = set()
    for name in _names("resource", given):
        _check_name("resource", name, (*RESOURCES, *_GROUPS))
        found |= set(_GROUPS.get(name, (name,))) - (_LEVEL_2 if level == 1 and name in _GROUPS else set())
    if "pmu" in found and "npu" not in found:
        raise UsageError("resource pmu: counters belong to tasks; add npu")
    return found


def _files(values: Mapping[str, object]) -> tuple[Path | None, Path | None, tuple[str, ...]]:
    """Return (folder, single file, formats)."""
    where = values.get("output", values.get("path"))
    if where is not None and not isinstance(where, (str, os.PathLike)):
        raise UsageError(f"output must be a path, not {type(where).__name__}")
    output = None if where is None else Path(os.fspath(where))
    if output is not None and "\0" in str(output):
        raise OutputError(f"can't write {printable(str(output))}: a path can't contain a NUL; choose another output")
    named = values.get("formats", values.get("format"))
    formats: list[str] = []
    for name in [] if named is None else _names("format", named):
        if name not in _IN_MEMORY:
            _check_name("format", name, FORMAT_NAMES)
            formats.append(FORMAT_NAMES[name])
    ending = None if output is None else next((end for end in _ENDINGS if output.name.endswith(end)), None)
    if output is not None and ending is not None and not _is_folder(output):
        formats = formats or ([] if named is not None else [_ENDINGS[ending]])
        if len(formats) != 1 or formats[0] == "raw":
            raise UsageError(
                f"output {printable(str(output))} is a file, which can contain only one format: name a folder"
            )
        return output.parent, output, tuple(formats)
    if output is None and set(formats) - {"raw"}:
        output = Path("profile")
    if named is None:
        formats = ["raw"]
    return output, None, tuple(dict.fromkeys(formats))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError | ValueError) -> OutputError:
    return OutputError(f"can't write {printable(str(path))}: {reason_of(error)}; choose another output")


def check_writable(options: ProfileOptions) -> list[Path]:
    """Create the folder of the output; return the folders created, from the innermost. Raises OutputError."""
    if options.output is None:
        return []
    try:
        created = [folder for folder in (options.output, *options.output.parents) if not folder.exists()]
        options.output.mkdir(parents=True, exist_ok=True)
        file = options.file
        if not os.access(options.output, os.W_OK | os.X_OK) or (
            file and file.exists() and not os.access(file, os.W_OK)
        ):
            raise PermissionError(13, "Permission denied")
    except (OSError, ValueError) as error:
        raise _refused(options.output, error) from error
    return created


def _names(name: str, given: object) -> list[str]:
    """Return the names in a list, or in a text separated by commas."""
    if isinstance(given, str):
        return [word.strip() for word in given.split(",") if word.strip()]
    if isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        words = list(given)
        if all(isinstance(word, str) for word in words):
            return words
    raise UsageError(f"{name} must be a name or a list of names")


def _integer(values: Mapping[str, object], name: str, default: int) -> int:
    value = values.get(name, default)
    try:
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return int(value)
    except ValueError:
        pass
    raise UsageError(f"{name} '{printable(str(value), 60)}': must be an integer")


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name} must be a string")
    return value or None


def _switch(values: Mapping[str, object], name: str) -> bool:
    """Return whether an option is on, which is the default: a bool, or on and off as Ascend writes them."""
    value = values.get(name, True)
    known = value if isinstance(value, bool) else _SWITCHES.get(str(value).lower())
    if known is None:
        raise UsageError(f"{name} '{printable(str(value), 60)}': must be on or off")
    return known
