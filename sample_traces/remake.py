"""Makes the sample captures again, as MANIFEST.toml says, and renews the digests in it.

    python sample_traces/remake.py

Do it when the log's format, the runtime or the version has changed; `tests/unit/test_samples.py` fails
until then, since a sample must be what its command gives.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

#: Folder → what it shows and the command that makes it, run from the root of the project.
SAMPLES = {
    "mini_resnet": (
        "A small residual network: convolutions fused with normalisation, residual sums, pooling.",
        "traceconv record mini_resnet -o sample_traces/mini_resnet --iterations 8 --warmup 2 --seed 1 --deterministic",
    ),
    "mini_transformer": (
        "Two transformer blocks, batch 2: attention, layer normalisation, GELU fused into a matrix product.",
        "traceconv record mini_transformer -o sample_traces/mini_transformer"
        " --batch 2 --iterations 6 --warmup 1 --seed 2 --deterministic",
    ),
}


def digests(folder: Path) -> dict[str, str]:
    """Path below `folder` → SHA-256 of every file there."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def manifest() -> str:
    """The text of MANIFEST.toml for the samples as they are."""
    lines = ["# Made by sample_traces/remake.py: what each sample is, how to make it again, what it must be."]
    for name, (doc, command) in SAMPLES.items():
        lines += [
            "",
            "[[samples]]",
            f'folder = "{name}"',
            f'doc = "{doc}"',
            f'command = "{command}"',
            "[samples.sha256]",
        ]
        lines += [f'"{path}" = "{digest}"' for path, digest in digests(HERE / name).items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    for name, (_, command) in SAMPLES.items():
        shutil.rmtree(HERE / name, ignore_errors=True)
        program = "import sys; from traceconv.cli.app import run; sys.exit(run(sys.argv[1:]))"
        subprocess.run([sys.executable, "-c", program, *shlex.split(command)[1:]], check=True, cwd=HERE.parent)
    (HERE / "MANIFEST.toml").write_text(manifest(), encoding="utf-8")


if __name__ == "__main__":
    main()
