"""Read captures for the runtime's tests, without ingest code: records as arrays, strings by hash."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire.frames import Block, FrameDecoder


class Capture:
    """The records of a folder by name; device records of one device."""

    def __init__(self, folder: Path, device_id: int = 0) -> None:
        self.folder = folder
        self.device_id = device_id
        self.files = {
            str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
        }
        self._records: dict[str, RecordArray] = {}
        parts: dict[bytes, dict[int, bytes]] = {}
        for row in self["dictionary"]:
            text = bytes(row["text_bytes"])[: row["size_bytes"]]
            parts.setdefault(int(row["hash"]), {})[int(row["part"])] = text
        self.texts = {key: b"".join(found[part] for part in sorted(found)).decode() for key, found in parts.items()}
        self.texts[0] = ""

    def __getitem__(self, name: str) -> RecordArray:
        """All records of a type, in the order of the file."""
        if name not in self._records:
            arrays = [np.zeros(0, dtype_of(record(name)))]
            for path, data in self.files.items():
                owner, file_name = path.split("/")[0], path.split("/")[-1]
                if file_name.split(".")[0] != name or owner not in ("host", f"device_{self.device_id}"):
                    continue
                decoder = FrameDecoder()
                for block in [*decoder.feed(data), *decoder.finish()]:
                    assert isinstance(block, Block), block
                    arrays.append(np.frombuffer(block.payload, dtype_of(record(name))))
            self._records[name] = np.concatenate(arrays)
        return self._records[name]

    def text(self, hashes: RecordArray) -> list[str]:
        """The texts of a str field."""
        return [self.texts[int(value)] for value in hashes]

    def enum(self, name: str, field: str) -> list[str]:
        """An enum field as texts."""
        values = record(name).field(field).values or {}
        return [values[int(value)] for value in self[name][field]]

    def pairs(self, name: str, key: str) -> tuple[RecordArray, RecordArray]:
        """(begins, ends) of a record type, both in order of `key`; every begin has its end."""
        rows = self[name]
        begins, ends = rows[rows["event"] == 0], rows[rows["event"] == 1]
        begins, ends = begins[np.argsort(begins[key])], ends[np.argsort(ends[key])]
        assert np.array_equal(begins[key], ends[key])
        assert len(np.unique(begins[key])) == len(begins)
        return begins, ends
