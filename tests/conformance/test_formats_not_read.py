"""Known but unsupported formats are refused with one line that suggests an alternative."""

from __future__ import annotations

import marshal
import pickle
from pathlib import Path

import pytest
from ingest_checks import taken

from traceconv.base.errors import InputError
from traceconv.inspection.run import info
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import NothingUsable


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        (
            "a.cpuprofile",
            b'{"nodes":[{"id":1,"callFrame":{"functionName":"(root)"}}],"samples":[1]}',
            "CPU profile of V8",
        ),
        ("a.heapprofile", b'{"head":{"callFrame":{"functionName":"(root)"}}}', "heap profile of V8"),
        ("a.json", b'{"start_time": 1.5,"duration": 2,"root_frame": {"function": "f"}}', "pyinstrument -r speedscope"),
        ("a.pyisession", b'{"start_time": 1.5, "duration": 2.5, "min_interval": 0.1', "--load FILE -r speedscope"),
        (
            "memory.prof",
            b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x12\x07\x0a\x02\x01\x02",
            "profile for pprof",
        ),
        ("scalene-profile.json", b'{\n    "alloc_samples": 241,\n    "args": [\n        "a.py"', "profile of Scalene"),
        ("callgrind.out.7", b"# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\n", "callgrind's format"),
        ("yappi.callgrind", b"version: 1\ncreator: yappi\npid: 7\ncmd:  a.py\n", "callgrind's format"),
        (
            "benchmark_sorted_report.json",
            b'{\n    "report_type": "sorted",\n    "avg_performance": {\n        "nodes": [\n            {',
            "NPU_PRINT_PROFILING=JSON",
        ),
        ("cargo-timing.html", b"<!DOCTYPE HTML>\n<html></html>", "an HTML page"),
        ("perf.data", b"PERFILE2" + bytes(100), "output of perf script in speedscope"),
        (
            "perf.txt",
            b"node  2472 28161.474600:     250000 cpu-clock: \n\t 1462a f+0xa (/a.so)\n",
            "output of perf script",
        ),
        ("perf.txt", b"# a\n#\nV8 W 12/34 [003] 1.000001:  1 cycles:u: \n\t 0 [unknown]\n", "output of perf script"),
        ("memory.json", b"[[1795712583944789, 1795712583945902], [[0, 1], [0, 2]]]", "profile_memory=True"),
        ("memory.raw.json", b"[[-1, 1, 12288, 7], [1795712583944789230, 2, 192, 7]]", "profile_memory=True"),
        (
            "et.json",
            b'{\n  "schema": "1.1.1-chakra.0.0.4", "pid": 12692, "time": "2026-11-26 18:52:51", "start_ts": 34959382,\n'
            b'  "nodes": [\n      {\n        "id": 2, "name": "[pytorch|profiler|execution_trace|thread]"',
            "execution trace of PyTorch",
        ),
        ("a.hatchet", b'\n[\n    {\n        "children": [\n            {\n                "children": [],', "Proton"),
        ("a.hatchet_msgpack", b"\x92\x83\xa5frame\x82\xa4name\xa4ROOT\xa4type\xa8function", "Proton"),
        ("py-spy.raw", b" 1\n<module> (w.py:6);c (w.py:5);b (w.py:4) 31\n<module> (w.py:6) 1\n", "-f speedscope"),
        ("austin.txt", b"# mode: wall\n\nP7;T0:7;/w.py:<module>:6;/w.py:c:5 20070\n", "austin2speedscope"),
        ("a.mojo", b"MOJ\x03\x01mode\x00wall\x00", "mojo2austin"),
        ("firefox.json", b'{"meta":{"interval":1,"startTime":1.5},"threads":[]}', "profile of Firefox"),
        ("profile.pkl", pickle.dumps([("CPU", 1.5)]), "Python pickle.*tinygrad.viz.cli --json"),
        ("uftrace.folded", b"_GLOBAL__sub_I_f 2\nmain 2\nmain;f 168\nmain;f;g 4\n", "collapsed stacks"),
        ("1_kernel_stats.csv", b'"Name","Calls","TotalDurationNs"\n', "without times"),
        (
            "kernels.csv",
            b"\nNOTICE: Existing SQLite export found: r.sqlite\n\nProcessing [r.sqlite] with [cuda_gpu_trace.py]...\n"
            b"Start (ns),Duration (ns),CorrId,GrdX,Strm,Name\n100,50,1,1,7,k\n",
            "nsys export",
        ),
        ("sum.csv", b'"Time (%)","Total Time (ns)","Instances"\n', "nsys export"),
        ("prof.csv", b"==2119== NVPROF is profiling process 2119, command: a\n", "nsys, which replaces it"),
        ("ninja_log", b"# ninja log v5\n0\t54\t1795719583953398400\ta\tc464ab420d369203\n", "ninjatracing"),
        ("a.prof", marshal.dumps({("a.py", 1, "f"): ()}), "cProfile"),
        ("memray.bin", b'\x04"M\x18@@\xc0zA\x00\x00\xfa\x04memray\x00\r\x00', "memray"),
        ("flame.svg", b'<?xml version="1.0" standalone="no"?><!DOCTYPE svg PUBLIC "">', "flame graph in SVG"),
        ("run.ireeprof", b"IRPF\x01\x00\x06\x00\x18" + bytes(23), "iree-profile-render"),
        (
            "run.jsonl",
            b'{"schema_version":15,"record_type":"schema","format":"ireeperf-jsonl"}\n',
            "iree-profile-render",
        ),
        ("etdump.etdp", b"\xf4\x06\x00\x00\x08\x00\x00\x00ED00\xf8\xff\xff\xff", "etdump_to_chrome_trace.py"),
        (
            "dedicated_log_torch_trace_1.log",
            b'V1130 18:22:35.210000 5978 torch/_dynamo/utils.py:2350] {"chromium_event": {}}\n\t{\n',
            "tlparse",
        ),
        ("a.json.bz2", b"BZh91AY&SY" + bytes(50), "decompress it first"),
        ("a.zip", b"PK\x03\x04" + bytes(50), "extract it first"),
        ("a.duckdb", bytes(8) + b"DUCK" + bytes(50), "--db"),
        ("a.nsys-rep", b"\x01\x02\x03", "nsys export --type sqlite"),
        ("NVTX_EVENTS.parquet", b"PAR1" + bytes(50), "nsys export --type sqlite"),
        ("Instruction.parquet", b"PAR1" + bytes(50), r"COPY \(FROM 't.parquet'\)"),
        ("a.h5", b"\x89HDF\r\n\x1a\n" + bytes(50), "nsys export --type sqlite"),
        ("torch.op_range", b"\x01\0\x02\0\0\0ab", "next to FRAMEWORK"),
        ("aicore.data.0.slice_0", b"\x01\x02\x03", "ingest the folder around it, PROF_"),
        ("a.tracy", b"tlZ\x04" + bytes(50), "tracy-csvexport -u"),
        (
            "prof.json",
            b'[\n  { "count" : 100 }\n, { "name" : "conv", "timeMs" : 5, "averageMs" : 0.05 }\n]',
            "nsys profile",
        ),
        ("ops_perf_results.csv", b"OP CODE,OP TYPE\nMatmul,tt_dnn_device\n", r"write them as JSON with DuckDB \(COPY"),
        ("a.txt", b"hello", "not a raw log or a known trace format"),
        ("a.dat", b"", "is empty"),
    ],
)
def test_other_files_that_look_like_traces(
    name: str, text: bytes, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)  # nsys may be installed
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / name).write_bytes(text)
    for path in (tmp_path / "files" / name, tmp_path / "files"):
        with pytest.raises(InputError, match=advice if path.is_file() else "no capture") as error:
            ingest([path], tmp_path / "trace.duckdb")
        assert "\n" not in str(error.value)
    assert not (tmp_path / "trace.duckdb").exists()


