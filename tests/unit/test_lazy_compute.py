"""Functions of Arrow that are wrapped when they are used first are the same as those of a normal import."""

from __future__ import annotations

import subprocess
import sys

_SAME = """
import sys
import pyarrow as pa
import pyarrow.compute as usual
from traceconv.base.lazy_compute import wrap_functions_on_use

wrap_functions_on_use()
del sys.modules["pyarrow.compute"], pa.compute
import pyarrow.compute as lazy

assert lazy is not usual and lazy.function_registry is usual.function_registry
assert "if_else" not in vars(lazy)
for name, function in vars(usual).items():
    if callable(function) and hasattr(function, "__arrow_compute_function__"):
        other = getattr(lazy, name)
        for of in ("__name__", "__doc__", "__signature__", "__arrow_compute_function__"):
            assert getattr(other, of) == getattr(function, of), (name, of)
        assert getattr(lazy, name) is other
    else:
        assert name.startswith("__") or name in vars(lazy), name
assert lazy.equal(pa.array([1, 2]), 2).to_pylist() == [False, True]
assert pa.array(["a", None]).fill_null("b").to_pylist() == ["a", "b"]
for missing in ("no_such_function", "hash_sum"):
    assert not hasattr(usual, missing) and not hasattr(lazy, missing), missing
"""

_OTHER_VERSION = """
import sys
import traceconv.base.lazy_compute as module

module._AT_IMPORT = ()
module.wrap_functions_on_use()
import pyarrow.compute as pc

assert "if_else" in vars(pc) and "utf8_zfill" in vars(pc)
"""


def _run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_functions_are_the_same() -> None:
    _run(_SAME)


def test_a_module_that_uses_other_functions_at_import_is_imported_as_it_is() -> None:
    _run(_OTHER_VERSION)
