"""Names that fit a column: C++ names without namespaces and arguments, and names that differ look different.

`short_name` gives the same text as the SQL function of this name in every store.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

#: Longer names are not parsed as names of functions.
LONGEST_NAME = 4000
_SUFFIX = re.compile(r"( \[clone [^\]]*\]|\.kd)+$", re.ASCII)
_CALL = re.compile(r"[A-Za-z0-9_>][<(]", re.ASCII)
_ENDINGS = ("::", "operator", " const", ">", ")", "}", " ")
_COMPARISON = re.compile(r"\) ?(?:<<|>>|[<>]=?) ?\(", re.ASCII)
_INNERMOST = re.compile(r"<[^<>(){}]*>|\([^<>(){}]*\)|\{[^<>(){}]*\}", re.ASCII)
#: Levels of brackets that are removed, after which the rest is dropped, and parts of a mangled name.
_DEPTH = 24
_MANGLED = re.compile(r"_ZZ?(N[rVK]*(St|Sa|Ss)?|L|St)?(?=[0-9])", re.ASCII)
_MANGLED_PART = re.compile(r"(L[a-z]n?[0-9]+E)|([0-9]{1,4})", re.ASCII)
_PIECE = re.compile(r"[^\W\d_]+|\d+")
_TOKEN = re.compile(r"[A-Za-z_]\w*|[0-9]+")
#: Words of template arguments that don't show what a kernel does: types, and wrappers of PyTorch around a functor.
_COMMON = frozenset([
    "void", "const", "unsigned", "signed", "int", "float", "double", "char", "long", "short", "bool", "half",
    "lambda", "operator", "type", "auto", "true", "false", "Array", "array", "TensorIteratorBase", "TensorIterator",
    "gpu_kernel_impl", "gpu_kernel_impl_nocast", "ReduceOp", "func_wrapper_t", "OpaqueType", "TensorListMetadata",
])  # fmt: skip


def short_name(name: str) -> str:
    """Return the function of a C++ name, demangled or not, without namespaces and arguments; others unchanged.

    >>> short_name("void at::native::vectorized_kernel<4, Add<float> >(int, float*)")
    'vectorized_kernel'
    >>> short_name("_ZN7cutlass6KernelINS_4GemmILi64EEEEEvNT_6ParamsE")
    'Kernel'
    """
    if len(name) > LONGEST_NAME:
        return name
    if match := _MANGLED.match(name):
        place, found = match.end(), ""
        for _ in range(_DEPTH):
            if not (size := re.match(r"[0-9]{1,4}", name[place : place + 4])):
                break
            place += size.end() + int(size[0])
            found = name[place - int(size[0]) : place]
        return found or name
    plain = _SUFFIX.sub("", name)
    if not plain.startswith("void "):
        call = _CALL.search(plain, 1)
        end = plain.removesuffix(" const")
        if not call or call.end() >= len(end) or "/" in plain[: call.start()] or end[-1] not in ">)":
            return name
        if not re.match("[A-Za-z_(]", plain):
            return name
    plain = plain.replace("(anonymous namespace)", "").replace("operator()", "operator").replace("->", "")
    plain = _COMPARISON.sub(")(", plain)
    for _ in range(_DEPTH):
        plain, count = _INNERMOST.subn("", plain)
        if not count:
            break
    plain = re.split(r"[<({]", plain)[0]
    while plain.endswith(_ENDINGS):
        plain = plain[: -next(len(ending) for ending in _ENDINGS if plain.endswith(ending))]
    return re.split("::| ", plain)[-1] or name


def distinct(names: Iterable[str], width: int, shortened: Callable[[str, int], str]) -> dict[str, str]:
    """Return a text of at most `width` cells for each name; different names get different texts.

    shortened  shortens a text to a width
    """
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(_text(name, width, shortened), []).append(name)
    cells: dict[str, str] = {}
    for text, group in groups.items():
        cells.update(_distinguished(group, width, shortened) if len(group) > 1 else {group[0]: text})
    counts = Counter(cells.values())
    if len(counts) == len(cells):
        return cells
    # Texts of different groups are the same: number those.
    numbered = {name: _ended(short_name(name), f"#{n}", width, shortened) for n, name in enumerate(cells, 1)}
    cells.update({name: numbered[name] for name, text in cells.items() if counts[text] > 1})
    # A number may make a text the same as another one.
    return cells if len(set(cells.values())) == len(cells) else numbered


def _text(name: str, width: int, shortened: Callable[[str, int], str]) -> str:
    base = short_name(name)
    if base == name:
        return shortened(name, width)
    telling = (
        word for word in _words(name, base) if len(word) > 2 and word not in _COMMON and not re.match(r"\d|Sm\d", word)
    )
    hint = next(telling, "")
    return _ended(base, f"<{hint}>", width, shortened) if hint else shortened(base, width)


def _distinguished(group: Sequence[str], width: int, shortened: Callable[[str, int], str]) -> dict[str, str]:
    """Return texts with the first words by which the names of a group differ."""
    bases = [short_name(name) for name in group]
    words = [_words(name) for name in group]
    columns = (column for column in zip_longest(*words, fillvalue="") if len(set(column)) > 1)
    ends = [""] * len(group)
    texts: list[str] = []
    for count, column in zip(range(6), columns, strict=False):
        ends = [f"{end},{word}" if count else word for end, word in zip(ends, column, strict=True)]
        texts = [
            _ended(base, f"<…{end}>" if base != name else f"…{end}", width, shortened)
            for base, name, end in zip(bases, group, ends, strict=True)
        ]
        if len(set(texts)) == len(texts):
            return dict(zip(group, texts, strict=True))
    return {
        name: _ended(base, f"#{n}", width, shortened)
        for n, (base, name) in enumerate(zip(bases, group, strict=True), 1)
    }


def _ended(start: str, end: str, width: int, shortened: Callable[[str, int], str]) -> str:
    """Join two texts; each keeps at least half of the width."""
    end = shortened(end, max(width // 2, width - len(start)))
    room = max(1, width - len(end))
    return shortened((start[:room] if end.startswith("…") else shortened(start, room)) + end, width)


def _template(text: str) -> str:
    """Return the template arguments that a text begins with."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "<") - (character == ">" and text[place - 1] != "-")
        if not depth:
            return text[:place]
    return text


def _words(name: str, base: str = "") -> list[str]:
    """Return the words and numbers in a name, or those in the template arguments of `base`, without namespaces."""
    name = name[:LONGEST_NAME]
    if not _MANGLED.match(name):
        if not base:
            return (_TOKEN if short_name(name) != name else _PIECE).findall(name)
        name = name.replace("(anonymous namespace)", "")
        return _TOKEN.findall(re.sub(r"\w*::", "", _template(name[name.rfind(base + "<") + len(base) :])))
    found, place = [], 0
    while part := _MANGLED_PART.search(name, place):
        size = 0 if part[1] else int(part[2])
        place = part.end() + size
        if not base or not size or not name[place : place + 1].isdigit():  # else it is a namespace
            found.append(part[1][2:-1] if part[1] else name[part.end() : place])
    return found[found.index(base) + 1 :] if base in found else found
