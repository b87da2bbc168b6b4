"""Make the import of pyarrow's functions cheap: each is wrapped when it is used first.

`pyarrow.compute` builds a documented wrapper for each of Arrow's 300 functions when it is imported, which takes longer
than an ingest of a small trace spends on its rows; a command uses a few of them.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader

_NAME = "pyarrow.compute"
#: Functions that the module uses while it is imported.
_AT_IMPORT = ("utf8_zero_fill",)
#: Names of functions whose names in Arrow, under which they exist, too, are keywords of Python.
_KEYWORDS = ("and", "or")


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the module, with a loader that defines few functions."""
        if name != _NAME:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyLoader(spec.loader)  # type: ignore[assignment] # importlib.abc takes long to import
        return spec


class _LazyLoader:
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        import pyarrow._compute as compiled

        function_registry = compiled.function_registry
        few = _FewFunctions(function_registry())
        compiled.function_registry = lambda: few
        try:
            self._loader.exec_module(module)
        except (AttributeError, KeyError, NameError, TypeError):  # another version, which uses more: import it as it is
            compiled.function_registry = function_registry
            for name in _AT_IMPORT:
                vars(module).pop(name, None)
            self._loader.exec_module(module)
            return
        finally:
            compiled.function_registry = function_registry
        vars(module)["function_registry"] = function_registry
        wrap = vars(module)["_wrap_function"]

        def wrapped(name: str) -> object:
            arrow_name = name.removesuffix("_")
            if arrow_name not in _KEYWORDS:
                arrow_name = name
            try:
                function = function_registry().get_function(arrow_name)
            except KeyError:
                function = None
            if function is None or function.kind == "hash_aggregate":
                raise AttributeError(f"module '{_NAME}' has no attribute '{name}'", name=name, obj=module)
            exposed = f"{arrow_name}_" if arrow_name in _KEYWORDS else arrow_name
            made: object = wrap(exposed, function)
            vars(module)[arrow_name] = vars(module)[exposed] = made
            return made

        vars(module)["__getattr__"] = wrapped


class _FewFunctions:
    """Arrow's registry, which lists only the functions used at import."""

    def __init__(self, registry: Any) -> None:
        self.get_function = registry.get_function
        self._names = [name for name in _AT_IMPORT if name in registry.list_functions()]

    def list_functions(self) -> list[str]:
        return self._names


def wrap_functions_on_use() -> None:
    """Prepare this process, which runs only our code, before pyarrow's functions are imported."""
    sys.meta_path.insert(0, _Finder)
