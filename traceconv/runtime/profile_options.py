"""What to collect: the options of a profile, from arguments or from JSON in the words of Ascend's profiling_options."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from traceconv.base.errors import InputError, OutputError, UsageError, printable, suggestion
from traceconv.runtime import counters
from traceconv.runtime.recorder import Selection

#: Categories of `resource`, and what each records.
RESOURCES: Mapping[str, str] = {
    "host": "calls of the runtime, and the modules of a model",
    "inferences": "runs of a model and their executions on the device",
    "operators": "the host's own work on tensors: Quantize, Lower, Unlower, Dequantize …",
    "npu": "tasks, steps and sampled values of the devices",
    "pmu": "hardware counters of the tasks",
    "memory": "allocations and frees of device memory",
}
#: Other names of theirs.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "all": tuple(RESOURCES),
    "cpu": ("host", "inferences", "operators"),
    "device": ("npu", "pmu"),
}
#: What level 1 leaves out, unless it is asked for by name: kernels are all that it is about.
_LEVEL_2 = frozenset({"host", "inferences", "operators", "memory"})
#: Files that can be written when a profile ends → how their names end. `raw` is the capture's folder.
FORMATS: Mapping[str, str] = {
    "raw": "",
    "chrome_timeline.json": ".chrome_timeline.json",
    "memory_flow.svg": ".memory_flow.svg",
    "store": ".duckdb",
}
FORMAT_NAMES: Mapping[str, str] = {
    **{name: name for name in FORMATS},
    "chrome": "chrome_timeline.json",
    "chrome_trace": "chrome_timeline.json",
    "memory-flow": "memory_flow.svg",
    "memory_flow": "memory_flow.svg",
    "duckdb": "store",
}
#: These leave no file: `df()`, `arrow()` and `report()` are there after every profile.
_IN_MEMORY = ("data frame", "dataframe", "pandas", "pandas_dataframe", "arrow", "report")
#: Endings of a file name that say which format is meant, when none is named.
_ENDINGS: Mapping[str, str] = {".json": "chrome_timeline.json", ".json.gz": "chrome_timeline.json",
                               ".svg": "memory_flow.svg", ".duckdb": "store"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Checked options. `output` None: nothing stays but what is asked of the profiler while it is there.

    file        the one file to write, when `output` names a file and no folder
    resources   what to record, names of `RESOURCES`
    sample_rate memory in use is sampled every so many ops; 0: by device time, every 100 µs
    fp_point    op at whose start a step's forward part begins; None: its first op
    bp_point    op at whose end its backward part ends; None: its last backward op
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

    def below(self, folder: Path) -> ProfileOptions:
        """The same with the paths that are relative to `folder`."""
        output, file = (None if path is None else folder / path for path in (self.output, self.file))
        return replace(self, output=output, file=file)

    @property
    def selection(self) -> Selection:
        """What a recorder is to write."""
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
        """The options as a log keeps them: no path of the machine."""
        return {
            "aic_metrics": self.aic_metrics,
            "bp_point": self.bp_point,
            "formats": list(self.formats),
            "fp_point": self.fp_point,
            "level": self.level,
            "resources": sorted(self.resources),
            "sample_rate": self.sample_rate,
            "task_trace": self.task_trace,
            "training_trace": self.training_trace,
        }


#: All that can be said, in arguments or in JSON; the order is that of the documentation.
KEYS = (
    "output", "path", "format", "formats", "resource", "level", "sample_rate", "profile_device", "aic_metrics",
    "training_trace", "task_trace", "fp_point", "bp_point",
)  # fmt: skip


def parse_options(
    given: Mapping[str, object], profiling_options: str | os.PathLike[str] | Mapping[str, object] | None = None
) -> ProfileOptions:
    """Options from arguments (those that are None were not given) and from JSON: a text, a file or a mapping.

    Raises UsageError for a wrong option, one that is given twice, or values that exclude each other; InputError
    for a file that can't be read.
    """
    said = {name: value for name, value in given.items() if value is not None}
    what = "profile"
    if profiling_options is not None:
        from_json = _read(profiling_options)
        twice = sorted(set(said) & set(from_json))
        if twice:
            raise UsageError(f"{twice[0]} is given twice: as an argument and in profiling_options; leave one out")
        said |= from_json
        what = "profiling_options"
    for name in said:
        if name not in KEYS:
            near = suggestion(name, list(KEYS))
            raise UsageError(f"{what}: no option '{printable(name, 60)}'.{near} All: {', '.join(KEYS)}")
    return _checked(said)


def _read(source: str | os.PathLike[str] | Mapping[str, object]) -> dict[str, object]:
    """The keys and values of profiling_options; those that are empty texts are left out, as not given."""
    if isinstance(source, Mapping):
        content: object = dict(source)
    else:
        text = os.fspath(source)
        where = "profiling_options"
        if not text.lstrip().startswith("{"):
            where = printable(text)
            try:
                text = Path(text).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
                raise InputError(f"profiling_options: can't read {where}: {reason}") from error
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON: {printable(str(error))}") from error
    if not isinstance(content, dict):
        raise UsageError('profiling_options must be a JSON object, such as {"output": "raw", "task_trace": "on"}')
    return {str(key): value for key, value in content.items() if value not in ("", None)}


def _checked(said: Mapping[str, object]) -> ProfileOptions:
    if "output" in said and "path" in said:
        raise UsageError("output and path mean the same: give one")
    if "format" in said and "formats" in said:
        raise UsageError("format and formats exclude each other: give one")
    level = _whole(said, "level", 2)
    if level not in (1, 2):
        raise UsageError(f"level {level}: must be 1 (kernels only) or 2 (kernels and host execution)")
    sample_rate = _whole(said, "sample_rate", 0)
    if not 0 <= sample_rate < 1 << 31:
        raise UsageError(f"sample_rate {sample_rate}: must be 0 or a number of ops")
    resources = _resources(said.get("resource"), level)
    metrics = _text(said, "aic_metrics") or counters.DEFAULT_GROUP
    if metrics.lower() in ("off", "none"):
        metrics, resources = counters.DEFAULT_GROUP, resources - {"pmu"}
    elif metrics not in counters.RECORDS:
        near = suggestion(metrics, list(counters.RECORDS))
        raise UsageError(
            f"aic_metrics '{printable(metrics, 60)}': no such group.{near} All: {', '.join(counters.RECORDS)}, off"
        )
    if not _switch(said, "profile_device"):
        resources -= {"npu", "pmu"}
    output, file, formats = _files(said)
    options = ProfileOptions(
        output=output,
        file=file,
        formats=formats,
        resources=frozenset(resources),
        level=level,
        sample_rate=sample_rate,
        aic_metrics=metrics,
        training_trace=_switch(said, "training_trace"),
        task_trace=_switch(said, "task_trace"),
        fp_point=_text(said, "fp_point"),
        bp_point=_text(said, "bp_point"),
    )
    check_formats(options)
    return options


def check_formats(options: ProfileOptions) -> None:
    """Raises UsageError for a file that needs what is not recorded, or whose name its format can't have."""
    path = str(options.file or options.output)
    if "store" in options.formats and path.encode(errors="replace").decode() != path:
        raise UsageError(f"output {printable(path)}: DuckDB opens only paths that are UTF-8; give another")
    if "memory_flow.svg" in options.formats and "memory" not in options.resources:
        where = "level 1" if options.level == 1 else "resource"
        raise UsageError(f"memory_flow.svg draws allocations, which {where} leaves out: add memory to resource")


