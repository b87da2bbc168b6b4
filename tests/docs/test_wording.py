"""Texts for users and developers use the terms of the glossary, not the phrases that it replaces."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "docs/**/*.md", "schemas/**/*.toml",
         "traceconv/**/*.toml", "traceconv/**/*.sql", "traceconv/**/*.[ch]", "traceconv/**/*.py", "tests/**/*.py",
         "examples/**/*.py", "benchmarks/**/*.py")  # fmt: skip

#: Phrase → replacement.
REPLACED = {
    "so many": "a number, or its name",
    "anew": "again, new",
    "put aside": "spill, buffer",
    "puts aside": "spills, buffers",
    "the books": "the accounting",
    "calm with": "tolerant of",
    "beside": "next to, alongside",
    "midst": "middle, during",
    "told": "reported, distinguished",
    "foretold": "estimated",
    "is talk": "diagnostics go to stderr",
    "not known": "unknown",
    "held against": "checked against",
    "that there is not": "unknown, missing",
    "as it is meant": "repaired",
    "as people": "human-readable",
    "of old": "legacy",
    "cut off": "truncated",
    "waits for ever": "deadlocked",
    "gives up": "drops, stops",
    "nothing in it can be used": "contains no usable events",
    "leave it out": "omit it, remove it",
    "leave one out": "remove one",
    "exists already": "already exists",
    "in the store already": "already in the store",
    "about itself": "metadata",
    "is called so": "has this name",
    "stands for": "replaces, is",
    "are asked for": "are requested",
    "less the": "minus the",
    "this is no": "is not a",
    "summed up": "added",
}
#: Words of a phrase may be on two lines of a comment.
PATTERN = re.compile(r"\b(" + "|".join(REPLACED).replace(" ", r"[\s/*#-]+") + r")\b", re.IGNORECASE)


def passages(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and texts of a file: all of it, or a Python module's strings, comments and names of functions."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield 1, text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef):
            yield node.lineno, node.name.replace("_", " ")
    # A comment is the end of a line; tokenizing takes longer than everything else here.
    if not any(PATTERN.search(line[line.find("#") :]) for line in text.splitlines() if "#" in line):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_replaced_phrases_are_not_used() -> None:
    files = [path for pattern in TEXTS for path in sorted(ROOT.glob(pattern)) if path != Path(__file__)]
    assert len(files) > 500
    found = []
    for path in files:
        for first, text in passages(path):
            for match in PATTERN.finditer(text):
                line = first + text.count("\n", 0, match.start())
                phrase = " ".join(re.findall(r"\w+", match[0].lower()))
                found.append(f"{path.relative_to(ROOT)}:{line}: {phrase}: write {REPLACED[phrase]}")
    assert found == []
