"""A lake in a bucket, on moto's server: written, read in parts, damaged, restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command
from ingest_checks import all_rows
from s3_server import empty_bucket
from store_builder import store_of_runs

import traceconv

pytest.importorskip("fsspec", reason="not installed: pip install traceconv[s3]")
pytest.importorskip("moto", reason="not installed: pip install moto[server]")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with empty_bucket() as address:
        yield address


def test_a_lake_on_s3(bucket: str, tmp_path: Path, command: Command) -> None:
    from pyarrow import fs

    store, lake = store_of_runs(tmp_path / "s.duckdb", ["a/b", None, ".."]), bucket.format("some/lake")
    words = ["export", "parquet", "--db", store, "-o", lake]
    command(*words, "--run", "1,2")
    assert "run-1 is already in s3://bucket/some/lake" in command(*words).err  # the third run is not
    question = ["op-statistic", "--run", "all", "--format", "csv"]
    expected = command("report", *question, "--db", store).out
    assert command("lake", "report", question[0], lake, *question[1:]).out == expected
    assert expected.count("\n") == 7
    done = command("lake", "query", "SELECT count(*) AS n FROM task WHERE run_id = 3", lake, "--format", "csv")
    assert done.out == "n\n3\n"
    command("lake", "query", f"FROM '{store}'", lake, code=2)
    command("lake", "list", lake, "--check", "--format", "csv")
    command("ingest", lake, "--db", tmp_path / "back.duckdb")
    assert all_rows(tmp_path / "back.duckdb") == all_rows(store)
    with traceconv.open_store(store) as opened:
        opened.export_parquet(lake, run=2, overwrite=True)
    files, top = fs.FileSystem.from_uri(lake)
    found = [one.path for one in files.get_file_info(fs.FileSelector(top, recursive=True)) if one.is_file]
    assert len([path for path in found if path.startswith(f"{top}/task/")]) == 3  # replaced files are removed
    files.delete_file(next(path for path in found if "/task/group=a%2Fb/" in path))
    out, err = command("lake", "list", lake, "--format", "csv", code=3)
    assert [line.split(",")[1] for line in out.splitlines()] == ["label", "run-2", "run-3"]
    assert "is missing; run run-1 is omitted" in err


def test_the_result_of_an_ingest_names_the_lake(bucket: str, command: Command) -> None:
    trace = Path(__file__).parents[2] / "sample_traces" / "pytorch"
    shown = command("lake", "ingest", trace, "--into", bucket.format("new/lake"))
    assert " ingested as run 1 in s3://bucket/new/lake\n" in shown.out + shown.err
    assert "endpoint_override" not in shown.out + shown.err


def test_what_is_not_there(bucket: str, command: Command) -> None:
    """One line each."""
    for path in (bucket.format("none"), bucket.replace("bucket", "nobucket").format("lake")):
        assert len(command("lake", "list", path, code=1).err.splitlines()) == 1


def test_addresses_are_checked_before_a_server_is_asked(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that can't be reached is tried for seconds, and is no misuse."""
    from pyarrow import fs

    class Unreachable:
        @staticmethod
        def from_uri(uri: str) -> None:
            raise OSError(f"When resolving region of {uri}: no such host")

    monkeypatch.setattr(fs, "FileSystem", Unreachable)
    for path in ("s3://bucket", "s3:/bucket/", "s3://KEY:SECRET@bucket?region=x"):
        assert command("lake", "list", path, code=2).err == (
            "traceconv: s3://bucket: a lake needs a folder in the bucket, such as s3://bucket/lake\n"
        )
    assert command("lake", "list", "s3://KEY:SECRET@bucket/lake", code=1).err == (
        "traceconv: can't read s3://bucket/lake: When resolving region of s3://bucket/lake: no such host\n"
    )


@pytest.mark.parametrize("rest", ["bucket/lake?bad=1", "bu cket/lake"])
def test_keys_in_an_address_are_not_shown(rest: str, command: Command) -> None:
    for keys in ("KEY:SECRET", "KEY:SEC/RET", "KEY:SEC:RET"):
        err = command("lake", "list", f"s3://{keys}@{rest}", code=2).err
        assert "s3://" + rest.partition("?")[0] in err
        assert len(err.splitlines()) == 1
        assert "KEY" not in err
        assert "SEC" not in err
        assert "RET" not in err