def _resources(given: object, level: int) -> set[str]:
    if given is None:
        return set(RESOURCES) - (_LEVEL_2 if level == 1 else set())
    found: set[str] = set()
    for name in _words("resource", given):
        near = [*RESOURCES, *_GROUPS]
        if name not in near:
            raise UsageError(
                f"resource '{printable(name, 60)}': unknown.{suggestion(name, near)} All: {', '.join(near)}"
            )
        found |= set(_GROUPS.get(name, (name,))) - (_LEVEL_2 if level == 1 and name in _GROUPS else set())
    if "pmu" in found and "npu" not in found:
        raise UsageError("resource pmu: counters belong to tasks; add npu")
    return found


def _files(said: Mapping[str, object]) -> tuple[Path | None, Path | None, tuple[str, ...]]:
    """(folder, single file, formats)."""
    where = said.get("output", said.get("path"))
    if where is not None and not isinstance(where, (str, os.PathLike)):
        raise UsageError(f"output must be a path, not {type(where).__name__}")
    output = None if where is None else Path(os.fspath(where))
    if output is not None and "\0" in str(output):
        raise OutputError(f"can't write {printable(str(output))}: no path has a NUL; give another output")
    named = said.get("formats", said.get("format"))
    ending = None if output is None else next((end for end in _ENDINGS if output.name.endswith(end)), None)
    formats: list[str] = []
    for name in [] if named is None else _words("format", named):
        if name in _IN_MEMORY:
            continue
        if name not in FORMAT_NAMES:
            known = [*FORMATS, "pandas"]
            raise UsageError(
                f"format '{printable(name, 60)}': unknown.{suggestion(name, known)} All: {', '.join(known)}"
            )
        formats.append(FORMAT_NAMES[name])
    if output is not None and ending is not None and not _is_folder(output):
        formats = formats or ([] if named is not None else [_ENDINGS[ending]])
        if len(formats) != 1 or formats[0] == "raw":
            raise UsageError(f"output {printable(str(output))} names a file, which holds one format: name a folder")
        return output.parent, output, tuple(formats)
    if output is None and set(formats) - {"raw"}:
        output = Path("profile")
    if named is None:
        formats = ["raw"]
    return output, None, tuple(dict.fromkeys(formats))


