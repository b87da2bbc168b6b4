"""`with span("name", key=value):` and `@span("name")`: labelled ranges of the user's code, in every active profile.

A span is on the host clock and on the thread where it begins or, with `stream=`, on a stream of the device. Spans of an
asyncio task are on a track of their own, since the tasks of a thread alternate. The parent is the span around it, also
across threads that run in a copy of the context. Without a profile a span costs next to nothing.

The extension (native/spans.c) does the usual: a span on a thread, in one profile. Whatever else is true of it is here.
"""

from __future__ import annotations

import functools
import inspect
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextvars import Token, copy_context
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar, cast

from traceconv.runtime.live import CURRENT_SPAN, PROCESS
from traceconv.runtime.span_base import Span
from traceconv.runtime.stream_spans import StreamSpan

_F = TypeVar("_F", bound=Callable[..., object])

#: Maximum length of a name and of the text of attributes in a log, in characters.
_NAME_LIMIT = 4_000
_ARGS_LIMIT = 60_000
#: CPython refuses to convert larger numbers to decimal digits.
_DECIMAL_BITS = 2_000


class _Entry(NamedTuple):
    """One entry of a span. A `with` statement enters and leaves in the same frame and code."""

    frame: int
    code: CodeType
    thread: int
    span_id: int = 0
    token: Token[int] | None = None
    on_stream: StreamSpan | None = None


_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


class span(Span):  # noqa: N801 - used like a function
    """A labelled range around a `with` block, or around each call of a decorated function.

    Attributes are stored as JSON, or as text if JSON can't represent them. Functions may be coroutines and generators:
    the range is from their first step to their end.
    """

    __slots__ = ()

    def _begin(self, frame: FrameType) -> None:
        """Enter, with all that may be true of a span."""
        opened = self._open
        if opened is None:
            opened = self._open = []
        place = id(frame), frame.f_code, threading.get_ident()
        if not PROCESS.captures:
            opened.append(_Entry(*place))
            return
        name, long_name = _cut_name(self._name)
        args, long_args = args_text(self._attributes) if self._attributes else ("", False)
        cut = long_name or long_args
        if self._stream is not None:
            on_stream = PROCESS.stream_span_begin(self._stream, name, args, cut)
            opened.append(_Entry(*place, on_stream=on_stream))
            return
        span_id = PROCESS.span_begin(name, args, cut)
        unchanged = copy_context()  # see _reset
        opened.append(_Entry(*place, span_id, CURRENT_SPAN.set(span_id) if span_id else None))
        del unchanged

    def _keep(self, *entry: Any) -> None:
        """Keep an entry made by C, to find the one to leave among several."""
        opened = self._open
        if opened is None:
            opened = self._open = []
        opened.append(_Entry(*entry))

    def _args_text(self) -> str | None:
        """Return the text of the attributes; None if it was cut."""
        text, cut = args_text(self._attributes or {})
        return None if cut else text

    def _find(self, frame: FrameType) -> _Entry | None:
        """Remove and return the entry made by code in `frame`; others may be by other threads or generators.

        None: it was made before there was a profile. Without a `with` statement, as with an ExitStack, it is the latest
        one of this thread or task.
        """
        entries: list[_Entry] = list(self._open or ())  # other threads may enter and leave meanwhile
        if not entries:
            self._before -= 1
            return None
        assert self._open is not None
        if len(entries) == 1 and not self._before:
            self._open.remove(entries[0])
            return entries[0]
        current, thread, code = CURRENT_SPAN.get(), threading.get_ident(), frame.f_code

        def nearness(place: int) -> tuple[bool, bool, bool, bool, int]:
            entry = entries[place]
            same_frame = entry.frame == id(frame) and entry.code is code
            same_file = entry.code.co_filename == code.co_filename
            return same_frame, entry.span_id == current != 0, entry.thread == thread, same_file, place

        best = max(map(nearness, range(len(entries))))
        if not best[0] and self._before:
            self._before -= 1
            return None
        self._open.remove(entries[best[-1]])
        return entries[best[-1]]

    def _leave(self, frame: FrameType, kind: type[BaseException] | None) -> None:
        """Leave one of several entries, or one that Python made."""
        entry = self._find(frame)
        if entry is None:
            return
        span_id, token, on_stream = entry[3:]
        if token is not None:
            # Otherwise a generator was finished in another context, or spans do not nest.
            if CURRENT_SPAN.get() == span_id:
                _reset(token)
            self._end(span_id, kind)
        elif on_stream is not None:
            PROCESS.stream_spans.end(on_stream, _name_of(kind))

    def _end(self, span_id: int, kind: type[BaseException] | None) -> None:
        PROCESS.span_end(span_id, _name_of(kind))

    def _again(self) -> span:
        """Return a new span for a call, since calls may overlap."""
        return span(self._name, stream=self._stream, **self._attributes or {})

    def __call__(self, function: _F) -> _F:
        return wrap(function, self._again)


