"""Rows between a task and the topic: staged files, and the records that make them count.

    <log>/staging/<topic>/<write>/         one write: a stream's query, or a batch job
      <batch>/<attempt>.arrow              rows of one attempt of one task for one partition, synced
      <batch>.commit                       JSON: which attempts count, and where their rows go

A task stages its rows and tells the driver the files; few rows travel in the message
itself. The driver writes the commit record with all that counts: it appears whole or not
at all, and the first one wins. Only then are rows appended, under a producer's name that
belongs to the write and from the sequence the record says. So whoever finds the record
later, after a crash at any point, can finish what it says, and rows that are there already
are left out. Files that no record names count for nothing: they go with the next commit
of the write, or when the attempt is aborted.

A record says
    format      1
    files       in the order they are appended: name, partition, rows, and few rows themselves
                (`inline`, an Arrow stream in base64)
    sequence    of the first row, by partition: {"0": 1200}

Knows files only: no Spark, no topic.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.errors import Corrupt, NotFound

_RECORD_SUFFIX = ".commit"
_FORMAT = 1
# Below it a file costs more than the rows in a message do.
INLINE_BYTES = 64 * 1024
# A write that nobody touched for so long is dead: its tasks would have failed long ago.
ABANDONED_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Rows of one attempt of one task, for one partition of the topic."""

    name: str
    partition: int
    rows: int
    inline: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Which rows count, and from which sequence on they are appended."""

    files: tuple[Staged, ...]
    sequence: Mapping[int, int]

    def rows(self, partition: int) -> int:
        return sum(file.rows for file in self.files if file.partition == partition)

    @property
    def partitions(self) -> list[int]:
        return sorted({file.partition for file in self.files if file.rows})

    def to_bytes(self) -> bytes:
        files = [
            {
                "name": file.name,
                "partition": file.partition,
                "rows": file.rows,
                "inline": None if file.inline is None else base64.b64encode(file.inline).decode(),
            }
            for file in self.files
        ]
        return json.dumps({"format": _FORMAT, "files": files, "sequence": dict(self.sequence)}).encode()


def parse_record(data: bytes, path: Path) -> Record:
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT:
            raise ValueError(f"it has format {document['format']}, and this version knows {_FORMAT}")
        files = tuple(
            Staged(
                name=str(file["name"]),
                partition=int(file["partition"]),
                rows=int(file["rows"]),
                inline=None if file["inline"] is None else base64.b64decode(file["inline"]),
            )
            for file in document["files"]
        )
        return Record(files=files, sequence={int(key): int(at) for key, at in document["sequence"].items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"the commit record is not readable: {error}", file=str(path)) from error


class Staging:
    """The place of one write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def directory(self, batch: int) -> Path:
        return self.root / str(batch)

    def record_path(self, batch: int) -> Path:
        return self.root / f"{batch}{_RECORD_SUFFIX}"

    def open(self, batch: int, partition: int, schema: pa.Schema) -> StagedRows:
        """Where a task puts its rows."""
        return StagedRows(self.directory(batch), partition, schema)

    def read(self, batch: int) -> Record | None:
        """The commit record of a batch, if it was committed."""
        path = self.record_path(batch)
        try:
            return parse_record(path.read_bytes(), path)
        except FileNotFoundError:
            return None

    def record(self, batch: int, record: Record) -> Record:
        """Write the record, unless there is one already; the one that counts."""
        self.root.mkdir(parents=True, exist_ok=True)
        aside = self.root / f".{batch}.{uuid.uuid4().hex}"
        _write_synced(aside, record.to_bytes())
        try:
            os.link(aside, self.record_path(batch))
        except FileExistsError:
            found = self.read(batch)
            assert found is not None
            return found
        finally:
            aside.unlink()
        _sync(self.root)
        return record

    def batches(self, batch: int, file: Staged) -> Iterator[pa.RecordBatch]:
        """The rows of a file that counts."""
        path = self.directory(batch) / file.name
        try:
            source = pa.BufferReader(file.inline) if file.inline is not None else pa.memory_map(str(path))
            with source, pa.ipc.open_stream(source) as reader:
                yield from reader
        except FileNotFoundError as error:
            raise NotFound(
                f"staged rows are missing: {path} is not on {os.uname().nodename}",
                hint="driver and executors must see one staging directory: "
                ".option('staging', '/shared/path') names it",
            ) from error
        except pa.ArrowInvalid as error:
            raise Corrupt(f"staged rows cannot be read: {error}", file=str(path)) from error

    def drop_files(self, batch: int) -> None:
        """Remove what a batch staged, whichever attempt it was; its record stays."""
        shutil.rmtree(self.directory(batch), ignore_errors=True)

    def forget(self, batch: int, files: Iterable[Staged]) -> None:
        """Remove an attempt that was aborted, unless the record names it."""
        record = self.read(batch)
        counting = {file.name for file in record.files} if record is not None else set()
        for file in files:
            if file.inline is None and file.name not in counting:
                (self.directory(batch) / file.name).unlink(missing_ok=True)
        for directory in (self.directory(batch), self.root):
            with contextlib.suppress(OSError):  # it is not there, or not empty
                directory.rmdir()

    def forget_before(self, batch: int) -> None:
        """Remove what is left of batches before this one, records and all."""
        for path in self.root.glob("*"):
            stem = path.name.removesuffix(_RECORD_SUFFIX)
            if not stem.isdigit() or int(stem) >= batch:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def recorded(self) -> list[int]:
        """The batches that have a record."""
        stems = (path.name.removesuffix(_RECORD_SUFFIX) for path in self.root.glob(f"*{_RECORD_SUFFIX}"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def idle_seconds(self) -> float:
        """For how long nobody has touched anything in it."""
        newest = 0.0
        for path in (self.root, *self.root.rglob("*")):
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, path.stat().st_mtime)
        return time.time() - newest


class StagedRows:
    """Rows of one attempt for one partition, on their way to disk; few of them never get there."""

    def __init__(self, directory: Path, partition: int, schema: pa.Schema) -> None:
        self._directory = directory
        self._name = f"{uuid.uuid4().hex}.arrow"
        self._partition = partition
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._sink: Any = None
        self._writer: Any = None
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self._writer is None:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
            if self._held_bytes > INLINE_BYTES:
                self._open()
            return
        self._writer.write_batch(batch)

    def _open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._sink = pa.OSFile(str(self._directory / self._name), "wb")
        self._writer = pa.ipc.new_stream(self._sink, self._schema)
        for held in self._held:
            self._writer.write_batch(held)
        self._held.clear()

    def finish(self) -> Staged:
        """Make the rows last, or put them into the message."""
        inline = None
        if self._writer is None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self._schema) as writer:
                for batch in self._held:
                    writer.write_batch(batch)
            inline = sink.getvalue().to_pybytes()
        else:
            self._writer.close()
            self._sink.close()
            _sync(self._directory / self._name)
            _sync(self._directory)
        return Staged(name=self._name, partition=self._partition, rows=self.rows, inline=inline)

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
            (self._directory / self._name).unlink(missing_ok=True)


def writes(root: Path) -> Sequence[Staging]:
    """All writes below a topic's staging directory."""
    return [Staging(path) for path in sorted(root.glob("*")) if path.is_dir()]


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as sink:
        sink.write(data)
        sink.flush()
        os.fsync(sink.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
