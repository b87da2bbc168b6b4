"""A trace shown in Perfetto's viewer, which reads it over a local connection and sends nothing back."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from traceconv.base.errors import OutputError, reason_of

_VIEWER = "https://ui.perfetto.dev"
#: The one port from which the viewer's page may read (its Content-Security-Policy).
_PORT = 9001


def show_trace(trace: Path, on_address: Callable[[str], None]) -> None:
    """Open a trace in Perfetto's viewer with the user's browser; return when the browser has read it.

    on_address  is given the address to open, for users whose browser is elsewhere

    Raises OutputError if the port is in use.
    """
    with served(trace) as (address, was_read):
        on_address(address)
        if _has_browser():
            webbrowser.open(address)
        was_read.wait()


@contextmanager
def served(trace: Path) -> Iterator[tuple[str, Event]]:
    """Serve a file to the viewer; yield the address of the viewer, and what is set when the file was read."""
    server = _Server(trace)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"{_VIEWER}/#!/?url=http://127.0.0.1:{server.server_port}{server.path}", server.was_read
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """One file, at a path that only the address given to the user contains. Raises OutputError."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, trace: Path) -> None:
        self.trace = trace
        self.path = f"/{secrets.token_urlsafe(16)}/{trace.name}"
        self.was_read = Event()
        try:
            super().__init__(("127.0.0.1", _PORT), _Request)
        except OSError as error:
            raise OutputError(
                f"can't use port {_PORT}, the only one that Perfetto's viewer reads from: {reason_of(error)}"
            ) from None


class _Request(BaseHTTPRequestHandler):
    server: _Server

    def do_OPTIONS(self) -> None:
        """Allow the viewer's page, which is public, to read from this machine."""
        self.send_response(204)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.end_headers()

    def do_GET(self) -> None:
        # Another page could reach this server under a name of its own; the browser would then let it read the file.
        if self.path != self.server.path or self.headers.get("Host") != f"127.0.0.1:{self.server.server_port}":
            self.send_error(404)
            return
        with self.server.trace.open("rb") as file:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            try:
                shutil.copyfileobj(file, self.wfile, 1 << 20)
            except ConnectionError:  # the page was closed or loaded again
                return
        self.server.was_read.set()

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", _VIEWER)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def _has_browser() -> bool:
    """Return whether a browser would open a window, instead of taking over the terminal."""
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