def _name_of(kind: type[BaseException] | None) -> str:
    """Return the name of an exception's type; "" for none."""
    return "" if kind is None else _cut_name(kind.__name__)[0]


def _reset(token: Token[int]) -> None:
    """Undo a change of the current span, in the context where it was made.

    Until CPython 3.11 the garbage collector may finish a generator during the change, and the generator's span changes
    the context too: the previous context must stay alive meanwhile, or the interpreter reads freed memory.
    """
    unchanged = copy_context()
    try:  # noqa: SIM105 - contextlib.suppress takes longer than the rest
        CURRENT_SPAN.reset(token)
    except ValueError:
        pass
    del unchanged


def wrap(function: _F, enter: Callable[[], object]) -> _F:
    """Return `function` with each call inside a new `enter()`; supports coroutines, generators and methods."""
    if isinstance(function, (staticmethod, classmethod)):
        return cast("_F", type(function)(wrap(function.__func__, enter)))
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
            generator = cast("AsyncGenerator[object, object]", plain(*args, **kwargs))
            step = generator.asend(None)
            try:
                while True:
                    value = await step
                    try:
                        step = generator.asend((yield value))
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001 - passed to the generator, as by `yield from`
                        step = generator.athrow(error)
            except StopAsyncIteration:
                pass
            finally:
                await generator.aclose()

    #: A callable object is one of these if its `__call__` is.
    called = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        return cast("_F", call_async)
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(called):
        return cast("_F", call_async_generator)
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(called):
        return cast("_F", call_generator)
    return cast("_F", call)


def _cut_name(name: object) -> tuple[str, bool]:
    """Return a name that fits in a log, and whether it was cut."""
    text = str.__str__(name) if isinstance(name, str) else _text(name)
    return (text, False) if len(text) <= _NAME_LIMIT else (text[: _NAME_LIMIT - 1] + "…", True)


def args_text(attributes: dict[str, object]) -> tuple[str, bool]:
    """Return attributes as the text of a JSON object, and whether it was cut."""
    try:
        text = _encode(attributes)
    except Exception:  # noqa: BLE001 - the user's objects may raise anything
        text = "{" + ", ".join(f"{_encode(key)}: {_json(value)}" for key, value in attributes.items()) + "}"
    if len(text) > _ARGS_LIMIT:
        return _encode({"cut": text[: _ARGS_LIMIT // 2]}), True
    return text, False


def _json(value: object) -> str:
    """Return `value` as JSON or, if JSON can't represent it, its text as JSON."""
    try:
        return _encode(value)
    except Exception:  # noqa: BLE001 - as above
        return _encode(_text(value))


def _text(value: object) -> str:
    """Return the `repr` of an object or, if that fails, its type: a span must not end the program."""
    try:
        return hex(value) if isinstance(value, int) and value.bit_length() > _DECIMAL_BITS else repr(value)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(value).__name__}>"