@pytest.mark.parametrize(
    ("name", "text", "advice"),
    [
        ("a.pickle", pickle.dumps({"segments": [], "device_traces": [[]]}, 2), "_record_memory_history"),
        ("kernel_details.csv", b"Name,Type\n", "ingest their folder"),
        ("op_summary_0_1_1_20261128050000.csv", b"Op Name,OP Type\n", "ingest their folder"),
        ("communication.json", b'{"step":{}}', "ingest their folder"),
    ],
)
def test_what_to_do_about_a_file_that_lacks_the_rest(name: str, text: bytes, advice: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(InputError, match=advice):
        ingest([tmp_path / name], tmp_path / "trace.duckdb")


def test_an_explicit_reader_reads_any_file(tmp_path: Path) -> None:
    run, _ = taken(
        '{"nodes":[{"id":1,"callFrame":{}}],"traceEvents":[]}', tmp_path, "a.cpuprofile", reader="chrome_json"
    )
    assert run.record_count == 0


def test_each_file_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("no JSON")
    (tmp_path / "a.csv").write_text("a,b")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "b.csv").write_text("a,b")
    with pytest.raises(NothingUsable) as error:
        ingest([tmp_path], tmp_path / "trace.duckdb")
    lines = [problem.message for problem in error.value.problems]
    assert len(lines) == 3
    for path in (tmp_path / "a.csv", tmp_path / "files" / "b.csv", tmp_path / "notes.json"):
        assert any(line.startswith(f"{path} ") for line in lines)


def test_a_folder_without_anything_usable_is_explained(tmp_path: Path) -> None:
    """A part of the raw data of an Ascend NPU next to a JSON document that could have been a trace."""
    data = tmp_path / "copied" / "device_0" / "data"
    data.mkdir(parents=True)
    (data / "aicore.data.0.slice_0").write_bytes(b"\x01\x02\x03")
    with pytest.raises(
        InputError, match=r"such as aicore\.data\.0\.slice_0, which is a part of the raw data of an Ascend NPU"
    ):
        info([tmp_path])
    (data.parent / "info.json.0").write_text('{"a": 1}')
    with pytest.raises(InputError, match=r"aicore\.data\.0\.slice_0 is a part of the raw data of an Ascend NPU"):
        info([tmp_path])
