"""A bucket on moto's server, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from processes import free_port, listens, wait_until


@contextmanager
def empty_bucket() -> Iterator[str]:
    """Yield the address of an empty bucket; `{}` is the place of the folder. The environment has the credentials."""
    from pyarrow import fs

    port = free_port()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        quiet = subprocess.DEVNULL
        server = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=os.environ, text=True)
        try:
            wait_until(server, lambda: listens(port))
            options = {"scheme": "http", "endpoint_override": f"127.0.0.1:{port}", "region": "us-east-1"}
            fs.S3FileSystem(**options, allow_bucket_creation=True).create_dir("bucket")
            yield "s3://bucket/{}?" + "&".join(f"{name}={value}" for name, value in options.items())
        finally:
            server.terminate()
            server.wait()
