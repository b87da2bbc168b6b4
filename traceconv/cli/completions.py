"""Values that a shell completes. Only runs are read from the store; nothing else loads DuckDB, numpy or onnx."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from traceconv.store.documented_sql import SqlColumn

#: Names of models that `record` knows.
MODELS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "mini_bf16", "mini_decoder", "mini_detector",
    "mini_half", "mini_lstm", "mini_quantized", "mini_resnet", "mini_transformer", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip


def complete_report(incomplete: str) -> list[str]:
    """Complete the name of a report."""
    return _starting((name.replace("_", "-") for name in _files("traceconv.reports", "sql", ".sql")), incomplete)


def complete_format(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a format of rows."""
    from traceconv.cli import options

    more = ("msprof-csv",) if context.info_name == "report" else ()
    return _starting((*options.FORMATS, *more), incomplete)


def complete_reader(incomplete: str) -> list[str]:
    """Complete a source format."""
    from importlib import resources

    folders = resources.files("traceconv.formats").iterdir()
    names = {folder.name for folder in folders if folder.is_dir() and folder.joinpath("format.py").is_file()}
    return _starting({*names, *_plugins("traceconv.formats")}, incomplete)


def complete_table(incomplete: str) -> list[str]:
    """Complete a table, view or report."""
    found = [*_files("traceconv.schemas", "tables", ".toml"), *_files("traceconv.store", "views", ".sql")]
    return _starting([*found, *_files("traceconv.reports", "sql", ".sql")], incomplete)


def complete_model(incomplete: str) -> list[str]:
    """Complete the name of a model; the shell completes files if there is none."""
    return _starting(MODELS, incomplete)


def complete_column(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a column of the report."""
    return _starting((column.name for column in _columns(context)), incomplete)


def complete_columns(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the last column of a list."""
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    return [f"{before}{comma}{name}" for name in complete_column(context, last) if name not in chosen]


def complete_filter(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the column of a filter."""
    return [f"{name}=" for name in complete_column(context, incomplete)]


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the number or label of a run in the store."""
    return _starting([*map(str, _of_runs(context, "run_id")), *map(str, _of_runs(context, "label"))], incomplete)


def complete_runs(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a run, or all, for commands that take several."""
    return [*complete_run(context, incomplete), *_starting(["all"], incomplete)]


def complete_rank(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a rank of the store's runs."""
    return _starting((str(rank) for rank in _of_runs(context, "rank") if rank is not None), incomplete)


def _of_runs(context: typer.Context, column: str) -> list[object]:
    from traceconv.base.errors import TraceconvError
    from traceconv.cli.options import store_path
    from traceconv.store.database import open_store

    db = context.params.get("db")
    with suppress(TraceconvError), open_store(store_path(None if db is None else Path(str(db)))) as connection:
        sql = f"SELECT DISTINCT {column} FROM run ORDER BY 1 LIMIT 1000"  # noqa: S608 - our columns
        return [value for (value,) in connection.execute(sql).fetchall()]
    return []


def _columns(context: typer.Context) -> tuple[SqlColumn, ...]:
    from traceconv.store.documented_sql import parse

    # Before an option without its value, the arguments are not parsed.
    words = [context.params.get("name"), *context.args]
    known = _files("traceconv.reports", "sql", ".sql")
    name = next((found for word in words if (found := str(word).replace("-", "_")) in known), None)
    if name is None:
        return ()
    from importlib import resources

    return parse(name, (resources.files("traceconv.reports") / "sql" / f"{name}.sql").read_text("utf-8")).columns


def _files(package: str, folder: str, suffix: str) -> list[str]:
    from importlib import resources

    files = resources.files(package).joinpath(folder).iterdir()
    return sorted(file.name.removesuffix(suffix) for file in files if file.name.endswith(suffix))


def _plugins(group: str) -> list[str]:
    from importlib.metadata import entry_points

    return [point.name for point in entry_points(group=group)]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    # A shell runs what is completed: names from a store with other characters would need quotes.
    safe = {name for name in names if all(c.isalnum() or c in "._-=/,@+" for c in name)}
    fitting = [name for name in safe if name.startswith(incomplete)]
    return sorted(fitting, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
