"""Files on S3 for DuckDB, which reads them through fsspec: the parts that a query needs, without an extension."""

from __future__ import annotations

from typing import Any

from fsspec.implementations.arrow import ArrowFSWrapper


class S3Files(ArrowFSWrapper):  # type: ignore[misc]  # fsspec is not typed
    """A file system of pyarrow under a protocol of its own, so that a connection can read several lakes."""

    cachable = False

    def __init__(self, files: Any, protocol: str) -> None:
        self._name = protocol
        super().__init__(files)

    @property
    def protocol(self) -> str:
        """What precedes `://` in its paths."""
        return self._name

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.partition("://")[2] or path

    def glob(self, path: str, **_: object) -> list[str]:
        """Return the path: DuckDB asks, but files of a lake are named one by one."""
        return [path]
