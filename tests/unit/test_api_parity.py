"""Everything that the command line does is in the Python API with the same words, and the other way round."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main

import traceconv
from traceconv import mcp
from traceconv.cli.app import app
from traceconv.export.registry import EXPORTS

#: Command → its functions; each option is a parameter of one of them.
COUNTERPARTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "record": (traceconv.record,),
    "ingest": (traceconv.ingest,),
    "report": (traceconv.Store.report, traceconv.open_store, traceconv.first_answers),
    "query": (traceconv.Store.query, traceconv.open_store),
    "advise": (traceconv.Store.advise, traceconv.open_store),
    "compare": (traceconv.compare,),
    "analyze critical-path": (traceconv.Store.critical_path, traceconv.open_store),
    "analyze graph-replays": (traceconv.Store.graph_replays, traceconv.open_store),
    "analyze what-if": (traceconv.Store.what_if, traceconv.open_store),
    "timeline": (traceconv.Store.timeline, traceconv.open_store),
    "export chrome": (traceconv.Store.export_chrome, traceconv.open_store),
    "export html": (traceconv.Store.export_html, traceconv.open_store),
    "export memory-flow": (traceconv.Store.export_memory_flow, traceconv.open_store),
    "export msprof": (traceconv.Store.export_msprof, traceconv.open_store),
    "export parquet": (traceconv.Store.export_parquet, traceconv.open_store),
    "export perfetto": (traceconv.Store.export_perfetto, traceconv.open_store),
    "runs list": (traceconv.Store.runs, traceconv.open_store),
    "runs label": (traceconv.Store.label_runs, traceconv.open_store),
    "runs delete": (traceconv.Store.delete_runs, traceconv.open_store),
    "runs merge": (traceconv.Store.merge_runs, traceconv.open_store),
    "lake ingest": (traceconv.lake_ingest,),
    "lake list": (traceconv.Store.runs, traceconv.open_store),
    "lake report": (traceconv.Store.report, traceconv.open_store),
    "lake query": (traceconv.Store.query, traceconv.open_store),
    "schema": (traceconv.Store.schema, traceconv.open_store),
    "model": (traceconv.get_profile,),
    "op-profile": (traceconv.profile_op, traceconv.profile_expression),
    "info": (traceconv.info,),
    "dump": (traceconv.dump,),
    "verify": (traceconv.verify,),
    "why": (traceconv.Store.why, traceconv.open_store),
    "mcp": (mcp.serve,),
}
#: Options that are no parameter, and why; `*`: of every command.
NO_PARAMETER: dict[tuple[str, str], str] = {
    ("*", "format"): "results are objects",
    ("*", "json"): "results are objects",
    ("*", "help"): "help() and docs/reference/python.md",
    ("report", "output"): "results are objects: .df().to_csv(…)",
    ("query", "output"): "results are objects: .df().to_csv(…)",
    ("runs list", "output"): "results are objects",
    ("op-profile", "output"): "results are objects",
    ("verify", "output"): "results are objects",
    ("advise", "cache"): "of open_store, which opens files",
    ("advise", "output"): "results are objects: print(…) or to_dict()",
    ("compare", "output"): "results are objects: print(…) or to_dict()",
    ("compare", "top"): "ops is a list",
    ("analyze graph-replays", "output"): "results are objects: print(…) or to_dict()",
    ("analyze critical-path", "output"): "results are objects: print(…) or to_dict()",
    ("analyze critical-path", "top"): "ops is a list",
    ("analyze what-if", "output"): "results are objects: print(…) or to_dict()",
    **{(f"lake {name}", "output"): "results are objects" for name in ("list", "report", "query")},
    ("lake list", "check"): "ingest checks all files that it reads",
    ("query", "file"): "Path(…).read_text()",
    ("report", "list"): "Store.reports()",
    ("report", "first_answers"): "the function first_answers",
    ("runs delete", "yes"): "a question is for a terminal",
    **{("model", name): "results are objects" for name in ("show", "top", "order_by", "columns", "output")},
    ("model", "dump_only_opr"): "prints a text for diff",
    ("model", "db"): "the profile is a value; only the command adds it to a store",
    ("model", "run"): "compares the printed table with a recorded run",
    ("op-profile", "cache_size"): "about the files of the cache, not about an op",
    ("op-profile", "reset_cache"): "about the files of the cache, not about an op",
}
WITH_WINDOW = ("report", "lake report", "analyze critical-path", "analyze what-if")
WITH_WINDOW += ("timeline", "export chrome", "export perfetto")
#: (Command, option or argument) → parameter with another name, and why.
RENAMED: dict[tuple[str, str], tuple[str, str]] = {
    **{(command, "from"): ("from_ns", "from is a keyword of Python") for command in WITH_WINDOW},
    **{(command, "to"): ("to_ns", "like from_ns") for command in WITH_WINDOW},
    **{(f"lake {name}", "lake"): ("db", "a lake is opened like a store") for name in ("list", "report", "query")},
    ("op-profile", "dtype"): ("dtypes", "one for all inputs, or one for each"),
    **{(f"export {export.name}", "output"): ("path", "positional") for export in EXPORTS},
}
#: Parameters without an option, and why.
NO_OPTION: dict[tuple[str, str], str] = {
    ("op-profile", "expression"): "the argument of the command may be a file",
    ("report", "path"): "FILE",
    ("timeline", "on_address"): "the command prints it",
    ("report", "report"): "NAME",
}


def commands() -> Iterator[tuple[str, Any]]:
    """Each command with its path of names."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        yield from [(name, command)] if inner is None else ((f"{name} {key}", one) for key, one in inner.items())


