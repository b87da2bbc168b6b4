"""Rank, host and group of a run from its content, its path and the user; and labels of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceconv.base.errors import UsageError
from traceconv.formats.common.identity import (
    Identity,
    Naming,
    epoch_offset_ns,
    names_of,
    of_facts,
    of_keys,
    rank_pattern,
)


@pytest.mark.parametrize(
    ("path", "rank", "host"),
    [
        ("rank0/trace.json", 0, None),
        ("job/rank_3/trace.json", 3, None),
        ("job/RANK-12/out/trace.json", 12, None),
        ("rank=5/t.json", 5, None),
        ("worker-2/trace.json", 2, None),
        ("trainer-7f9c-worker-3/trace.json", 3, None),
        ("trace_rank_4.json", 4, None),
        ("kineto_resnet50_worker0.pt.trace.json.gz", 0, None),
        ("rank1/trace_rank_7.json", 7, None),  # the name of the file is nearest
        ("node-07/rank3.json", 3, "node-07"),
        ("host=gpu-a.lan/t.json", None, "gpu-a.lan"),
        ("hosta.lan_4711.1623143089861.pt.trace.json", None, "hosta.lan"),
        ("log/worker0_4711.1623143089861.pt.trace.json", 0, None),
        ("plugins/profile/2024_01_02/tpu-vm-1.trace.json.gz", None, "tpu-vm-1"),
        ("tp_rank_1/trace.json", None, None),  # ranks inside of a dimension are not the rank in the job
        ("local_rank3.json", None, None),
        ("localrank3.json", None, None),
        ("global_rank3.json", 3, None),
        ("frank3.json", None, None),
        ("worker.json", None, None),
        ("rank99999999999.json", None, None),
        ("rank٣.json", None, None),
        ("node_modules/t.json", None, None),
        ("trace.json", None, None),
    ],
)
def test_names_of_files_and_folders(path: str, rank: int | None, host: str | None) -> None:
    (names,) = names_of([(Path(path), None)], Naming())
    assert (names.by_path.rank, names.by_path.host) == (rank, host)


def test_the_folder_of_torch_npu_has_the_host() -> None:
    (names,) = names_of([(Path("out/node7_12345_20240102030405678_ascend_pt"), None)], Naming())
    assert names.by_path.host == "node7"


def test_folders_far_above_a_named_file_are_not_used() -> None:
    (names,) = names_of([(Path("/home/worker1/a/b/c/trace.json"), None)], Naming())
    assert names.by_path.rank is None


def test_only_the_path_from_the_searched_folder_on_is_used(tmp_path: Path) -> None:
    top = tmp_path / "rank9"
    path = top / "a/b/c/d/e/trace.json"
    (names,) = names_of([(path, top)], Naming())
    assert names.by_path.rank == 9
    assert names.columns().group_label == tmp_path.name


def keys(**values: object) -> dict[str, bytes]:
    return {key: json.dumps(value).encode() for key, value in values.items()}


def test_metadata_next_to_the_events() -> None:
    assert of_keys(keys(distributedInfo={"rank": 3, "world_size": 8})) == Identity(3)
    assert of_keys(keys(host_name="a.lan", mast_job_name="job7", rank="12")) == Identity(12, "a.lan", "job7")
    assert of_keys({"rocprofiler-sdk-tool": b'{"node":{"hostname":"gpu1"}}'}) == Identity(None, "gpu1")
    assert of_keys({"nsys_export": b'{"TARGET_INFO_SYSTEM_ENV":{"Hostname":"gpu2"}}'}) == Identity(None, "gpu2")


@pytest.mark.parametrize(
    "value", [None, [], "x", -1, 1.0, True, 2**40, {"rank": "a"}, {"rank": -1}, {"rank": True}, {"rank": [0]}]
)
def test_invalid_values_are_unknown(value: object) -> None:
    assert of_keys(keys(distributedInfo=value)) == Identity()


def test_damaged_text_next_to_the_events_is_unknown() -> None:
    assert of_keys({"distributedInfo": b'{"rank": 3', "host_name": b'"\xff"', "hostname": b"[" * 100_000}) == Identity()


def test_facts_of_torch_npu_and_msprof() -> None:
    facts = {"profiler_info_1.json": {"rank_id": 1}, "info.json.0": {"hostname": "A2007", "rank_id": 0}, "x": [1]}
    assert of_facts(facts) == Identity(1, "A2007")
    assert of_facts({"info.json": {"rank_id": -1, "hostname": ""}}) == Identity()


def test_the_file_overrides_its_name_and_the_user_both() -> None:
    naming = Naming(rank_pattern(r"/g(?P<rank>\d+)-(?P<host>[a-z]+)\."), "mine")
    (names,) = names_of([(Path("rank1/g7-abc.json"), None)], Naming())
    assert names.columns(Identity(3)).rank == 3
    (names,) = names_of([(Path("rank1/g7-abc.json"), None)], naming)
    columns = names.columns(Identity(3, "other", "job"))
    assert (columns.rank, columns.host, columns.group_label) == (7, "abc", "mine")


@pytest.mark.parametrize("text", ["(", "rank[0-9]+", "(?P<ranks>x)", "(?P<rank>[[0-9]])"])
def test_a_pattern_without_groups_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="rank_pattern"):
        rank_pattern(text)


def labels(*paths: str) -> list[str]:
    return [names.label for names in names_of([(Path(path), None) for path in paths], Naming())]


def test_labels_of_runs_distinguish_them() -> None:
    assert labels("/x/a.json", "/x/b.json") == ["a.json", "b.json"]
    assert labels("/x/rank0/t.json", "/x/rank1/t.json", "/x/u.json") == ["rank0/t.json", "rank1/t.json", "u.json"]
    assert labels("/x/a/out/t.json", "/x/b/out/t.json") == ["a/out/t.json", "b/out/t.json"]
    assert labels("/t.json", "/x/t.json") == ["t.json", "x/t.json"]


def groups(*paths: str, rank: int | None = None) -> list[str | None]:
    found = names_of([(Path(path), None) for path in paths], Naming())
    return [names.columns(Identity(rank)).group_label for names in found]


def test_a_group_has_the_name_of_the_folder_that_contains_its_ranks() -> None:
    assert groups("/d/job7/rank0/t.json", "/d/job7/rank1/t.json") == ["job7", "job7"]
    assert groups("/d/job7/node-1/rank0/t.json", "/d/job7/node-2/rank1/t.json") == ["job7", "job7"]
    assert groups("/d/a/ranks/rank0.json", "/d/b/ranks/rank0.json") == ["a/ranks", "b/ranks"]
    assert groups("/d/job7/t.json") == [None]
    assert groups("/d/job7/t.json", "/d/job7/u.json", rank=1) == ["job7", "job7"]


def test_folders_with_one_recording_each_are_of_one_group() -> None:
    assert groups("/d/job7/0/t.json", "/d/job7/1/t.json", rank=1) == ["job7", "job7"]


def test_time_zero_of_a_trace() -> None:
    now = 1_700_000_000 * 10**9
    base = {"baseTimeNanoseconds": str(now).encode()}
    assert epoch_offset_ns({}, now) == 0
    assert epoch_offset_ns(base, now) == 0  # its times are since 1970 already
    assert epoch_offset_ns(base, 1234) == now
    assert epoch_offset_ns({}, 1234) is None
    assert epoch_offset_ns({"baseTimeNanoseconds": b"17.5"}, 1234) is None
    assert epoch_offset_ns({"baseTimeNanoseconds": b"17"}, 1234) is None
    assert epoch_offset_ns(base, None) is None
    session = {"nsys_export": json.dumps({"session_start": {"utcEpochNs": now}}).encode()}
    assert epoch_offset_ns(session, 5) == now
