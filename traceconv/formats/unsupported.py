"""Formats of recordings that are not supported: how to recognise them, and what to do instead."""

from __future__ import annotations

import re

from traceconv.formats.nsys.export import NOT_INSTALLED

#: What to do with a table.
TABLE = "write them as JSON with DuckDB (COPY (FROM 't.csv') TO 't.json') and describe it in a rule file (--rules)"
#: The first bytes of a file's text, and its description.
_BY_HEAD: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb'\s*\{\s*"nodes"\s*:\s*\[\s*\{\s*"id"\s*:\s*\d+\s*,\s*"callFrame"'),
        "is a CPU profile of V8 (.cpuprofile), which is not supported; open it in speedscope and export it from there",
    ),
    (
        re.compile(rb'\s*\{\s*"meta"\s*:\s*\{[^{}]{0,2000}"(?:interval|processType)"\s*:'),
        "is a profile of Firefox, which is not supported; open it in speedscope and export it from there",
    ),
    (
        re.compile(rb"\x80[\x02-\x05](?:\x95|[\x28-\x7d])"),
        "is a Python pickle, such as a profile of tinygrad, which is not supported; python -m tinygrad.viz.cli --json "
        "writes JSON that a rule file can describe (--rules)",
    ),
    (
        re.compile(rb'\s*\{\s*"head"\s*:\s*\{\s*"callFrame"'),
        "is a heap profile of V8, which is not supported: it has no timestamps",
    ),
    (
        re.compile(rb'\s*\{\s*"(?:session"\s*:\s*\{\s*")?start_time"\s*:[^{]{1,2000}"(?:root_frame|min_interval)"'),
        "is pyinstrument's own JSON, which is not supported; write the profile with pyinstrument -r speedscope, or "
        "that of a session with pyinstrument --load FILE -r speedscope",
    ),
    (
        re.compile(rb'\s*\{\s*"alloc_samples"\s*:\s*\d'),
        "is a profile of Scalene, which is not supported: it has totals of lines, but no times of calls; viztracer and "
        "pyinstrument -r speedscope write supported formats",
    ),
    (
        re.compile(rb"# callgrind format|version: \d+\r?\ncreator: "),
        "is a profile in callgrind's format, which is not supported: it has totals, but no times of calls",
    ),
    (
        re.compile(rb"(?:\x0a\x04\x08[^\0]\x10[^\0]){1,9}\x12"),
        "is a profile for pprof, which is not supported: it has totals, but no times of calls",
    ),
    (
        re.compile(rb'\s*\{\s*"report_type"\s*:\s*"\w+"\s*,\s*"\w+_performance"\s*:'),
        "is a report of OpenVINO's benchmark_app, which is not supported: it has durations of layers, but no start "
        "times; on an NPU, NPU_PRINT_PROFILING=JSON writes a supported trace",
    ),
    (
        re.compile(rb'\s*\{\s*"schema"\s*:\s*"[^"]{1,100}"\s*,\s*"pid"\s*:\s*\d+\s*,\s*"time"'),
        "is an execution trace of PyTorch, which is not supported: its operators have no times; ingest the trace that "
        "export_chrome_trace writes",
    ),
    (
        re.compile(rb'\s*\[\s*\{\s*"(?:children"\s*:\s*\[|frame"\s*:\s*\{)|[\x91-\x9f]\x83\xa5frame'),
        "is a profile for Hatchet, as Proton writes it, which is not supported: it has totals, but no times; ingest "
        'the trace that Proton writes with data="trace"',
    ),
    (
        re.compile(rb'IRPF[\0-\x0f]|\{"schema_version":\d+,"record_type":"schema","format":"ireeperf'),
        "is a profile of IREE in its own format, which is not supported; convert it to a Perfetto trace with "
        "iree-profile export and iree-profile-render",
    ),
    (
        re.compile(rb".{8}ED00", re.DOTALL),
        "is an ETDump of ExecuTorch, which is not supported; convert it with etdump_to_chrome_trace.py, a script of "
        "ExecuTorch (backends/arm/scripts)",
    ),
    (
        re.compile(rb'V\d{4} [\d:.]+ \d+ torch/[^\n\]]+\] \{"'),
        "is a structured log of PyTorch (TORCH_TRACE), which is not supported; ingest the chromium_events.json that "
        "tlparse extracts from it",
    ),
    (
        re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE),
        "is an HTML page, which is not supported; ingest the recording from which it was generated",
    ),
    (
        re.compile(rb"tlZ\x04|tZst|tr\xfdP"),
        "is a recording of Tracy, which is not supported; tracy-csvexport -u writes its zones as a table: " + TABLE,
    ),
    (
        re.compile(rb'\s*\[\s*\{\s*"count"\s*:\s*\d+\s*\}\s*,\s*\{\s*"name"[^{}]*"averageMs"'),
        "is a profile of trtexec, which is not supported: it has averages of layers, but no times; run trtexec under "
        "nsys profile and ingest the report",
    ),
    (
        re.compile(rb"PERFILE2"),
        "is a recording of perf, which is not supported; open the output of perf script in speedscope and export it "
        "from there",
    ),
    (
        re.compile(rb"(?:#[^\n]*\n|\s)*\S[^\n]{0,80}? +\d+(?:/\d+)? +(?:\[\d+\] +)?\d+\.\d{6,9}: +\d+ +[\w:/-]+: *"),
        "is output of perf script, which is not supported; open it in speedscope and export it from there",
    ),
    (
        re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*\d"),
        "is a list of lists of numbers, such as a memory timeline of PyTorch, which is not supported; ingest the trace "
        "that export_chrome_trace writes with profile_memory=True",
    ),
    (
        re.compile(rb"(?:(?:#[^\n]*| *\d*|[^\s#;\d][^\n;]* \d+)\r?\n)*[^\n;]+;[^\n]* \d+\r?\n(?:[^\n]* \d+\r?\n|$)"),
        "is text of collapsed stacks, as for flame graphs, which is not supported: it has no times; py-spy record -f "
        "speedscope and austin2speedscope write supported formats",
    ),
    (
        re.compile(rb"MOJ[\x01-\x20]"),
        "is a recording of austin in its own format, which is not supported; convert it with mojo2austin and "
        "austin2speedscope",
    ),
    (
        re.compile(rb'"?(?:Node_Id"?,"?Logical_Node_Id|Name"?,"?Calls"?,"?TotalDurationNs)\b'),
        "is a table of rocprof without times; ingest those of --kernel-trace, --hip-trace and others",
    ),
    (
        re.compile(
            rb'(?:[^\n]*\n){0,20}?"?(?:Start \([num]?s\)"?,"?(?:Duration|End) \(|Time \(%\)"?,"?Total Time \([num]?s\))'
        ),
        "is a table of nsys stats, which is not supported; ingest its report, or what nsys export --type sqlite writes",
    ),
    (
        re.compile(rb"==\d+== ?(?:NVPROF|Profiling)"),
        "is output of nvprof, which is not supported; nsys, which replaces it, writes supported reports",
    ),
    (re.compile(rb"# ninja log v\d"), "is a log of ninja, which is not supported; convert it with ninjatracing"),
    (
        re.compile(rb"[{\xfb][()\xa9]"),
        "is a profile of Python's cProfile, which is not supported: it has no timestamps; viztracer and "
        "pyinstrument -r speedscope write supported formats",
    ),
    (
        re.compile(rb'(?:\x04"M\x18.{0,30})?memray', re.DOTALL),
        "is a recording of memray, which is not supported: it has allocations, but no times of calls",
    ),
    (
        re.compile(rb"\s*<(?:\?xml|svg)\b"),
        "is XML, such as a flame graph in SVG, which is not supported; ingest the recording from which it was made",
    ),
    (re.compile(rb"FLR\x00"), "is a recording of Java's Flight Recorder, which is not supported"),
    (
        re.compile(rb"PAR1|ARROW1|\x89HDF\r\n"),
        "is a Parquet, Arrow or HDF5 file, which is not supported; export reports of Nsight Systems with nsys export "
        "--type sqlite. Other tables: " + TABLE.replace("csv", "parquet"),
    ),
    (re.compile(rb"PK\x03\x04"), "is a ZIP archive; extract it first"),
    (re.compile(rb"BZh[1-9]1AY&SY"), "is compressed with bzip2; decompress it first (gzip, zstd and xz are supported)"),
    (re.compile(rb".{257}ustar", re.DOTALL), "is a tar archive; extract it first"),
    (re.compile(rb".{8}DUCK", re.DOTALL), "is not a trace but a DuckDB file; name a store with --db"),
)
#: Ends of file names in lower case, and descriptions.
_BY_NAME = (
    (re.compile(r"\.(?:nsys-rep|qdrep)$"), NOT_INSTALLED),
    (
        re.compile(r"\.qdstrm$"),
        "is raw data of Nsight Systems, which is not supported; ingest the output of nsys export --type sqlite",
    ),
    (
        re.compile(r"\.ncu-rep$"),
        "is a report of Nsight Compute in its own format, which is not supported; ingest the output of ncu --import "
        "FILE --csv --page raw",
    ),
    (
        re.compile(r"\.slice_\d+(?:\.done)?$"),
        "is a part of the raw data of an Ascend NPU, which is read as a whole; ingest the folder around it, PROF_… or "
        "JOB…",
    ),
    (
        re.compile(r"^torch\.(?:op_range|op_mark|memory_usage|python_tracer_\w+|gc_record|param_tensor_info)$"),
        "is a part of a recording of torch_npu, which is read as a whole; ingest the folder PROF_… next to FRAMEWORK",
    ),
    (
        re.compile(
            r"^(?:(?:kernel|operator)_details|(?:op|task|api|communication)_(?:summary|time|statistic)|l2_cache|fusion_op|"
            r"(?:memory_record|operator_memory|npu(?:_module)?_mem|step_trace(?:_time)?)|communication(?:_matrix)?|"
            r"profiler_info)(?:_[0-9a-z_]+)?\.(?:csv|json)$"
        ),
        "is one of the files that torch_npu or msprof write for a recording; ingest their folder",
    ),
    (re.compile(r"\.etl$"), "is a recording of Event Tracing for Windows, which is not supported"),
)


def what_it_is(head: bytes, name: str) -> str | None:
    """A file's format and what to do, to be appended to its name; None if it has none of these formats."""
    for pattern, what in _BY_HEAD:
        if pattern.match(head):
            return what
    return next((what for end, what in _BY_NAME if end.search(name.lower())), None)
