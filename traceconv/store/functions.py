"""SQL functions in every store, for its views and reports and for users' queries.

Each is a file of the folder macros: a header with `doc`, then the text after CREATE MACRO. {{NAME}} in it is replaced
by an expression made of a TOML file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from graphlib import TopologicalSorter
from importlib import resources
from typing import Any, NamedTuple

import tomli

from traceconv.schema.ddl import quote_text
from traceconv.store.documented_sql import SqlFolder, header_and_query, required_sentence

_PLACE = re.compile(r"\{\{(\w+)\}\}")
_WORD = re.compile(r"\w+")


class _Function(NamedTuple):
    doc: str
    body: str


def _rows(file: str, key: str) -> list[Mapping[str, Any]]:
    text = (resources.files("traceconv.normalize") / file).read_text("utf-8")
    rows: list[Mapping[str, Any]] = tomli.loads(text)[key]
    return rows


def _cases_of_kernels() -> str:
    cases = []
    for rule in _rows("kernel_categories.toml", "rule"):
        tests = [
            f"regexp_matches({subject}, {quote_text(rule[key])}, 'i')"
            for key, subject in (("function", "function"), ("name", "name"))
            if key in rule
        ]
        cases.append(f"WHEN {' AND '.join(tests)} THEN {quote_text(rule['category'])}")
    return "\n".join(cases)


def _of_devices(value: Callable[[Mapping[str, Any]], str]) -> str:
    """A value for each known device, as an SQL expression of `device_name`."""
    cases = [
        f"WHEN regexp_matches(device_name, {quote_text(device['pattern'])}, 'i') THEN {value(device)}"
        for device in _rows("device_peaks.toml", "device")
    ]
    return f"CASE {' '.join(cases)} END"


def _flops_of_type(device: Mapping[str, Any]) -> str:
    cases = [f"WHEN {quote_text(kind)} THEN {rate * 10**9:d}" for kind, rate in device["gflops"].items()]
    return f"CASE compute_type {' '.join(cases)} END"


_EXPRESSIONS: Mapping[str, Callable[[], str]] = {
    "cases_of_kernels": _cases_of_kernels,
    "flops_of_devices": lambda: _of_devices(_flops_of_type),
    "bytes_per_s_of_devices": lambda: _of_devices(lambda device: f"{device['gbytes_per_s'] * 10**9:d}"),
}


def _parse(name: str, text: str) -> _Function:
    header, body = header_and_query(name, text, frozenset({"doc"}))
    return _Function(required_sentence(header, "doc", name), _PLACE.sub(lambda match: _EXPRESSIONS[match[1]](), body))


@cache
def _functions() -> Mapping[str, _Function]:
    return SqlFolder(resources.files("traceconv.store") / "macros", _parse)


def function_names() -> Collection[str]:
    """Return the names of all functions."""
    return _functions().keys()


def function_body(name: str) -> str:
    """Return the text after CREATE MACRO. Raises KeyError."""
    return _functions()[name].body


def function_statements() -> list[str]:
    """Return the statements that create the functions, those that others use first, and their comments."""
    functions = _functions()
    used = {
        name: sorted({word for word in _WORD.findall(one.body) if word in functions} - {name})
        for name, one in functions.items()
    }
    statements = []
    for name in TopologicalSorter(used).static_order():
        doc, body = functions[name]
        kind = "MACRO TABLE" if " AS TABLE" in body else "MACRO"
        statements += [f"CREATE OR REPLACE MACRO {body}", f"COMMENT ON {kind} {name} IS {quote_text(doc)}"]
    return statements
