"""The timeline is served once, to Perfetto's page only, from an address that nobody can guess."""

from __future__ import annotations

import http.client
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Command

import traceconv
from traceconv.cli.app import run
from traceconv.export import viewer

MakeStore = Callable[..., Path]
STEPS = [{"step_id": 1, "device_id": 0, "iteration": 1, "start_ns": 10, "end_ns": 70}]


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port, as another program may use the one of the viewer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
    monkeypatch.setattr(viewer, "_PORT", number)
    return number


def requested(address: str, method: str = "GET", *, path: str = "", host: str = "") -> tuple[int, str | None, bytes]:
    """The status, the origin that may read, and the body of an answer to the request that the page would make."""
    origin, _, url = address.partition("/#!/?url=")
    assert origin == "https://ui.perfetto.dev"
    server, _, own_path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(server, timeout=20)
    try:
        connection.request(method, path or f"/{own_path}", headers={"Host": host or server, "Origin": origin})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Access-Control-Allow-Origin"), answer.read()
    finally:
        connection.close()


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, str | None, bytes]]]:
    """A browser that reads from each address opened; what it read."""
    answers: list[tuple[int, str | None, bytes]] = []
    threads = []

    def open_address(address: str) -> bool:
        threads.append(threading.Thread(target=lambda: answers.append(requested(address))))
        threads[-1].start()
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", open_address)
    yield answers
    for thread in threads:
        thread.join()


def test_the_page_reads_what_export_perfetto_writes(
    make_store: MakeStore, command: Command, browser: list[tuple[int, str | None, bytes]], tmp_path: Path
) -> None:
    store = make_store(step=STEPS)
    shown = command("timeline", "--db", store)
    assert shown.out.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
    addresses: list[str] = []
    with traceconv.open_store(db=store) as opened:
        opened.timeline(on_address=addresses.append)
        opened.export_perfetto(tmp_path / "exported.pftrace")
    exported = (tmp_path / "exported.pftrace").read_bytes()
    assert browser == 2 * [(200, "https://ui.perfetto.dev", exported)]
    assert addresses[0] != shown.out.strip(), "the same address twice"


def test_only_the_page_can_read(tmp_path: Path) -> None:
    trace = tmp_path / "trace.pftrace"
    trace.write_bytes(b"secret")
    with viewer.served(trace) as (address, was_read):
        assert requested(address, path="/trace.pftrace")[0] == 404
        assert requested(address, path="/../../../etc/passwd")[0] == 404
        assert requested(address, host="rebound.example:9001")[0] == 404
        assert requested(address, "OPTIONS")[::2] == (204, b"")
        assert not was_read.is_set()
        assert requested(address) == (200, "https://ui.perfetto.dev", b"secret")
        assert was_read.wait(20)


def test_a_used_port_is_one_line(make_store: MakeStore, port: int, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", port)):
        assert run(["timeline", "--db", str(make_store(step=STEPS))]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"can't use port {port}, the only one that Perfetto's viewer reads from" in error
