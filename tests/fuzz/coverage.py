"""The same targets, guided by coverage: atheris generates the inputs if it is installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def instrument() -> None:
    """Loads the project so that atheris sees which of its branches are taken; does nothing without atheris."""
    try:
        import atheris  # type: ignore[import-not-found, unused-ignore]  # optional
    except ImportError:
        return
    with atheris.instrument_imports(include=["traceconv"], enable_loader_override=False):
        importlib.import_module(f"{__package__}.targets")


def fuzz_with_coverage(names: list[str], out: Path) -> int:
    """Runs until it is stopped or finds a failure. Exit code 0, with a message, if atheris is missing."""
    try:
        import atheris  # type: ignore[import-not-found, unused-ignore]  # optional
    except ImportError:
        print("atheris is not installed (pip install 'traceconv[fuzz]', Python 3.11 to 3.13): nothing was done")
        return 0
    from traceconv.base.errors import TraceconvError

    from .engine import Fuzzer, keep

    fuzzer = Fuzzer(names, 0, out)
    seeds = out / "corpus" / "-".join(names)
    seeds.mkdir(parents=True, exist_ok=True)
    for place, target in enumerate(fuzzer.targets):
        for number, (_, data) in enumerate(target.samples):
            (seeds / f"{target.name}-{number}").write_bytes(bytes((place, number % 256)) + data)

    def try_one(data: bytes) -> None:
        """The first byte tells the target, the second one the sample whose name the rest has."""
        if len(data) < 3:
            return
        target = fuzzer.targets[data[0] % len(fuzzer.targets)]
        one = target.samples[data[1] % len(target.samples)][0], data[2:]
        try:
            target.run(one)
        except TraceconvError:
            pass
        except Exception as error:
            keep(out, target.name, one, repr(error))
            raise

    atheris.Setup([sys.argv[0], str(seeds), "-rss_limit_mb=3000", "-timeout=20"], try_one)
    atheris.Fuzz()
    return 0
