"""Hide pandas from pyarrow, which would load it to recognise types that don't occur here."""

from __future__ import annotations

import sys


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse the import."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by the command line", name=name)


def hide_pandas() -> None:
    """Prevent the import of pandas in a process that runs only our code: it takes longer than all others together."""
    sys.meta_path.insert(0, _NoPandas)
