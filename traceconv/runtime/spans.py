"""`with span("name", key=value):` and `@span("name")`: labelled ranges of the user's code, in every profile there is.

A span is on the clock of the host and on the thread where it begins, or, with `stream=`, on a stream of the
device. In an asyncio task it is on a line of its own, since tasks of a thread take turns. The span around it is
its parent, also across threads that were given a copy of the context. Without a profile a span costs next to
nothing and is nowhere.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import Token
from types import TracebackType
from typing import TypeVar, cast

from traceconv.runtime.live import CURRENT_SPAN, PROCESS
from traceconv.runtime.stream_spans import StreamSpan

_F = TypeVar("_F", bound=Callable[..., object])

#: Longest name and longest text of attributes that a log keeps whole, in characters.
_NAME_LIMIT = 4_000
_ARGS_LIMIT = 60_000
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


class span:  # noqa: N801 - used like the functions that it stands beside
    """A labelled range around a `with` block, or around each call of a decorated function.

    Attributes are kept as JSON; what JSON has no word for is kept as text. Functions may be coroutines
    and generators: the range is from their first step to their end.
    """

    __slots__ = ("_args", "_name", "_open", "_stream")

    def __init__(self, name: str, *, stream: object = None, **attributes: object) -> None:
        self._name = name
        self._args = attributes
        self._stream = stream
        #: One for each time that it was entered since a profile was there; None before: then it costs nothing.
        self._open: list[tuple[int, Token[int] | None, StreamSpan | None]] | None = None

    def __enter__(self) -> span:
        if PROCESS.captures or self._open is not None:
            self._begin()
        return self

    def _begin(self) -> None:
        opened = self._open
        if opened is None:
            opened = self._open = []
        if not PROCESS.captures:
            opened.append((0, None, None))
            return
        name = self._name if len(self._name) <= _NAME_LIMIT else self._name[: _NAME_LIMIT - 1] + "…"
        args = args_text(self._args) if self._args else ""
        if self._stream is not None:
            opened.append((0, None, PROCESS.stream_span_begin(self._stream, name, args)))
            return
        span_id = PROCESS.span_begin(name, args)
        opened.append((span_id, CURRENT_SPAN.set(span_id) if span_id else None, None))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:  # entered before a profile was there
            return
        span_id, token, on_stream = self._open.pop()
        if token is not None:
            try:
                CURRENT_SPAN.reset(token)
            except ValueError:
                token = None  # a generator that another context finishes: there nothing changes
            PROCESS.span_end(span_id)
        elif on_stream is not None:
            PROCESS.stream_span_end(on_stream)

    def _again(self) -> span:
        """One of its own for each call: calls may overlap."""
        return span(self._name, stream=self._stream, **self._args)

    def __call__(self, function: _F) -> _F:
        return wrap(function, self._again)


def wrap(function: _F, enter: Callable[[], object]) -> _F:
    """`function` within a context of `enter()`, a new one for each call; coroutines and generators too."""
    plain = cast("Callable[..., object]", function)
    make = cast("Callable[[], span]", enter)

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        with make():
            return plain(*args, **kwargs)

    @functools.wraps(function)
    async def call_async(*args: object, **kwargs: object) -> object:
        with make():
            return await cast("Awaitable[object]", plain(*args, **kwargs))

    @functools.wraps(function)
    def call_generator(*args: object, **kwargs: object) -> Iterator[object]:
        with make():
            return (yield from cast("Iterator[object]", plain(*args, **kwargs)))

    @functools.wraps(function)
    async def call_async_generator(*args: object, **kwargs: object) -> AsyncIterator[object]:
        with make():
            async for value in cast("AsyncIterator[object]", plain(*args, **kwargs)):
                yield value

    if inspect.iscoroutinefunction(function):
        return cast("_F", call_async)
    if inspect.isasyncgenfunction(function):
        return cast("_F", call_async_generator)
    if inspect.isgeneratorfunction(function):
        return cast("_F", call_generator)
    return cast("_F", call)


def args_text(attributes: dict[str, object]) -> str:
    """Attributes as the text of a JSON object."""
    try:
        text = _encode(attributes)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps({str(key): _plain(value) for key, value in attributes.items()}, ensure_ascii=False)
    if len(text) > _ARGS_LIMIT:
        return json.dumps({"cut": text[: _ARGS_LIMIT // 2]}, ensure_ascii=False)
    return text


def _plain(value: object) -> object:
    """`value` where JSON has a word for it, else its text."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:1000]
    return value
