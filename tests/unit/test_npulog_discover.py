"""Captures are found in the given paths in a fixed order; errors are one line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from capture_builder import CaptureBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.base.errors import InputError
from traceconv.formats.common import folder_walk
from traceconv.formats.npulog.discover import CaptureFolder, find_captures, fingerprint
from traceconv.formats.npulog.manifest import ManifestProblem, parse_manifest


def make(folder: Path, **options: Any) -> Path:
    builder = CaptureBuilder(folder, **options)
    for number in range(4):
        builder.call(number + 1, 10 * number, 10 * number + 5)
    return builder.task(1, 5, 9).close()


def paths_of(captures: list[CaptureFolder], below: Path) -> list[str]:
    return [str(capture.path.relative_to(below)) for capture in captures]


def test_a_capture_folder(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    (capture,) = find_captures([folder])
    assert capture.path == folder
    assert [file.relative_path for file in capture.files] == [
        "host/data/api.slice_0.bin",
        "host/data/dictionary.slice_0.bin",
        "device_0/data/task.slice_0.bin",
    ]
    assert [(file.record, file.device_id, file.slice_index) for file in capture.files] == [
        ("api", None, 0),
        ("dictionary", None, 0),
        ("task", 0, 0),
    ]
    assert all(file.size_bytes == file.path.stat().st_size for file in capture.files)
    assert capture.manifest is not None
    assert (capture.manifest.writer_id, capture.manifest_problem, capture.missing) == (7, None, ())
    assert {file.path: file.record_count for file in capture.manifest.files} == {
        "host/data/api.slice_0.bin": 8,
        "host/data/dictionary.slice_0.bin": 1,
        "device_0/data/task.slice_0.bin": 2,
    }


def test_slices_and_devices_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "PROF_1", devices=(0, 2, 10), slice_bytes=1, block_bytes=40)
    for number in range(12):
        builder.add("api", host_ns=number)
    for device_id in (0, 2, 10):
        builder.add("task", device_id)
    (capture,) = find_captures([builder.close()])
    assert [(f.device_id, f.slice_index) for f in capture.files] == [
        *((None, index) for index in range(12)),
        (0, 0),
        (2, 0),
        (10, 0),
    ]


def test_captures_below_a_folder_are_sorted_by_name_with_numbers_by_value(tmp_path: Path) -> None:
    for name in ("b/x/PROF_2", "a/PROF_9", "a/PROF_10", "PROF_1"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        make(tmp_path / name)
    assert paths_of(find_captures([tmp_path]), tmp_path) == ["PROF_1", "a/PROF_9", "a/PROF_10", "b/x/PROF_2"]


def test_a_capture_named_twice_is_found_once(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    api = folder / "host/data/api.slice_0.bin"
    captures = find_captures([api, tmp_path, folder, folder / "host" / ".." / ".." / "PROF_1", api])
    assert len(captures) == 1
    assert len(captures[0].files) == 3


def test_links_in_circles_end(tmp_path: Path) -> None:
    make(tmp_path / "PROF_1")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "back").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    assert paths_of(find_captures([tmp_path]), tmp_path) == ["PROF_1"]


def test_depth_is_bounded(tmp_path: Path) -> None:
    near = tmp_path.joinpath(*"1234567")
    far = tmp_path.joinpath(*"abcdefghijkl")
    for folder in (near, far):
        folder.mkdir(parents=True)
        make(folder / "PROF_1")
    assert paths_of(find_captures([tmp_path]), tmp_path) == ["1/2/3/4/5/6/7/PROF_1"]


def test_too_many_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_walk, "MAX_FOLDERS", 3)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    with pytest.raises(InputError, match="contains more than 3 folders; specify one"):
        find_captures([tmp_path])


def test_a_single_file_is_a_capture_of_that_file_alone(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    (capture,) = find_captures([folder / "device_0/data/task.slice_0.bin"])
    assert (capture.path, [file.relative_path for file in capture.files]) == (
        folder,
        ["device_0/data/task.slice_0.bin"],
    )
    assert capture.manifest is not None
    assert [file.path for file in capture.manifest.files] == ["device_0/data/task.slice_0.bin"]
    assert capture.missing == ()


def test_files_of_one_capture_are_one_capture(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    (capture,) = find_captures(sorted(folder.glob("*/data/*.bin")))
    assert len(capture.files) == 3


def test_a_file_outside_of_a_capture(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    shutil.copy(folder / "host/data/api.slice_0.bin", tmp_path / "my copy.bin")
    (capture,) = find_captures([tmp_path / "my copy.bin"])
    (file,) = capture.files
    assert (file.relative_path, file.record, file.device_id) == ("my copy.bin", "my copy", None)
    assert (capture.manifest, capture.manifest_problem) == (None, None)


def test_the_manifest_names_its_capture(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    (capture,) = find_captures([folder / "manifest.json"])
    assert len(capture.files) == 3


def test_a_truncated_capture_is_reported(tmp_path: Path) -> None:
    folder = CaptureBuilder(tmp_path / "PROF_1").call(1, 2, 3).cut()
    (capture,) = find_captures([folder])
    assert capture.manifest is None
    assert capture.manifest_problem == "missing: the recording is incomplete"


def test_files_named_by_the_manifest_that_are_missing(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    (folder / "host/data/api.slice_0.bin").unlink()
    (capture,) = find_captures([folder])
    assert capture.missing == ("host/data/api.slice_0.bin",)


def test_a_capture_of_which_only_the_manifest_is_left(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    for path in folder.glob("*/data/*.bin"):
        path.unlink()
    (capture,) = find_captures([tmp_path])
    assert (len(capture.missing), capture.files) == (3, ())


def test_names_that_are_not_valid_text(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    odd = os.fsencode(folder / "host/data") + b"/\xff\x1b[2J.bin"
    Path(os.fsdecode(odd)).write_bytes(b"x")
    (capture,) = find_captures([folder])
    assert len(capture.files) == 4
    assert fingerprint(capture)


REFUSED = {
    "nothing": "does not exist",
    "empty": "empty is empty; specify a capture",
    "other": "no capture found \\(looked for host/data/\\*.bin",
    "bare": "no capture found",
    "empty.bin": "is empty",
    "zeros.bin": "is not a raw log",
    "text.txt": "is not a raw log",
    "text.txt/x": "does not exist",
    "pipe": "is neither a file nor a folder; pipe a trace through standard input",
    "loop": "loop: Too many levels of symbolic links",
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_folders_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other/host/data").mkdir(parents=True)
    (tmp_path / "other/notes.txt").write_text("x")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/manifest.json").write_text('{"format": "something else"}')
    (tmp_path / "empty.bin").touch()
    (tmp_path / "zeros.bin").write_bytes(bytes(10_000))
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=REFUSED[name]) as caught:
        find_captures([tmp_path / name])
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_folders_without_read_permission(folder_of_a_user: Path) -> None:
    folder = make(folder_of_a_user / "PROF_1")
    locked = folder_of_a_user / "locked"
    locked.mkdir(mode=0)
    (folder / "device_0/data").chmod(0)
    with pytest.raises(InputError, match=r"can't read .*locked: Permission denied"):
        find_captures([locked])
    (capture,) = find_captures([folder_of_a_user])
    assert capture.path == folder
    assert capture.unreadable == ("device_0/data",)
    shutil.rmtree(folder / "host")
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no capture found .*; some folders can't be read, such as "):
        find_captures([folder_of_a_user])


def test_a_control_character_in_a_path_does_not_reach_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        find_captures([tmp_path / "a\x1b[2J\nb"])
    assert str(caught.value).isprintable()


def test_a_path_with_a_zero_byte() -> None:
    with pytest.raises(InputError):
        find_captures([Path("a\0b")])


# The manifest

SOUND: dict[str, Any] = {
    "format": "npulog",
    "version": 1,
    "writer_id": "00000000000000ff",
    "files": [
        {
            "path": "host/data/api.slice_0.bin",
            "record": "api",
            "size_bytes": 1,
            "first_sequence": 0,
            "record_count": 2,
        }
    ],
    "model": "resnet",
}


def test_a_sound_manifest() -> None:
    manifest = parse_manifest(SOUND)
    assert (manifest.writer_id, dict(manifest.extra)) == (255, {"model": "resnet"})


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", ".", "a//b", "a\0b", "..\\x", 3, None])
def test_paths_that_leave_the_capture_are_refused(path: object) -> None:
    raw = {**SOUND, "files": [{**SOUND["files"][0], "path": path}]}
    with pytest.raises(ManifestProblem, match=r"is not a path inside the capture|Expected `str`.*path"):
        parse_manifest(raw)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, r"\$\.format"),
        ({"version": True}, "version"),
        ({"version": 0}, "version"),
        ({"writer_id": 5}, "writer_id"),
        ({"writer_id": "g"}, "writer_id"),
        ({"writer_id": "1" * 17}, "writer_id"),
        ({"files": {}}, r"Expected `array`.*files"),
        ({"files": [1]}, "Expected `object`"),
        ({"files": SOUND["files"] * 2}, "duplicate file"),
        ({"files": [{**SOUND["files"][0], "size_bytes": -1}]}, "Expected `int`.*size_bytes"),
        ({"files": [{**SOUND["files"][0], "record_count": 1 << 63}]}, "Expected `int`.*record_count"),
        ({"files": [{**SOUND["files"][0], "first_sequence": 1.5}]}, "Expected `int`.*first_sequence"),
        ({"files": [{**SOUND["files"][0], "record": None}]}, "Expected `str`.*record"),
    ],
)
def test_invalid_manifests_are_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestProblem, match=message):
        parse_manifest({**SOUND, **change})


@pytest.mark.parametrize("content", [b"", b"{", b"[1", b"[]", b"\xff\xfe", b'{"a":' * 100_000, b"1" * 5000, b"NaN"])
def test_an_invalid_manifest_is_a_problem_and_the_files_are_found(tmp_path: Path, content: bytes) -> None:
    folder = make(tmp_path / "PROF_1")
    (folder / "manifest.json").write_bytes(content)
    (capture,) = find_captures([folder])
    assert capture.manifest is None
    assert capture.manifest_problem is not None
    assert capture.manifest_problem.startswith("invalid: ")
    assert len(capture.files) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SOUND, *SOUND["files"][0]]), inner),
)


@settings(max_examples=25)
@given(changes=st.dictionaries(st.sampled_from(sorted(SOUND)), JSON), as_is=JSON)
def test_any_json_is_a_manifest_or_a_problem(changes: dict[str, Any], as_is: Any) -> None:
    for raw in ({**SOUND, **changes}, as_is):
        try:
            parse_manifest(json.loads(json.dumps(raw)))
        except ManifestProblem as problem:
            assert str(problem).startswith("invalid: ")


# The fingerprint


def fingerprint_of(folder: Path) -> str:
    (capture,) = find_captures([folder])
    return fingerprint(capture)


def test_a_fingerprint_identifies_a_capture_in_any_folder(tmp_path: Path) -> None:
    one = make(tmp_path / "PROF_1")
    shutil.copytree(one, tmp_path / "elsewhere" / "renamed")
    assert fingerprint_of(one) == fingerprint_of(tmp_path / "elsewhere" / "renamed")


def test_a_fingerprint_changes_with_a_changed_a_longer_and_a_missing_file(tmp_path: Path) -> None:
    folder = make(tmp_path / "PROF_1")
    file = folder / "host/data/api.slice_0.bin"
    content = file.read_bytes()
    seen = {fingerprint_of(folder)}
    file.write_bytes(content + b"x")
    seen.add(fingerprint_of(folder))
    file.write_bytes(content[:-1] + b"x")
    seen.add(fingerprint_of(folder))
    file.unlink()
    seen.add(fingerprint_of(folder))
    assert len(seen) == 4
