"""Find the packages, and build the C extension. Everything else is in pyproject.toml."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("traceconv/native")
#: From Python 3.11, one module supports all later versions. The limited API of 3.10 lacks buffers: it needs its own.
ABI3 = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")


class BuildNative(build_ext):
    """Build in a checkout, deleting modules built under other names, which Python might load instead."""

    def run(self) -> None:
        if self.inplace or self.editable_mode:
            for path in NATIVE.glob("_native.*.so"):
                path.unlink()
        super().run()


setup(
    packages=["traceconv.schemas", *find_packages(include=["traceconv", "traceconv.*"])],
    cmdclass={"build_ext": BuildNative},
    ext_modules=[
        Extension(
            "traceconv.native._native",
            sources=sorted(path.as_posix() for path in NATIVE.glob("*.c")),
            depends=sorted(path.as_posix() for path in NATIVE.glob("*.h")),
            define_macros=[("Py_LIMITED_API", "0x030b0000")] if ABI3 else [],
            py_limited_api=ABI3,
            # `make sanitize` sets other flags.
            extra_compile_args=os.environ.get("TRACECONV_CFLAGS", "-O3").split(),
            extra_link_args=os.environ.get("TRACECONV_CFLAGS", "").split(),
            # Where there is no C compiler it is left out, and slower ways are taken (traceconv/native/__init__.py).
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if ABI3 else {},
)
