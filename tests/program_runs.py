"""Run Python programs in this process: starting one, with the imports, takes longer than most programs do."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

import pytest


def run_python(arguments: Sequence[str]) -> int:
    """Do as `python SCRIPT …` or `python -c CODE …` in the working directory; return the exit code."""
    script, *others = arguments
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", others if script == "-c" else [*arguments])
        try:
            if script == "-c":
                main = ModuleType("__main__")
                patch.setitem(sys.modules, "__main__", main)
                exec(others[0], vars(main))
            else:
                runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:  # noqa: BLE001 - as the interpreter does
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
    return 0
