"""`check_wheel.py WHEEL`: load the C extension of a wheel in every installed Python that the wheel supports.

A wheel built by Python 3.11 or newer supports all versions from 3.11; one built by 3.10 supports 3.10 only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_LOAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
found = native.events(b'{"ph":"X","ts":1},{"ph":"X","ts":2}', False, (b"ph",), (b"ts",), False)
assert found[0] == 2 and found[2][0][1] == [b'"X"'], found
assert native.Nester().finish() == (b"", b"")
"""


def pythons() -> dict[tuple[int, int], str]:
    """The interpreters in PATH and in pyenv's folder, one per version; the running one for its own version."""
    folders = [*map(Path, os.get_exec_path()), *Path.home().glob(".pyenv/versions/*/bin")]
    found = {}
    for path in sorted({path for folder in folders for path in folder.glob("python3.*")}):
        version = re.fullmatch(r"python3\.(\d+)", path.name)
        if version and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            found[3, int(version[1])] = str(path)
    return {**found, sys.version_info[:2]: sys.executable}


def main() -> None:
    """Exit with an error on stderr and code 1 if the extension does not load."""
    wheel = Path(sys.argv[1])
    this = sys.version_info[:2]
    tag = "cp311-abi3" if this >= (3, 11) else f"cp{this[0]}{this[1]}-cp{this[0]}{this[1]}"
    if f"-{tag}-" not in wheel.name:
        sys.exit(f"wheel: {wheel.name} is not tagged {tag}")
    loaded = []
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        if len(modules) != 1:
            sys.exit(f"wheel: {wheel.name} has {len(modules)} C extensions instead of one: {', '.join(modules)}")
        module = archive.extract(modules[0], folder)
        for version, python in sorted(pythons().items()):
            if version == this or min(version, this) >= (3, 11):
                done = subprocess.run([python, "-c", _LOAD, module], capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(f"wheel: {python} can't load {modules[0]}:\n{done.stderr}")
                loaded.append(".".join(map(str, version)))
    print(f"wheel: {wheel.name}, C extension loaded by Python {', '.join(loaded)}")


if __name__ == "__main__":
    main()
