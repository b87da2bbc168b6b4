"""The small JSON files of a folder, each read at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import printable
from traceconv.formats.chrome_json.patch import patch


def read_json(path: Path, name: str, most_bytes: int, log: ImportLog) -> Any:
    """Return the content of a file, repaired if it is not standard JSON; None if it can't be used.

    name  path of the file within the folder, for messages
    """
    try:
        with path.open("rb") as file:
            text = file.read(most_bytes + 1)
        if len(text) > most_bytes:
            raise ValueError(f"it is larger than {most_bytes >> 20} MB")
        repaired = patch(text)
        found = json.loads(repaired.text)
    except (OSError, ValueError, RecursionError) as error:
        log.add(Code.DAMAGED_TEXT, f"{name}: {printable(str(error))}")
        return None
    if repaired.what:
        log.add(Code.ODD_JSON, f"{name}: {', '.join(repaired.what)}")
    return found
