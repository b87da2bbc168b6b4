"""Writes docs/reference: what the schemas, the reports, the diagnostics and the commands say of themselves.

    python docs/generate.py           write the pages
    python docs/generate.py --check   say which are out of date; exit code 1 when one is

The pages depend on nothing but the project: not on the terminal, nor on the versions of Python and of libraries.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import typer
from typer.models import ArgumentInfo, OptionInfo

from traceconv.base.diagnostics import Code
from traceconv.cli.app import COMMANDS, app
from traceconv.reports.catalog import Report, reports
from traceconv.schema import RecordSchema, records, tables
from traceconv.schema.ddl import sql_type
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.catalogue import views
from traceconv.store.documented_sql import SqlColumn

FOLDER = Path(__file__).parent / "reference"
_MADE = "<!-- Made by docs/generate.py; `make docs` makes it again. -->"


def commands_page() -> Iterator[str]:
    """The command line, from what the functions of the commands declare."""
    yield "# Commands"
    yield from _help_text(str(app.info.help))
    yield from _walk(app, "traceconv")


def _walk(group: typer.Typer, path: str) -> Iterator[str]:
    found = {command.name: command for command in group.registered_commands}
    groups = {inner.name: inner for inner in group.registered_groups}
    order = list(COMMANDS)
    for name in sorted({**found, **groups}, key=lambda name: (order.index(name) if name in order else 0, name)):
        yield f"## {path} {name}"
        if name in groups:
            inner = groups[name].typer_instance
            assert inner is not None
            yield from _help_text(str(inner.info.help))
            yield from _walk(inner, f"{path} {name}")
        else:
            callback = found[name].callback
            assert callback is not None
            yield from _help_text(inspect.cleandoc(str(found[name].help or callback.__doc__)))
            yield from _parameters(callback)


def _parameters(callback: Callable[..., object]) -> Iterator[str]:
    arguments, options = [], []
    for name, parameter in inspect.signature(callback).parameters.items():
        declared = parameter.default
        if isinstance(declared, ArgumentInfo):
            arguments.append([f"`{declared.metavar or name.upper()}`", _parameter_text(declared)])
        elif isinstance(declared, OptionInfo):
            options.append(
                [
                    _spelling(name, declared, str(parameter.annotation).removeprefix("<class '")),
                    _parameter_text(declared),
                ]
            )
    if arguments:
        yield _table(["argument", "what it is"], arguments)
    if options:
        yield _table(["option", "what it does"], options)


def _help_text(text: str) -> Iterator[str]:
    """Paragraphs as they are; those marked to be left alone (by a backspace) as code, after their first line."""
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            yield lines[1]
            yield "\n".join(["```sh", *(line.strip() for line in lines[2:]), "```"])
        elif lines:
            yield " ".join(line.strip() for line in lines)


def _spelling(name: str, option: OptionInfo, annotation: str) -> str:
    """`--output FILE`, `-o FILE`: every way to write an option, its value's name where it takes one."""
    names = [part for spelt in option.param_decls or ("--" + name.replace("_", "-"),) for part in spelt.split("/")]
    if not annotation.startswith("bool"):
        value = option.metavar or ("N" if annotation.startswith("int") else "VALUE")
        names = [f"{part} {value}" for part in names]
    return ", ".join(f"`{part}`" for part in names)


def _parameter_text(parameter: ArgumentInfo | OptionInfo) -> str:
    text = parameter.help or ""
    default = parameter.default
    if default is ...:
        text += " Required."
    elif isinstance(default, (int, str)) and not isinstance(default, bool):
        text += f" Default: {default}."
    return text.strip()


def tables_page() -> Iterator[str]:
    """The tables and views of a store."""
    yield "# Tables and views of a store"
    yield (
        f"A store is one DuckDB file, of schema version {SCHEMA_VERSION}. Times (`…_ns`) are signed 64-bit nanoseconds "
        "on one clock. What is not known is NULL. An `id` is unique in its run over task, api, range and marker. "
        "`traceconv schema NAME` says the same in a terminal, and `DESCRIBE`, `duckdb_columns()` and the comments "
        "of the store in any DuckDB shell."
    )
    yield _table(
        ["table or view", "what is in it"],
        [[f"[{t.name}](#{t.name})", t.doc] for t in tables().values()]
        + [[f"[{v.name}](#{v.name})", v.title + "."] for v in views().values()],
    )
    for schema in tables().values():
        filled = ", ".join(schema.filled_by) or "no reader yet"
        yield f"## {schema.name}"
        yield f"{schema.doc} Filled by: {filled}."
        yield _columns(SqlColumn(c.name, sql_type(c), c.unit, c.doc) for c in schema.columns)
    for view in views().values():
        yield f"## {view.name}"
        yield f"View. {view.doc}"
        yield _columns(view.columns)


