"""The part in C: all else about the package stands in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("traceconv/native")

setup(
    ext_modules=[
        Extension(
            "traceconv.native._native",
            sources=sorted(path.as_posix() for path in NATIVE.glob("*.c")),
            depends=sorted(path.as_posix() for path in NATIVE.glob("*.h")),
            extra_compile_args=["-O3"],
            # Where there is no C compiler it is left out, and slower ways are taken (traceconv/native/__init__.py).
            optional=True,
        )
    ]
)
