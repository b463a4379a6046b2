"""What a flow has done: the files that make a run restart where it stopped.

    <state>/<flow>/
      lock                      one runner at a time
      done.json                 the newest batch that is in the sink, and the source's position after it
      000000000012.json         the record of a batch: which staged files count, the position after it
      staged/000000000012-…/    rows of one attempt at a batch, read, transformed, masked, synced

1. Workers write rows into a staging directory of this attempt, and sync them.
2. The record appears, whole or not at all. From now on the batch is exactly these rows,
   whatever the source says when it is asked again.
3. The sink takes them under the batch's number. It knows the newest number it has, so taking
   the same batch twice changes nothing.
4. done.json is replaced; then record and staged files go.

What a crash leaves: before 2 a staging directory that nobody names, which is removed;
after it a record, which is finished (from 3 on) before anything new is read. Numbers rise by one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from virta.errors import Conflict, Corrupt, UsageError
from virta.storage.files import OperatingSystemFiles, replace_file

_FORMAT = 1
_DONE = "done.json"
_STAGED = "staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A file of rows that a worker wrote."""

    name: str
    read: int  # rows of the source that it holds the outcome of
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A batch that counts."""

    number: int
    directory: str
    staged: tuple[Staged, ...]
    position: Mapping[str, Any]
    sink: Mapping[str, Any] = field(
        default_factory=dict
    )  # what the sink wants to know when it is taken again

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.staged)

    @property
    def read(self) -> int:
        return sum(each.read for each in self.staged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How far a flow is; batch 0 is before the first."""

    number: int = 0
    position: Mapping[str, Any] | None = None
    read: int = 0
    rows: int = 0
    sink: Mapping[str, Any] = field(default_factory=dict)


class Journal:
    """The state of one flow, held by one runner."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = OperatingSystemFiles()
        self._lock: BinaryIO | None = None

    # -- one runner -------------------------------------------------------------------------------

    def __enter__(self) -> Journal:
        self.root.mkdir(parents=True, exist_ok=True)
        self._lock = (self.root / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise RunsAlready(
                f"{self.root} is in use: this flow is run by another process",
                hint="wait for it, or give this pipeline a name and a state of its own",
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- how far it is ------------------------------------------------------------------------------

    def done(self) -> Done:
        document = self._read(self.root / _DONE)
        return Done() if document is None else Done(**document)

    def pending(self) -> Record | None:
        """The record of the batch after the newest that is done."""
        document = self._read(self._record_path(self.done().number + 1))
        if document is None:
            return None
        staged = tuple(Staged(**each) for each in document.pop("staged"))
        return Record(staged=staged, **document)

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Corrupt("the state of a flow is not readable", file=str(path)) from error
        if document.pop("format", None) != _FORMAT:
            raise UsageError(
                f"{path} was written by a newer Virta", hint="update Virta, or name another state"
            )
        return dict(document)

    def _write(self, path: Path, value: Done | Record) -> None:
        document = {"format": _FORMAT, **dataclasses.asdict(value)}
        replace_file(self._files, path, (json.dumps(document, indent=1) + "\n").encode())

    def _record_path(self, number: int) -> Path:
        return self.root / f"{number:012d}.json"

    # -- a batch's life -------------------------------------------------------------------------------

    def begin(self, number: int) -> Path:
        """A staging directory for an attempt at a batch; what earlier attempts left goes."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.root / _STAGED)
        place = self.root / _STAGED / f"{number:012d}-{uuid.uuid4().hex[:8]}"
        place.mkdir(parents=True)
        return place

    def record(self, record: Record) -> Record:
        """Make the batch count."""
        self._files.sync_directory(self.root / _STAGED / record.directory)
        self._files.sync_directory(self.root / _STAGED)
        self._write(self._record_path(record.number), record)
        return record

    def finish(self, done: Done) -> None:
        """The batch is in the sink."""
        self._write(self.root / _DONE, done)
        self._record_path(done.number).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.root / _STAGED)

    def schema(self, record: Record) -> pa.Schema | None:
        """What columns the batch has; None where it has no rows."""
        first = next((each for each in record.staged if each.rows), None)
        if first is None:
            return None
        with self._open(record, first) as file, pa.ipc.open_stream(file) as reader:
            return reader.schema

    def batches(self, record: Record) -> Iterator[pa.RecordBatch]:
        """The rows of the batch, in their order."""
        for each in record.staged:
            if each.rows:
                with self._open(record, each) as file, pa.ipc.open_stream(file) as reader:
                    yield from reader

    def _open(self, record: Record, staged: Staged) -> Any:
        path = self.root / _STAGED / record.directory / staged.name
        try:
            return pa.memory_map(str(path))
        except FileNotFoundError as error:
            raise Corrupt("rows that a batch counts are gone", file=str(path)) from error


class RunsAlready(Conflict):
    """Another process holds the state of this flow."""

    def __init__(self, message: str, *, hint: str) -> None:
        UsageError.__init__(self, message, hint=hint)


class StagedFile:
    """Rows being staged; the file is whole and synced when it is finished."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"{uuid.uuid4().hex}.arrows"
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._schema: pa.Schema | None = None
        self.read = self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._file is None:
            self._file = self._path.open("wb")
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
            self._schema = batch.schema
        elif batch.schema != self._schema:
            raise UsageError(
                "a transformation gave rows with other columns than before",
                hint=f"first {self._schema}, then {batch.schema}",
            )
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def finish(self) -> Staged:
        size = 0
        if self._file is not None:
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
        return Staged(name=self._path.name, read=self.read, rows=self.rows, bytes=size)

    def discard(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
            self._file.close()
            self._path.unlink(missing_ok=True)