def _is_folder(path: Path) -> bool:
    """Raises OutputError for a name that no file can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError | ValueError) -> OutputError:
    reason = (isinstance(error, OSError) and error.strerror) or error
    return OutputError(f"can't write {printable(str(path))}: {reason}; give another output")


def check_writable(options: ProfileOptions) -> list[Path]:
    """Makes the folder of the output; the folders that were not there, from the innermost. Raises OutputError."""
    if options.output is None:
        return []
    try:
        made = [folder for folder in (options.output, *options.output.parents) if not folder.exists()]
        options.output.mkdir(parents=True, exist_ok=True)
        if not os.access(options.output, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
        if options.file is not None and options.file.exists() and not os.access(options.file, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except (OSError, ValueError) as error:
        raise _refused(options.output, error) from error
    return made


def _words(option: str, given: object) -> list[str]:
    """Names in a list, or in one text between commas."""
    if isinstance(given, str):
        return [word.strip() for word in given.split(",") if word.strip()]
    if isinstance(given, (Sequence, Iterable)) and not isinstance(given, (bytes, Mapping)):
        words = list(given)
        if all(isinstance(word, str) for word in words):
            return [str(word) for word in words]
    raise UsageError(f"{option} must be a name or a list of names")


def _whole(said: Mapping[str, object], name: str, default: int) -> int:
    value = said.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise UsageError(f"{name} must be a whole number")
    try:
        return int(value)
    except ValueError as error:
        raise UsageError(f"{name} '{printable(str(value), 60)}': must be a whole number") from error


def _text(said: Mapping[str, object], name: str) -> str | None:
    value = said.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a text")
    return value or None


def _switch(said: Mapping[str, object], name: str) -> bool:
    """True unless it is switched off: a bool, or on and off as Ascend writes them."""
    value = said.get(name, True)
    if isinstance(value, bool):
        return value
    known = {"on": True, "off": False, "true": True, "false": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise UsageError(f"{name} '{printable(str(value), 60)}': must be on or off")


assert {field.name for field in fields(ProfileOptions)} <= {*KEYS, "file", "resources"}
