"""Files into a topic, streamed, each row exactly once.

    load(topic, ["orders.parquet", "more/"])

Each file is a producer of its own, named after the file's name and the digest of its
content, and each row has its place in the file as its sequence. So an import that was
killed is run again, and goes on where it stopped: what is there is left out. That holds
for a file that was moved elsewhere, too, and for one that was imported to its end: to have
its rows twice, append it. `_offset` and `_timestamp` are ignored: rows get new ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from virta.errors import NotFound, SchemaMismatch, TooLarge, UsageError
from virta.exchange.files import ENDINGS, files_in, own_columns, schema_of_file
from virta.exchange.input import Chunk, Source
from virta.log import Log
from virta.metadata.schemas import HEADERS
from virta.topics.topic import Topic
from virta.topics.writer import Writer

BATCH_ROWS = 10_000
_HASHED_BYTES = 1 << 20

Advance = Callable[[int, int], None]  # told rows and bytes, batch by batch


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLoad:
    """What came of one file."""

    path: Path
    rows: int
    known: int  # rows that were there already


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What an import appended."""

    files: tuple[FileLoad, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def known(self) -> int:
        return sum(each.known for each in self.files)


def load(
    topic: Topic,
    paths: Iterable[str | os.PathLike[str]],
    *,
    form: str | None = None,
    batch_rows: int = BATCH_ROWS,
    progress: Advance | None = None,
) -> LoadReport:
    """Append the rows of files, and of all files in folders; rows that are there already are left out."""
    found = files_in(_there(Path(path)) for path in paths)
    return LoadReport(files=tuple(_load_file(topic, path, form, batch_rows, progress) for path in found))


def create_from(log: Log, name: str, path: str | os.PathLike[str], **options: Any) -> Topic:
    """The topic with the columns of a Parquet or Arrow file, made if it is not there."""
    first = files_in([_there(Path(path))])[0]
    if ENDINGS.get(first.suffix.lower()) in ("csv", "tsv", "json", "jsonl"):
        raise UsageError(
            f"{first} does not say what types its columns have",
            hint=f"make the topic first: virta topic create {name} …",
        )
    schema = schema_of_file(first)
    headers = HEADERS in schema.names
    return log.create_topic(name, own_columns(schema, first), headers=headers, if_missing=True, **options)


def _there(path: Path) -> Path:
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    return path


def producer_of(path: Path) -> str:
    """The name a file's rows are appended under."""
    digest = blake3()
    with path.open("rb") as file:
        while piece := file.read(_HASHED_BYTES):
            digest.update(piece)
    return f"import:{digest.hexdigest()}:{path.name}"


def _load_file(
    topic: Topic, path: Path, form: str | None, batch_rows: int, progress: Advance | None
) -> FileLoad:
    source = Source(str(path), form)
    rows = known = 0
    with topic.writer(producer=producer_of(path), linger=0) as writer:
        done = writer.last_sequence + 1
        for chunk in source.chunks(topic.schema, batch_rows):
            count = chunk.rows.num_rows
            skipped = max(0, min(done - known, count))
            known += skipped
            if skipped < count:
                _send(writer, chunk, skipped, rows)
                rows += count - skipped
            if progress is not None:
                progress(count, chunk.bytes)
    return FileLoad(path=path, rows=rows, known=known)


def _send(writer: Writer, chunk: Chunk, skipped: int, before: int) -> None:
    """A refusal names the file and line instead of the row in the batch."""
    try:
        writer.send_batch(chunk.rows.slice(skipped))
    except (SchemaMismatch, TooLarge) as error:
        if error.row is not None:
            place = chunk.place(error.row + skipped)
            error.message = f"{place}: {error.message.removeprefix(f'row {error.row}: ')}"
        if before:
            error.message += f"; the {before:,} before it in this file were appended"
        raise
