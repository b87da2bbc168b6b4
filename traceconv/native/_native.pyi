from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = bytes | NDArray[np.generic]

def events(
    text: bytes, lines: bool, labels: tuple[bytes, ...], raws: tuple[bytes, ...], partly: bool, /
) -> tuple[int, int, list[tuple[bytes, list[bytes]] | None], list[tuple[bytes, bytes] | None], bytes] | None: ...
def members(
    offsets: Bytes, data: Bytes, rows: Bytes | None, keys: tuple[tuple[bytes, bool], ...], /
) -> list[tuple[bytes | None, bytes | None, bytes, list[bytes]]] | None: ...
def patch(text: bytes, deepest: int, /) -> tuple[bytes, int, int, int, int] | None: ...
def times(offsets: Bytes, data: Bytes, places: int, limit: int, /) -> tuple[bytes, bytes] | None: ...
