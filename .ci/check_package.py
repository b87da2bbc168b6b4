"""Is the installed package whole? Run by the Python that has the wheel, where the checkout can't be imported.

Every data file of the checkout must be in the package, and `traceconv schema` must find its schemas.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import traceconv
from traceconv.schema import records, tables

ROOT = Path(__file__).resolve().parents[1]
#: Folder of the checkout → the package that it becomes.
FOLDERS = {"schemas": "traceconv.schemas", "traceconv": "traceconv"}


def main() -> None:
    """Ends with a sentence on stderr and 1 when something is missing."""
    if ROOT in Path(traceconv.__file__).resolve().parents and "site-packages" not in traceconv.__file__:
        sys.exit(f"package: {traceconv.__file__} is the checkout, not the wheel")
    missing = []
    for folder, package in FOLDERS.items():
        installed = resources.files(package)
        for path in sorted((ROOT / folder).rglob("*")):
            place = path.relative_to(ROOT / folder)
            if path.is_file() and "__pycache__" not in place.parts and not (installed / str(place)).is_file():
                missing.append(f"{folder}/{place}")
    if missing:
        sys.exit(f"package: not in the wheel: {', '.join(missing)}")
    program = Path(sys.executable).parent / "traceconv"
    listing = subprocess.run([program, "schema"], capture_output=True, text=True, check=False)
    if listing.returncode or not all(name in listing.stdout for name in tables()):
        sys.exit(f"package: `traceconv schema` fails: {listing.stderr or listing.stdout}")
    print(f"package: {len(tables())} tables, {len(records())} records, all data files in the wheel")


if __name__ == "__main__":
    main()
