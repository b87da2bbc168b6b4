"""Errors of the argument parser in our words: what is wrong, the nearest valid name, and where to look."""

from __future__ import annotations

import os
import re
from typing import Any

from traceconv.base.errors import printable, suggestion

#: Words that users of other tools try, and the command for it.
_OTHER_WORDS = {
    "import": "ingest", "load": "ingest", "add": "ingest", "convert": "export", "save": "export", "sql": "query",
    "stats": "report", "summary": "report", "show": "report", "list": "report --list", "tables": "schema",
    "run": "record", "train": "record --train", "check": "info", "validate": "info", "help": "--help",
    "version": "--version", "delete": "runs delete", "remove": "runs delete", "merge": "runs merge",
    "rename": "runs label", "label": "runs label", "ls": "runs list", "rm": "runs delete",
}  # fmt: skip
#: Options that users of other tools try, and the options for it; the first that the command has is meant.
_OTHER_OPTIONS = {
    "--csv": ["--format csv"], "--json": ["--format json"], "--markdown": ["--format markdown"],
    "--md": ["--format markdown"], "--ndjson": ["--format ndjson"], "--parquet": ["--format parquet"],
    "--force": ["--replace", "--overwrite"], "--overwrite": ["--replace"], "--replace": ["--overwrite"],
    "--out": ["--output", "--db"], "--output": ["--db", "--into"], "-o": ["--db", "--into"], "--file": ["--output"],
    "--store": ["--db"], "--database": ["--db"], "--threshold": ["--fail-over"], "--sort": ["--order-by"],
    "--sort-by": ["--order-by"], "--where": ["--filter"], "--head": ["--top", "--limit"],
    "--shape": ["--input"], "--shapes": ["--input"],
    "-r": ["--reader"], "-f": ["--format", "--replace"], "-b": ["--batch"], "-d": ["--device"],
    **{f"-{digit}": ["--top N", "--limit N"] for digit in range(1, 10)},
}  # fmt: skip


def explained(error: Any) -> str:  # its class has no public name
    """Return the message of a parser error."""
    message, context = str(error.format_message()), error.ctx
    path = "traceconv" if context is None else context.command_path
    help_line = f"See: {path} --help"
    if (name := getattr(error, "option_name", None)) is not None and message.startswith("No such option"):
        known = [] if context is None else [opt for one in context.command.params for opt in one.opts if opt[1] == "-"]
        place = " Options of a command follow its name." if hasattr(context and context.command, "commands") else ""
        meant = next((one for one in _OTHER_OPTIONS.get(name, ()) if one.partition(" ")[0] in known), None)
        near = suggestion(name, known) if meant is None else f" Use: {meant}."
        return f"{path} has no option {printable(name)}.{near}{place} {help_line}"
    if match := re.match(r"No such command '(.*?)'", message, re.DOTALL):
        hint = _command_hint(match[1], list(context.command.commands), path)
        return f"{path} has no command '{printable(match[1])}'.{hint}"
    if message.startswith("Got unexpected extra argument"):
        extra = printable(message.partition("(")[2].partition("(")[2].rstrip(")"))
        return f"unexpected argument: {extra}.{_example(context, help_line)}"
    if message.startswith("Missing"):
        return f"{message}{_example(context, help_line)}"
    if message.startswith("Option ") or "does not take a value" in message:
        return f"{message} {help_line}"
    message = re.sub(r"a valid int(eger)?( range)?\b", "an integer", message).replace("a valid float", "a number")
    return re.sub(r"is not in the range x>=(\S+?)\.?$", r"must be at least \1", message)


def _example(context: Any, help_line: str) -> str:
    """The first example of a command's help, and where there are more."""
    match = re.search(r"Examples:\s+(.+)", "" if context is None else context.command.help or "")
    return f" For example: {match[1].strip()} ({help_line.lower()})" if match else f" {help_line}"


def _command_hint(wanted: str, known: list[str], path: str) -> str:
    meant = f"traceconv {_OTHER_WORDS.get(wanted.lower())}"
    if wanted.lower() in _OTHER_WORDS and meant.startswith(path):
        return f" Use: {meant}"
    if os.path.exists(wanted) and path == "traceconv":
        return f" To import a file: traceconv ingest {printable(wanted)}"
    return suggestion(wanted, known) or f" See: {path} --help"
