"""The pickle of a memory snapshot, decoded without running it: entry by entry, in bounded memory.

A pickle is a program. Only the opcodes that build numbers, texts, lists, tuples and dicts are known here, so that none
can name, call or create anything else. Items of the large lists are yielded and then forgotten: the memo, which could
refer to them again, keeps only texts, tuples, frames and call stacks, each once, up to a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from traceconv.base.errors import TraceconvError
from traceconv.formats.common.limits import Limits

#: Bytes of what the memo keeps, as far as they can be estimated.
_MOST_HELD = 256 << 20
#: Lists, dicts and tuples, and bytes of the file, that are in no item that was yielded.
_MOST_CONTAINERS = 2_000_000
_MOST_BYTES = 32 << 20
#: Bytes of the longest opcode of a fixed size.
_LONGEST = 9
#: Items that are yielded at once.
_MOST_ITEMS = 1000
#: Characters of the text of a frame.
_MOST_TEXT = 1000
#: Lists of a list of lists.
MOST_DEVICES = 1024
_PACKAGES = ("/site-packages/", "/dist-packages/")

_INT32, _UINT16, _UINT32, _UINT64 = (Struct(f"<{code}").unpack_from for code in "iHIQ")
_DOUBLE = Struct(">d").unpack_from
_REFERENCES, _REFERENCE = re.compile(rb"(?:j.{4})+", re.DOTALL), Struct("<xI")


class Damaged(TraceconvError):
    """The pickle can't be decoded from here on.

    offset    of the opcode, or of what follows it
    is_end    whether the file ends there
    is_large  whether the rest needs too much memory
    """

    def __init__(self, message: str, offset: int, *, is_end: bool = False, is_large: bool = False) -> None:
        super().__init__(message)
        self.offset, self.is_end, self.is_large = offset, is_end, is_large


class Items(NamedTuple):
    """Items of one of the lists.

    key     of the list in the snapshot
    device  number of the list, if the snapshot has a list of lists; None: it has one list
    """

    key: str
    device: int | None
    items: list[Any]
    byte_offset: int
    byte_count: int


class CallStack(NamedTuple):
    """A distinct call stack, innermost frame first. `number`: from 1 on, in order of first use."""

    number: int
    frames: tuple[str, ...]


class _Streamed(list[Any]):
    """A list whose items are yielded. `device`: as in `Items`; `list_count`: of a list of lists, how many it had."""

    __slots__ = ("device", "key", "list_count")

    def __init__(self, key: str, device: int | None) -> None:
        super().__init__()
        if device is not None and device > MOST_DEVICES:
            raise ValueError
        self.key, self.device, self.list_count = key, device, 0


class _Frame(dict[str, Any]):
    """A frame. `number`: of its text, once it is known."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        super().__init__()
        self.number = -1


class _Frames(list[Any]):
    """The frames of a call stack. `place`: in the memo, -1 if it isn't there."""

    __slots__ = ("place", "stack")

    def __init__(self) -> None:
        super().__init__()
        self.place = -1
        self.stack: CallStack | None = None


