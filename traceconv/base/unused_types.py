"""Hide types of other packages that don't occur here from pyarrow, which would load the packages to recognise them."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

_MASKED = "numpy.ma"


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse the import."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by the command line", name=name)


class _NoMaskedArrays(ModuleType):
    """Stands in for numpy.ma until something is needed other than what recognises masked arrays."""

    class MaskedArray:
        """The type of no array."""

    @staticmethod
    def is_masked(values: object) -> bool:
        """Whether any value is masked."""
        return False

    def __getattr__(self, name: str) -> object:
        if _MASKED not in sys.modules:  # it is being imported
            raise AttributeError(name)
        if _MaskedArrayFinder in sys.meta_path:
            sys.meta_path.remove(_MaskedArrayFinder)
            del sys.modules[_MASKED]
        return getattr(importlib.import_module(_MASKED), name)


class _MaskedArrayFinder(Loader):
    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find the substitute."""
        return ModuleSpec(name, cls()) if name == _MASKED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _NoMaskedArrays(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


def hide_unused_types() -> None:
    """Prevent imports in a process that runs only our code: that of pandas takes longer than all others together."""
    sys.meta_path[:0] = [_NoPandas, _MaskedArrayFinder]
