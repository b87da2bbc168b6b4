"""The folder of a lake: on a local disk, or in a bucket on S3."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from traceconv.base.errors import InputError, OutputError, UsageError, printable, reason_of
from traceconv.base.temporary_folder import temporary_folder
from traceconv.schema.ddl import quote_text
from traceconv.store.files import rename_new, sync

if TYPE_CHECKING:
    import duckdb

#: Folder of the entries, one per run; it makes a folder a lake.
ENTRIES = "_runs"
#: Folder of what is being written. Readers of partitioned Parquet skip names with an underscore.
_PARTIAL = "_partial"
_STALE_SECONDS = 24 * 3600
#: `Path` joins repeated slashes.
_S3 = re.compile(r"s3:/+(?=[^/])")
#: KEY:SECRET@ before a bucket. No name of a bucket has a colon, and a secret may have slashes.
_KEYS = re.compile(r"(?<=s3://)[^/@]*:[^@]*@")
#: A partition above the lake, which DuckDB would take for one of the lake.
_PARTITION = re.compile(r"(^|/)(run|group)=")
#: Requests in flight while entries are read.
_READERS = 16
_PART_BYTES = 1 << 20


class LakeFolder(Protocol):
    """Reads and writes the files of a lake by their names in it, such as `task/group=a/run=…/….parquet`.

    Raises OutputError for what can't be written, InputError for a folder that can't be listed.
    """

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of this machine."""

    @property
    def shown(self) -> str:
        """The path for messages."""

    @property
    def spark_path(self) -> str:
        """The path for Spark."""

    def entry_names(self) -> list[str]:
        """Return the names of the files in `_runs`, in order; none if there is no such folder."""

    def read(self, names: Iterable[str]) -> Iterator[bytes | OSError]:
        """Yield the content of each file, or why it can't be read."""

    def sha256(self, name: str) -> str | None:
        """Return the digest of a file in hex; None if it can't be read."""

    def sizes(self, names: Iterable[str]) -> Mapping[str, int]:
        """Return the sizes of those of the files that exist."""

    def connect(self, connection: duckdb.DuckDBPyConnection, name: str) -> str:
        """Let a connection read the files, even when it is locked down; return what precedes their names in SQL.

        name  names the folder in this connection
        """

    def staging(self) -> Any:  # a context manager: mypy can't check a decorated method of a protocol
        """Yield a local folder to write files in, which is removed afterwards."""

    def publish(self, file: Path, name: str) -> None:
        """Move a complete local file into the lake, under a name that no other file has."""

    def publish_entry(self, name: str, content: bytes, *, replace: bool) -> bool:
        """Write an entry at once; return False if it exists and is not to be replaced."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, if they exist."""


def is_lake(path: Path) -> bool:
    """Whether a path is a lake. Every path on S3 is one, since nothing else is read from there."""
    return is_s3(path) or os.path.isdir(path / ENTRIES)


def is_s3(path: Path) -> bool:
    """Whether a path is one on S3."""
    return bool(_S3.match(str(path)))


def shown_path(path: Path) -> str:
    """The path of a lake or a store for messages: `Path` joins the slashes of s3://; options and keys are left out."""
    text = str(path)
    if match := _S3.match(text):
        text = _KEYS.sub("", "s3://" + text[match.end() :].partition("?")[0])
    return printable(text)


def lake_folder(path: Path) -> LakeFolder:
    """Return the folder of the lake at a path, which need not exist. Raises InputError, UsageError."""
    text = str(path)
    if match := _S3.match(text):
        return _S3Folder("s3://" + text[match.end() :])
    return _LocalFolder(path)


class _LocalFolder:
    is_local = True

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self.shown = printable(str(path))
        self.spark_path = f"file:{self._path}"
        _check_parents(str(self._path), self.shown)

    def entry_names(self) -> list[str]:
        try:
            return sorted(path.name for path in (self._path / ENTRIES).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"can't read {self.shown}: {reason_of(error)}") from None

    def read(self, names: Iterable[str]) -> Iterator[bytes | OSError]:
        for name in names:
            try:
                yield (self._path / name).read_bytes()
            except OSError as error:
                yield error

    def sha256(self, name: str) -> str | None:
        try:
            with (self._path / name).open("rb") as file:
                return _sha256(file)
        except OSError:
            return None

    def sizes(self, names: Iterable[str]) -> Mapping[str, int]:
        found = {}
        for name in names:
            with suppress(OSError):
                found[name] = (self._path / name).stat().st_size
        return found

    def connect(self, connection: duckdb.DuckDBPyConnection, name: str) -> str:
        # Brackets quote the characters of patterns.
        prefix = re.sub(r"[*?\[]", r"[\g<0>]", f"{self._path}/")
        for path in {f"{self._path}/", prefix}:  # DuckDB checks the pattern, and what it matches
            _allow(connection, path)
        return prefix

    @contextmanager
    def staging(self) -> Iterator[Path]:
        with self._writing():
            folder = self._staged()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another program writes
                folder.parent.rmdir()

    def _staged(self) -> Path:
        top = self._path / _PARTIAL
        while True:
            top.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another program removes the empty folder
                for old in top.iterdir():  # of killed programs
                    with suppress(OSError):
                        if time.time() - old.stat().st_mtime > _STALE_SECONDS:
                            shutil.rmtree(old)
                return Path(tempfile.mkdtemp(dir=top))

    def publish(self, file: Path, name: str) -> None:
        target = self._path / name
        with self._writing():
            target.parent.mkdir(parents=True, exist_ok=True)
            sync(file)
            file.replace(target)
            sync(target.parent)

    def publish_entry(self, name: str, content: bytes, *, replace: bool) -> bool:
        target = self._path / name
        with self.staging() as folder, self._writing():
            file = folder / "entry.json"
            file.write_bytes(content)
            sync(file)
            target.parent.mkdir(parents=True, exist_ok=True)
            if replace:
                file.replace(target)
            else:
                try:
                    rename_new(file, target)
                except FileExistsError:
                    return False
            sync(target.parent)
        return True

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                (self._path / name).unlink()
            with suppress(OSError):  # of a label that the run no longer has
                (self._path / name).parent.rmdir()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"can't write {self.shown}: {reason_of(error)}") from error