class SnapshotPickle:
    """Decodes one pickle.

    lists   keys of the snapshot whose lists are yielded
    values  the snapshot's other values, once all items were yielded
    """

    def __init__(self, chunks: Iterator[bytes], limits: Limits, lists: frozenset[str]) -> None:
        self._chunks = chunks
        self._text_bytes = min(limits.event_bytes, _MOST_BYTES)
        self._lists = lists
        self._memo: list[Any] = []
        self._held_bytes = 0
        self._stacks: dict[tuple[int, ...], CallStack] = {}
        self._frame_numbers: dict[str, int] = {}
        self._frame_texts: list[str] = []
        self.values: dict[str, Any] = {}

    def items(self) -> Iterator[Items]:
        """Yield the items of the lists. Raises Damaged, after all items that are intact."""
        stack: list[Any] = []
        marks: list[int] = []
        begun: list[tuple[int, int]] = []  # containers and bytes before each mark
        memo, push = self._memo, stack.append
        data, at, limit, end, base = b"", 0, 0, 0, 0
        wanted, given, containers, given_containers, given_bytes = 1, 0, 0, 0, 0
        is_last = False
        try:
            while True:
                if at >= limit:
                    # `data` gets what the opcode needs. Bytes beyond its end belong to a truncated opcode, whose
                    # value reaches no item.
                    if is_last:
                        raise Damaged("the file is truncated", base + min(at, end), is_end=True)
                    base, data, at = base + at, data[at:], 0
                    while len(data) < wanted + _LONGEST:
                        chunk = next(self._chunks, b"")
                        if not chunk:
                            is_last = True
                            break
                        data += chunk
                    end = len(data)
                    limit, wanted = end - _LONGEST, 1
                    if is_last:
                        limit, data = end, data + bytes(_LONGEST)
                    too_much = containers - given_containers > _MOST_CONTAINERS or base - given_bytes > _MOST_BYTES
                    if too_much or self._held_bytes > _MOST_HELD or len(marks) > _MOST_CONTAINERS:
                        raise Damaged("the file needs more memory than a snapshot may", base, is_large=True)
                    continue
                opcode = data[at]
                at += 1
                if opcode == 0x68:  # BINGET
                    push(memo[data[at]])
                    at += 1
                elif opcode == 0x6A:  # LONG_BINGET
                    if data[at + 4] == 0x6A and (run := _REFERENCES.match(data, at - 1)):
                        # A call stack refers to each of its frames.
                        stack.extend([memo[place] for (place,) in _REFERENCE.iter_unpack(run[0])])
                        at = run.end()
                    else:
                        push(memo[_UINT32(data, at)[0]])
                        at += 4
                elif opcode == 0x94:  # MEMOIZE
                    self._memoize(stack[-1])
                elif opcode == 0x4B:  # BININT1
                    push(data[at])
                    at += 1
                elif opcode == 0x8A:  # LONG1
                    size = data[at]
                    if at + size >= end:
                        at, limit, wanted = at - 1, 0, size + 2
                        continue
                    push(int.from_bytes(data[at + 1 : at + 1 + size], "little", signed=True))
                    at += 1 + size
                elif opcode == 0x28:  # MARK
                    marks.append(len(stack))
                    begun.append((containers, base + at))
                elif opcode == 0x75:  # SETITEMS
                    mark = marks.pop()
                    begun.pop()
                    self._set_items(stack[mark - 1], stack[mark:])
                    del stack[mark:]
                    if marks and len(stack) - marks[-1] > _MOST_ITEMS and type(stack[marks[-1] - 1]) is _Streamed:
                        # Python writes 1,000 items at once, PyTorch's own pickler all. It refers to the last one next.
                        mark, before, begun[-1] = marks[-1], begun[-1], (containers, base + at)
                        target, added = stack[mark - 1], stack[mark:-1]
                        del stack[mark:-1]
                        given_containers += containers - before[0]
                        given_bytes += base + at - before[1]
                        yield self._given(target, added, given, base + at)
                        given = base + at
                elif opcode == 0x7D:  # EMPTY_DICT
                    containers += 1
                    is_frame = marks and marks[-1] and type(stack[marks[-1] - 1]) is _Frames
                    push(_Frame() if is_frame or (stack and type(stack[-1]) is _Frames) else {})
                elif opcode == 0x65 or opcode == 0x61:  # APPENDS, APPEND
                    before = begun.pop() if opcode == 0x65 else (containers, base + at)
                    mark = marks.pop() if opcode == 0x65 else len(stack) - 1
                    target, added = stack[mark - 1], stack[mark:]
                    if not mark or not isinstance(target, list):
                        raise Damaged("items outside of a list", base + at - 1)
                    del stack[mark:]
                    if type(target) is not _Streamed:
                        target.extend(added)
                        self._held_bytes += 8 * len(added) if type(target) is _Frames else 0
                    elif target.device is None and type(added[0] if added else None) is _Streamed:
                        target.list_count += len(added)
                    elif added:
                        given_containers += containers - before[0]
                        given_bytes += base + at - before[1]
                        yield self._given(target, added, given, base + at)
                        given = base + at
                elif opcode == 0x71:  # BINPUT
                    self._check_put(data[at], base + at - 1)
                    self._memoize(stack[-1])
                    at += 1
                elif opcode == 0x72:  # LONG_BINPUT
                    self._check_put(_UINT32(data, at)[0], base + at - 1)
                    self._memoize(stack[-1])
                    at += 4
                elif opcode == 0x5D:  # EMPTY_LIST
                    containers += 1
                    push(self._new_list(stack, marks))
                elif opcode == 0x4D:  # BININT2
                    push(_UINT16(data, at)[0])
                    at += 2
                elif opcode == 0x4A:  # BININT
                    push(_INT32(data, at)[0])
                    at += 4
                elif opcode == 0x8C or opcode == 0x58 or opcode == 0x8D:  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
                    if opcode == 0x8C:
                        width, size = 1, data[at]
                    elif opcode == 0x58:
                        width, size = 4, _UINT32(data, at)[0]
                    else:
                        width, size = 8, _UINT64(data, at)[0]
                    if size > self._text_bytes:
                        raise Damaged(f"a text of {size:,} bytes", base + at - 1, is_large=True)
                    if at + width + size > end:
                        at, limit, wanted = at - 1, 0, size + width + 1
                        continue
                    at += width
                    push(data[at : at + size].decode("utf-8", "replace"))
                    at += size
                elif opcode == 0x4E:  # NONE
                    push(None)
                elif opcode == 0x88 or opcode == 0x89:  # NEWTRUE, NEWFALSE
                    push(opcode == 0x88)
                elif opcode == 0x29:  # EMPTY_TUPLE
                    push(())
                elif 0x85 <= opcode <= 0x87 or opcode == 0x74:  # TUPLE1, TUPLE2, TUPLE3, TUPLE
                    mark = marks.pop() if opcode == 0x74 else len(stack) - (opcode - 0x84)
                    if opcode == 0x74:
                        begun.pop()
                    if mark < (marks[-1] if marks else 0):
                        raise Damaged("a tuple without its items", base + at - 1)
                    containers += 1
                    stack[mark:] = [tuple(stack[mark:])]
                elif opcode == 0x73:  # SETITEM
                    self._set_items(stack[-3], stack[-2:])
                    del stack[-2:]
                elif opcode == 0x47:  # BINFLOAT
                    push(_DOUBLE(data, at)[0])
                    at += 8
                elif opcode == 0x95:  # FRAME
                    at += 8
                elif opcode == 0x80:  # PROTO
                    at += 1
                elif opcode == 0x2E:  # STOP
                    if len(stack) != 1 or type(stack[0]) is not dict or marks:
                        raise Damaged("the file doesn't contain a snapshot", base + at - 1)
                    self.values = stack[0]
                    return
                else:
                    raise Damaged(f"opcode {opcode:#04x}, which memory snapshots don't contain", base + at - 1)
        except (Damaged, IndexError, ValueError, OverflowError) as error:
            damage = error if isinstance(error, Damaged) else Damaged("the pickle is damaged", base + min(at, end))
            yield from self._unfinished(stack, marks, given, damage.offset)
            raise damage from None

    # -- opcodes --

    def _new_list(self, stack: list[Any], marks: list[int]) -> list[Any]:
        """Return a new list: one whose items are yielded, one of frames, or another."""
        top = stack[-1] if stack else None
        if type(top) is str:
            if top == "frames":
                return _Frames()
            is_value = len(marks) <= 1 and type(stack[0]) is dict
            return _Streamed(top, None) if is_value and top in self._lists else []
        # An item of a list is above its mark, or directly above the list if it is the only one.
        outer = stack[marks[-1] - 1] if marks and marks[-1] else None
        if type(outer) is _Streamed and outer.device is None:
            return _Streamed(outer.key, outer.list_count + len(stack) - marks[-1])
        return _Streamed(top.key, top.list_count) if type(top) is _Streamed and top.device is None else []

    def _check_put(self, place: int, offset: int) -> None:
        if place != len(self._memo):
            raise Damaged("the memo of the pickle is not in order", offset)

    def _memoize(self, value: Any) -> None:
        kept, kind = None, type(value)
        self._held_bytes += 8
        if kind is str:
            kept = value
            self._held_bytes += 64 + len(value)
        elif kind is _Frame:
            kept = value
            self._held_bytes += 100
        elif kind is _Frames:
            kept = value
            value.place = len(self._memo)
            self._held_bytes += 100
        elif kind is tuple:
            kept = value
            self._held_bytes += 64 + 40 * len(value)
        self._memo.append(kept)

    def _set_items(self, target: Any, pairs: list[Any]) -> None:
        keys = pairs[::2]
        if not isinstance(target, dict) or len(pairs) % 2 or not {str}.issuperset(map(type, keys)):
            raise ValueError
        target.update(zip(keys, pairs[1::2], strict=True))
        if type(target) is _Frame:
            self._held_bytes += 60 * len(pairs)

    # -- items --

    def _given(self, target: _Streamed, items: list[Any], begin: int, end: int) -> Items:
        for item in items:
            if type(item) is dict:
                self._number_stack(item)
                blocks = item.get("blocks")
                for block in blocks if type(blocks) is list else ():
                    if type(block) is dict:
                        self._number_stack(block)
        return Items(target.key, target.device, items, begin, end - begin)

    def _unfinished(self, stack: list[Any], marks: list[int], begin: int, end: int) -> Iterator[Items]:
        """Yield the complete items of the lists that were not finished."""
        for number, mark in enumerate(marks):
            target = stack[mark - 1] if 0 < mark <= len(stack) else None
            if type(target) is _Streamed:
                # The last one has a mark above it, or is not a dict, unless it is complete.
                last = marks[number + 1] - 1 if number + 1 < len(marks) else len(stack)
                complete = [item for item in stack[mark:last] if type(item) is dict and item]
                if complete:
                    yield self._given(target, complete, begin, end)

    def _number_stack(self, item: dict[str, Any]) -> None:
        frames = item.get("frames")
        if type(frames) is not _Frames:
            return
        if frames.stack is None and frames:
            frames.stack = self._stack_of(frames)
            self._held_bytes -= 8 * len(frames)
            frames.clear()  # it may contain itself
        item["frames"] = frames.stack
        if frames.place >= 0 and self._memo[frames.place] is frames:
            self._memo[frames.place] = frames.stack
            self._held_bytes -= 100

    def _stack_of(self, frames: _Frames) -> CallStack | None:
        try:
            numbers = tuple([frame.number for frame in frames])
        except AttributeError:
            return None
        if -1 in numbers:
            numbers = tuple([self._frame_number(frame) for frame in frames])
        found = self._stacks.get(numbers)
        if found is None:
            texts = tuple([self._frame_texts[number] for number in numbers])
            found = self._stacks[numbers] = CallStack(len(self._stacks) + 1, texts)
            self._held_bytes += 200 + 16 * len(numbers)
        return found

    def _frame_number(self, frame: _Frame) -> int:
        if frame.number < 0:
            text = _frame_text(frame)
            frame.number = self._frame_numbers.setdefault(text, len(self._frame_texts))
            if frame.number == len(self._frame_texts):
                self._frame_texts.append(text)
                self._held_bytes += 200 + len(text)
        return frame.number


def _frame_text(frame: _Frame) -> str:
    """Return a frame as PyTorch's profiler names functions: `torch/nn/functional.py(1821): linear`."""
    path, line, name = (frame.get(key) for key in ("filename", "line", "name"))
    shown = name[:_MOST_TEXT] if type(name) is str else "??"
    if type(path) is not str or path == "??":
        return shown
    for folder in _PACKAGES:
        path = path.rpartition(folder)[2]
    return f"{path[-_MOST_TEXT:]}({line if type(line) is int else 0}): {shown}"
