"""An assistant gets from the tools what the command line prints, and can change and read nothing else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

import traceconv
from traceconv.mcp import make_server

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "pytorch" / "resnet18.pt.trace.json.gz"

#: Calls a tool; returns whether it failed, and its text.
Ask = Callable[..., tuple[bool, str]]


@pytest.fixture
def ask() -> Ask:
    def call(tool: str, **arguments: Any) -> tuple[bool, str]:
        async def answer() -> tuple[bool, str]:
            async with Client(make_server([SAMPLE], None)) as client:
                result = await client.call_tool(tool, arguments)
            (content,) = result.content
            assert content.type == "text"
            return bool(result.is_error), content.text

        return asyncio.run(answer())

    return call


def test_tools_return_what_the_command_line_prints(ask: Ask) -> None:
    with traceconv.open_store(SAMPLE) as store:
        kernels = store.report("kernels", top=3, by_shape=True, filters=["count>1"])
        assert ask("report", name="kernels", top=3, by_shape=True, filters=["count>1"]) == (False, str(kernels))
        assert store.advise(top=1).findings[0].evidence in ask("advise", top=1)[1]
        assert ask("critical_path", steps="3") == (False, str(store.critical_path(steps="3")))
        predicted = store.what_if(category="conv", speed_up=2)
        assert ask("what_if", category="conv", speed_up=2) == (False, str(predicted))
        assert ask("runs") == (False, str(store.runs()))
        assert ask("schema", name="kernels") == (False, str(store.schema("kernels")))
    assert ask("compare", base=str(SAMPLE), new=str(SAMPLE)) == (False, str(traceconv.compare(SAMPLE, SAMPLE)))
    failed, reports = ask("reports")
    assert not failed
    assert len(reports.splitlines()) == len(traceconv.Store.reports())


def test_a_query_returns_exact_values_and_says_if_there_are_more_rows(ask: Ask) -> None:
    sql = "SELECT name, dur_ns, NULL AS unknown FROM task WHERE kind = 'copy' ORDER BY dur_ns DESC, id"
    with traceconv.open_store(SAMPLE) as store:
        (name, dur_ns, _), *others = store.query(sql).fetchall()
    assert ask("query", sql=sql, limit=1) == (False, f"name,dur_ns,unknown\n{name},{dur_ns},\n… and more\n")
    failed, text = ask("query", sql=sql, limit=200)
    assert not failed
    assert len(text.splitlines()) == len(others) + 2


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_text('{file}')",
        "COPY (SELECT 1) TO '{folder}/new.csv'",
        "ATTACH '{folder}/new.duckdb'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "DELETE FROM task",
        "SELECT 1; SELECT 2",
        "",
    ],
)
def test_a_query_has_no_files_and_changes_nothing(ask: Ask, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "secret.txt"
    file.write_text("secret")
    failed, text = ask("query", sql=sql.format(file=file, folder=tmp_path))
    assert failed
    assert "secret\n" not in text
    assert list(tmp_path.iterdir()) == [file]


def test_the_assistant_gets_mistakes_and_losses(ask: Ask, tmp_path: Path) -> None:
    failed, text = ask("report", name="kernel")
    assert failed
    assert "Did you mean 'kernels'?" in text
    damaged = tmp_path / "cut.json"
    damaged.write_text('{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2},{"ph":"X","na')
    failed, text = ask("report", name="range-statistic", trace=str(damaged))
    assert not failed
    assert text.startswith("note: ")
    assert "range-statistic\n" in text


def test_an_unknown_argument_is_refused(ask: Ask) -> None:
    """Without its argument `steps`, a report would be that of the complete run."""
    failed, text = ask("report", name="kernels", step="3")
    assert failed
    assert "step" in text


def test_the_command_serves_over_standard_streams(tmp_path: Path) -> None:
    async def names() -> set[str]:
        command = StdioServerParameters(command=sys.executable, args=["-m", "traceconv", "mcp", str(SAMPLE)])
        async with Client(command) as client:
            assert "run-summary" in (client.instructions or "")
            assert (await client.call_tool("report", {"name": "breakdown"})).content[0].text.startswith("breakdown\n")  # type: ignore[union-attr]
            return {tool.name for tool in (await client.list_tools()).tools}

    assert asyncio.run(names()) >= {"report", "query", "advise", "compare"}


def test_a_cancelled_query_does_not_block_the_next() -> None:
    async def rows() -> str:
        async with Client(make_server([SAMPLE], None)) as client:
            endless = {"sql": "SELECT count(*) FROM range(100_000_000_000) CROSS JOIN range(1_000_000)"}
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call_tool("query", endless), 2)
            result = await asyncio.wait_for(client.call_tool("query", {"sql": "SELECT 1 AS one"}), 60)
            return result.content[0].text  # type: ignore[union-attr]

    assert asyncio.run(rows()) == "one\n1\n"