class _S3Folder:
    """Files on S3, through pyarrow. Credentials are those of the AWS tools: variables, ~/.aws, the machine's role."""

    is_local = False

    def __init__(self, uri: str) -> None:
        from pyarrow import ArrowException, fs

        self.shown = shown_path(Path(uri))
        bucket, _, folder = self.shown.removeprefix("s3://").partition("/")
        # First, since the next call asks the server for the region, for 6 seconds if it can't be reached.
        if not folder.strip("/"):
            raise UsageError(f"{self.shown}: a lake needs a folder in the bucket, such as s3://{bucket}/lake")
        try:
            self._files, path = fs.FileSystem.from_uri(uri)
        except OSError as error:
            raise InputError(f"can't read {self.shown}: {_KEYS.sub('', reason_of(error))}") from None
        except (ArrowException, ValueError) as error:
            raise UsageError(f"{self.shown} is not a path on S3: {_KEYS.sub('', reason_of(error))}") from None
        self._top = path.rstrip("/")
        self.spark_path = f"s3a://{self._top}"
        _check_parents(self._top, self.shown)

    def entry_names(self) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self._listed(ENTRIES))

    def read(self, names: Iterable[str]) -> Iterator[bytes | OSError]:
        def content(name: str) -> bytes | OSError:
            try:
                with self._files.open_input_stream(f"{self._top}/{name}") as stream:
                    data: bytes = stream.read()
                    return data
            except OSError as error:
                return error

        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(content, names)

    def sha256(self, name: str) -> str | None:
        try:
            with self._files.open_input_stream(f"{self._top}/{name}") as stream:
                return _sha256(stream)
        except OSError:
            return None

    def sizes(self, names: Iterable[str]) -> Mapping[str, int]:
        listed: dict[str, int] = {}
        for folder in dict.fromkeys(name.partition("/")[0] for name in names):
            listed |= self._listed(folder)
        return listed

    def connect(self, connection: duckdb.DuckDBPyConnection, name: str) -> str:
        from traceconv.lake.s3_files import S3Files

        connection.register_filesystem(S3Files(self._files, name))
        _allow(connection, f"{name}://{self._top}/")
        return f"{name}://{self._top}/"

    @contextmanager
    def staging(self) -> Iterator[Path]:
        with temporary_folder() as folder:
            yield folder

    def publish(self, file: Path, name: str) -> None:
        from pyarrow import fs

        self._write(name, lambda target: fs.copy_files(str(file), target, destination_filesystem=self._files))
        file.unlink()

    def publish_entry(self, name: str, content: bytes, *, replace: bool) -> bool:
        if not replace and name in self._listed(ENTRIES):
            return False

        def put(target: str) -> None:
            with self._files.open_output_stream(target) as stream:
                stream.write(content)

        # A file appears when it is complete.
        self._write(name, put)
        return True

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._files.delete_file(f"{self._top}/{name}")

    def _listed(self, folder: str) -> dict[str, int]:
        """The files below a folder, with their sizes."""
        from pyarrow import fs

        try:
            found = self._files.get_file_info(
                fs.FileSelector(f"{self._top}/{folder}", recursive=True, allow_not_found=True)
            )
        except OSError as error:
            raise InputError(f"can't read {self.shown}: {reason_of(error)}") from None
        return {one.path[len(self._top) + 1 :]: one.size for one in found if one.type == fs.FileType.File}

    def _write(self, name: str, write: Any) -> None:
        try:
            write(f"{self._top}/{name}")
        except OSError as error:
            raise OutputError(f"can't write {self.shown}/{printable(name)}: {reason_of(error)}") from error


def new_file_name() -> str:
    """Return a name that no other file has."""
    return f"{os.urandom(8).hex()}.parquet"


def _sha256(file: IO[bytes]) -> str:
    import hashlib  # loads OpenSSL, which an ingest does not need

    digest = hashlib.sha256()
    while part := file.read(_PART_BYTES):
        digest.update(part)
    return digest.hexdigest()


def _allow(connection: duckdb.DuckDBPyConnection, folder: str) -> None:
    connection.execute(
        f"SET allowed_directories = list_append(current_setting('allowed_directories'), {quote_text(folder)})"
    )


def _check_parents(path: str, shown: str) -> None:
    if _PARTITION.search(path):
        raise UsageError(f"{shown}: a lake can't be in a folder whose name begins with run= or group=; choose another")
