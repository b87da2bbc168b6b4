"""The folder that is exported for a capture: every file, its labels, first lines and kinds of events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from traceconv.cli import app

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "mini_resnet"


def digest(folder: Path) -> str:
    """README.txt, the first lines of each table, and of each timeline the metadata and the first events of a kind."""
    lines = [(folder / "README.txt").read_text("utf-8")]
    for path in sorted(folder.iterdir()):
        if path.suffix == ".csv":
            text = path.read_text("utf-8").splitlines()
            lines += [f"== {path.name}: {len(text)} lines", *text[:3]]
        if path.suffix == ".json":
            events = path.read_text("utf-8").splitlines()[1:-1]
            lines.append(f"== {path.name}: {len(events)} events")
            seen: dict[object, int] = {}
            for text_of_event in events:
                event = json.loads(text_of_event.rstrip(","))
                kind: object = (event["pid"], event["ph"], event["name"].partition("@")[0][:13], *event.get("args", {}))
                if event["ph"] == "M":
                    kind = text_of_event
                seen[kind] = seen.get(kind, 0) + 1
                if seen[kind] == 1:
                    lines.append(text_of_event)
    return "\n".join(lines) + "\n"


def test_the_folder_of_a_sample(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    store = tmp_path / "trace.duckdb"
    assert app.run(["ingest", str(SAMPLE), "--db", str(store)]) == 0
    assert app.run(["export", "msprof", "--db", str(store), "-o", str(tmp_path)]) == 0
    golden("msprof_folder.txt", digest(tmp_path / "mindstudio_profiler_output"))
