"""Keep imports of other packages from loading what is not used here, such as pandas, which pyarrow only recognises."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Refusal:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas, which pyarrow imports if it is installed, to recognise its types."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by the command line", name=name)


class _StandIn(ModuleType):
    """A module with few names, which others import. Asked for another name, it loads the module itself."""

    def __getattr__(self, name: str) -> object:
        package = sys.modules.get(self.__name__.partition(".")[0])
        is_importing = package is None or getattr(package.__spec__, "_initializing", False)
        if self.__name__ not in sys.modules or (is_importing and name.startswith("__")):
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


class _StandInFinder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find the stand-in."""
        return ModuleSpec(name, _StandInFinder()) if name in _NAMES else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create the stand-in."""
        found = _StandIn(spec.name)
        vars(found).update(_NAMES[spec.name]())
        return found

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


class _MaskedArray:
    """The type of no array."""


def _on_use(module: str, name: str) -> Callable[..., Any]:
    """A function that loads the module when it is called."""
    return lambda *given, **named: getattr(_real(module), name)(*given, **named)


def _linear_algebra() -> dict[str, object]:
    return {name: _on_use("numpy.linalg", name) for name in ("eigvals", "inv", "lstsq", "matrix_power")}


def _duckdb_version() -> dict[str, object]:
    import _duckdb

    found = _duckdb.__version__.removeprefix("v")
    return {"__version__": found, "__duckdb_version__": found, "version": lambda: found, "build_info": dict}


class _Relation:
    """The type of no relation."""


def _duckdb_relations() -> dict[str, object]:
    def method(name: str) -> Callable[..., Any]:
        return lambda *given, **named: _real("duckdb._relation").CONNECTION_METHODS[name](*given, **named)

    return {
        "DuckDBPyRelation": _Relation,
        "CONNECTION_METHODS": {name: method(name) for name in _RELATION_METHODS.split()},
        **{name: _on_use("duckdb._relation", name) for name in map("module_{}".format, _RELATION_FUNCTIONS.split())},
    }


#: Methods of connections, and functions, that make relations in DuckDB 2.
_RELATION_METHODS = (
    "sql query from_query table view values table_function read_csv from_csv_auto read_json read_parquet from_parquet "
    "from_df from_arrow to_arrow_table to_arrow_reader"
)
_RELATION_FUNCTIONS = (
    "sql table view values table_function read_csv read_json read_parquet from_df from_arrow df arrow project distinct "
    "write_csv aggregate alias filter limit order query_df to_arrow_table to_arrow_reader"
)

#: Modules that others import but rarely use, and the names that they ask for in a command. DuckDB's relations take 26
#: of the 290 ms of a report, each other one 4 to 8 of the 260 ms of an ingest of one event: importlib.metadata for
#: DuckDB's version, OpenSSL for secrets.
_NAMES: dict[str, Callable[[], dict[str, object]]] = {
    "numpy.linalg": _linear_algebra,
    "numpy.ma": lambda: {"MaskedArray": _MaskedArray, "is_masked": lambda _: False},
    "duckdb._relation": _duckdb_relations,
    "duckdb._version": _duckdb_version,
    # In names of DuckDB's relations.
    "secrets": lambda: {"token_hex": lambda size=32: os.urandom(size).hex()},
}


def _real(name: str) -> ModuleType:
    """Import a module in place of its stand-in."""
    if _NAMES.pop(name, None) is not None:
        sys.modules.pop(name, None)
    return importlib.import_module(name)


def hide_unused_modules() -> None:
    """Prevent imports in a process that runs only our code: that of pandas takes longer than all others together."""
    sys.meta_path[:0] = [_Refusal, _StandInFinder]