def reports_page() -> Iterator[str]:
    """The reports, from the headers of their SQL files."""
    yield "# Reports"
    yield (
        "Each report is a command (`traceconv report op-statistic`), a view (`FROM op_statistic`) and a macro "
        "(`FROM op_statistic(run := 2)`). The column *msprof* is the label in `--format msprof-csv`."
    )
    yield _table(
        ["report", "what it answers"],
        ([f"[{_dashed(name)}](#{_dashed(name)})", report.doc] for name, report in reports().items()),
    )
    for report in reports().values():
        yield f"## {_dashed(report.name)}"
        yield from _report(report)


def _report(report: Report) -> Iterator[str]:
    yield f"**{report.title}.** {report.doc}"
    if report.parameters:
        yield _table(
            ["parameter", "type", "what it chooses"],
            ([f"`{p.name}`", p.type, p.doc] for p in report.parameters),
        )
    yield _columns(report.columns, msprof=True)
    order = ", ".join(term.column + (" falling" if term.descending else "") for term in report.order)
    order = f"Order: {order}; `--top`: the largest by {report.measure}."
    yield f"{order} Needs rows in: {', '.join(report.needs) or 'nothing'}. {report.when_empty}".strip()


def raw_records_page() -> Iterator[str]:
    """The raw record types of the NPU log."""
    yield "# Raw records of the NPU log"
    yield (
        "A record is a fixed number of bytes, little-endian, its fields one after another without gaps. `str` fields "
        "are 64-bit hashes whose text is in the dictionary records; 0 is no text. Host times are monotonic "
        "nanoseconds, device times are ticks of that device's own counter. Every file carries the schemas of the "
        "records in it, so that a reader of another version can step over what it does not know."
    )
    yield _table(
        ["record", "tag", "bytes", "clock", "becomes", "what it is"],
        (
            [f"[{r.name}](#{r.name})", str(r.tag), str(r.size_bytes), r.clock, r.becomes, r.doc]
            for r in records().values()
        ),
    )
    for record in records().values():
        yield f"## {record.name}"
        yield record.doc
        yield _fields(record)


def _fields(record: RecordSchema) -> str:
    rows = []
    offset = 0
    for field in record.fields:
        doc = field.doc
        if field.null is not None and field.type != "str":
            doc += f" None: {field.null}."
        if field.values:
            doc += " " + ", ".join(f"{value} = {text}" for value, text in field.values.items()) + "."
        rows.append([str(offset), f"`{field.name}`", field.type, field.unit, doc])
        offset += field.size_bytes
    return _table(["byte", "field", "type", "unit", "what it is"], rows)


def diagnostics_page() -> Iterator[str]:
    """The codes of import_log."""
    yield "# What ingest says of its input"
    yield (
        "Every way in which input can be odd or bad has a code. What was found is in the table `import_log`, with its "
        "place. `info` is noted; `data_loss` says that something could not be kept, `error` that something could not "
        "be read at all: with either, the exit code is 3, and `--strict` refuses the capture."
    )
    yield _table(
        ["code", "severity", "what it means"],
        ([f"`{code.text}`", code.severity.value, code.doc] for code in Code),
    )


def _columns(columns: Iterable[SqlColumn], *, msprof: bool = False) -> str:
    head = ["column", "type", "unit", *(["msprof"] if msprof else []), "what it is"]
    return _table(
        head,
        ([f"`{c.name}`", c.type, c.unit, *([c.msprof or ""] if msprof else []), c.doc] for c in columns),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "commands.md": commands_page,
    "diagnostics.md": diagnostics_page,
    "raw-records.md": raw_records_page,
    "reports.md": reports_page,
    "tables.md": tables_page,
}


#: Pages beside these that are written by hand.
WRITTEN = ("perfetto-differences.md",)


def pages() -> dict[str, str]:
    """The text of each page, by file name."""
    return {name: "\n\n".join([_MADE, *page()]) + "\n" for name, page in PAGES.items()}


def stale() -> list[str]:
    """The pages on disk that are not what they should be, those that should not be there included."""
    wanted = pages()
    found = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.md") if path.name not in WRITTEN}
    return sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))


def main(arguments: list[str]) -> int:
    """Writes or checks the pages; returns the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python docs/generate.py [--check]", file=sys.stderr)
        return 2
    changed = stale()
    if arguments:
        if changed:
            print(f"docs/reference is out of date: {', '.join(changed)}; run: make docs", file=sys.stderr)
        return 1 if changed else 0
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for name in changed:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], "utf-8")
        else:
            (FOLDER / name).unlink()
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
