"""Check that the installed wheel is complete: it has all data files, and `traceconv schema` finds its schemas.

Run it with the Python in which the wheel is installed, where the checkout can't be imported.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import traceconv
from traceconv.schema import records, tables

ROOT = Path(__file__).resolve().parents[1]
#: Folder of the checkout → package.
FOLDERS = {"schemas": "traceconv.schemas", "traceconv": "traceconv"}


def main() -> None:
    """Exit with an error on stderr and code 1 if something is missing."""
    if ROOT in Path(traceconv.__file__).resolve().parents and "site-packages" not in traceconv.__file__:
        sys.exit(f"package: {traceconv.__file__} is the checkout, not the wheel")
    missing = []
    for folder, package in FOLDERS.items():
        installed = resources.files(package)
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT / folder)
            if path.is_file() and "__pycache__" not in relative.parts and not (installed / str(relative)).is_file():
                missing.append(f"{folder}/{relative}")
    if missing:
        sys.exit(f"package: not in the wheel: {', '.join(missing)}")
    program = Path(sys.executable).parent / "traceconv"
    listing = subprocess.run([program, "schema"], capture_output=True, text=True, check=False)
    if listing.returncode or not all(name in listing.stdout for name in tables()):
        sys.exit(f"package: `traceconv schema` fails: {listing.stderr or listing.stdout}")
    print(f"package: {len(tables())} tables, {len(records())} records, all data files in the wheel")


if __name__ == "__main__":
    main()