COMMANDS = dict(commands())


def names_of(option: Any) -> set[str]:
    """The names that a parameter may have: any form of the option, or its plural if it is repeatable.

    An argument is named as in the code or in the help.
    """
    forms = [form.lstrip("-").replace("-", "_") for form in option.opts if form.startswith("--")]
    if option.param_type_name == "argument":
        shown = re.findall("[a-z]+", (option.metavar or "").lower())[:1]
        return {name + ending for name in (option.name, *shown) for ending in ("", "s")}
    return {*forms, *(f"{form}s" for form in forms if option.multiple)}


def parameters(command: str) -> Mapping[str, inspect.Parameter]:
    found: dict[str, inspect.Parameter] = {}
    takes_files = "paths" in {option.name for option in COMMANDS[command].params}
    for function in reversed(COUNTERPARTS[command]):
        for name, parameter in inspect.signature(function).parameters.items():
            # Python opens trace files for every method, the command line only for some commands.
            if function is not traceconv.open_store or takes_files or name == "db":
                found[name] = parameter
    found.pop("self", None)
    return found


def test_each_command_has_a_function() -> None:
    assert set(COUNTERPARTS) == set(COMMANDS)


def matches(command: str) -> Iterator[tuple[Any, inspect.Parameter]]:
    """Each option that has a parameter, with it."""
    known = parameters(command)
    for option in COMMANDS[command].params:
        names = names_of(option)
        is_option = option.param_type_name == "option"
        if is_option and any((place, name) in NO_PARAMETER for name in names for place in ("*", command)):
            continue
        renamed = {RENAMED[command, name][0] for name in names if (command, name) in RENAMED}
        found = [known[name] for name in (renamed or names) if name in known]
        assert found, f"{command}: no parameter for {option.opts}"
        yield option, found[0]


@pytest.mark.parametrize("command", COUNTERPARTS)
def test_each_option_is_a_parameter_with_the_same_default(command: str) -> None:
    for option, parameter in matches(command):
        if option.param_type_name == "argument":
            continue
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        assert (default or None) == (option.default or None), f"{command}: default of {parameter.name}"
        assert parameter.kind is not inspect.Parameter.POSITIONAL_ONLY


@pytest.mark.parametrize("command", COUNTERPARTS)
def test_each_parameter_is_an_option(command: str) -> None:
    used = {parameter.name for _, parameter in matches(command)}
    excepted = {name for where, name in NO_OPTION if where == command}
    assert set(parameters(command)) - used == excepted


def test_results_are_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "python.md").read_text("utf-8")
    described = set(re.findall(r"^###? (\w+)$", page, re.MULTILINE)) | {
        "Any",
        "DuckDBPyRelation",
        "Iterator",
        "None",
        "Path",
    }
    for function in {function for functions in COUNTERPARTS.values() for function in functions}:
        returned = str(inspect.signature(function).return_annotation)
        assert set(re.findall(r"\b[A-Z]\w+", returned)) <= described, function
