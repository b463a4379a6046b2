"""Writing into a topic: what tasks stage and the driver commits, for batches and for streams.

Tasks stage (`staging`), the driver records and appends (`outlet`). A stream's write is its
query: the id in its checkpoint, which the tasks tell the driver in their messages. A batch
job is a write of its own, or the one that the option `transaction` names.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from virta.errors import NotFound, SchemaMismatch, UsageError
from virta.metadata.schemas import DELETED, OFFSET, TIMESTAMP, stored_schema, suggest, written_schema
from virta.spark.logs import is_remote, log_at, topic_at
from virta.spark.options import Writing
from virta.spark.outlet import Outlet
from virta.spark.reading import PARTITION
from virta.spark.routing import Router
from virta.spark.schemas import exact, topic_schema
from virta.spark.staging import ABANDONED_SECONDS, Record, Staged, Staging, writes
from virta.spark.telling import plainly
from virta.storage.layout import LogPaths, topic_directory_name
from virta.topics.rows import RowConverter
from virta.types import Kind

# Rows that were read carry these; written again they get new ones.
_STAMPED = frozenset((PARTITION, OFFSET, TIMESTAMP))
_JOB_PREFIX, _NAMED_PREFIX, _QUERY_PREFIX = "job-", "named-", "query-"


@dataclass
class Message(WriterCommitMessage):
    """What a task tells the driver."""

    files: tuple[Staged, ...]
    query: str | None = None


# -- before anything is written -----------------------------------------------------------------


def prepare(writing: Writing, schema: StructType) -> None:
    """That the topic is there and takes these columns; it is made where that was asked for."""
    try:
        topic = topic_at(writing.place)
    except NotFound as error:
        if not writing.create:
            error.hint = f"{error.hint + '; ' if error.hint else ''}.option('create', 'true') makes it"
            raise
        log_at(writing.place.log).create_topic(
            writing.place.topic, topic_schema(_own(schema)), if_missing=True
        )
        topic = topic_at(writing.place)
    check_columns(topic, schema)


def _own(schema: StructType) -> StructType:
    return StructType([field for field in schema.fields if field.name not in _STAMPED])


def check_columns(topic: Any, schema: StructType) -> None:
    """That every column of the rows has a place, and every column that is not null gets a value."""
    known = rows_taken(topic)
    for name in schema.names:
        if name not in known.names and name not in _STAMPED:
            raise SchemaMismatch(
                f"topic {topic.name!r} has no column {name!r}",
                column=name,
                hint=f"{suggest(name, known.names)}; drop it from the rows, or alter() the topic",
            )
    for field in known:
        if not field.nullable and field.name not in schema.names and field.name != DELETED:
            raise SchemaMismatch(
                f"column {field.name!r} is not null, but the rows do not have it", column=field.name
            )


def rows_taken(topic: Any) -> pa.Schema:
    """The columns that rows may have; those of update topics may say that they delete their key."""
    return written_schema(stored_schema(topic.schema, tombstones=topic.kind is Kind.UPDATE))


def staging_root(writing: Writing) -> Path:
    """Where writes into the topic stage their rows."""
    name = topic_directory_name(writing.place.topic)
    if writing.staging is not None:
        log = hashlib.sha256(writing.place.log.encode()).hexdigest()[:16]
        return Path(writing.staging).expanduser().absolute() / log / name
    if is_remote(writing.place.log):
        raise UsageError(
            "rows for a log behind an address are staged in a directory, and none is named",
            hint=".option('staging', '/shared/path') names one that driver and executors see",
        )
    return LogPaths(root=Path(writing.place.log)).staging / name


# -- what tasks do ------------------------------------------------------------------------------


def stage(
    writing: Writing, staging: Staging, batch: int, rows: Iterator[pa.RecordBatch]
) -> tuple[Staged, ...]:
    """A task's rows, staged by partition of the topic; nothing is left when it fails."""
    topic = topic_at(writing.place)
    form = _Form(topic)
    context = TaskContext.get()
    router = Router(topic, first=0 if context is None else context.partitionId())
    places: dict[int, Any] = {}
    try:
        for given in rows:
            for batch_of_rows in form.converted(given):
                for partition, part in router.split(batch_of_rows):
                    place = places.get(partition)
                    if place is None:
                        place = places[partition] = staging.open(batch, partition, form.schema)
                    place.write(part)
        return tuple(places[partition].finish() for partition in sorted(places))
    except BaseException:
        for place in places.values():
            place.discard()
        raise


class _Form:
    """Spark's batches as the topic's columns."""

    def __init__(self, topic: Any) -> None:
        self.schema = rows_taken(topic)
        config = topic.config
        self._converter = RowConverter(self.schema, row_limit_bytes=config.row_limit_bytes, keys=config.keys)

    def converted(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        names = set(batch.schema.names)
        fields = [field for field in self.schema if field.name in names]
        columns = [exact(batch.column(field.name), field.type, field.name) for field in fields]
        if batch.num_rows == 0:
            return []
        given = pa.RecordBatch.from_arrays(
            columns, schema=pa.schema([pa.field(each.name, each.type) for each in fields])
        )
        return self._converter.batches(given)


# -- what the driver does -----------------------------------------------------------------------


def commit(writing: Writing, staging: Staging, producer: str, batch: int, files: Sequence[Staged]) -> Record:
    """Make these rows count, unless the batch was committed before; append what counts."""
    outlet = Outlet(topic_at(writing.place), producer)
    record = staging.read(batch)
    if record is None:
        kept = tuple(file for file in files if file.rows)
        sequence = {partition: outlet.sequence(partition) for partition in {file.partition for file in kept}}
        record = staging.record(batch, Record(files=kept, sequence=sequence))
    outlet.finish(staging, batch, record)
    staging.drop_files(batch)
    return record


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [file for message in messages if isinstance(message, Message) for file in message.files]


class BatchWriter(DataSourceArrowWriter):
    """A batch job."""

    def __init__(self, writing: Writing, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise UsageError("a topic is appended to, never overwritten", hint="write with mode('append')")
        prepare(writing, schema)
        self._writing = writing
        root = staging_root(writing)
        if writing.transaction is not None:
            digest = hashlib.sha256(writing.transaction.encode()).hexdigest()[:32]
            name = _NAMED_PREFIX + digest
        else:
            name = _JOB_PREFIX + uuid.uuid4().hex
        self._root = root / name
        self._producer = f"spark:{name}"
        finish_others(writing, root)

    @property
    def _staging(self) -> Staging:
        return Staging(self._root)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Message(files=stage(self._writing, self._staging, 0, iterator))

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._writing, self._staging, self._producer, 0, _files(messages))
        if self._writing.transaction is None:
            self._staging.remove()  # nobody can name it again

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._staging.forget(0, _files(messages))
        if self._staging.read(0) is None:
            self._staging.drop_files(0)


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming query; Spark makes one of these for every micro-batch, and more."""

    def __init__(self, writing: Writing, schema: StructType) -> None:
        prepare(writing, schema)
        self._writing = writing
        self._root = staging_root(writing)

    def _staging(self, query: str) -> Staging:
        return Staging(self._root / f"{_QUERY_PREFIX}{query}")

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise UsageError("Spark does not say which query and batch this is")
        return Message(files=stage(self._writing, self._staging(query), int(batch), iterator), query=query)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query = _query(messages)
        if query is None:
            return  # a batch without a task has no rows
        staging, producer = self._staging(query), f"spark:{_QUERY_PREFIX}{query}"
        for earlier in staging.recorded():
            if earlier < batchId and staging.directory(earlier).exists():
                commit(self._writing, staging, producer, earlier, ())
        commit(self._writing, staging, producer, batchId, _files(messages))
        staging.forget_before(batchId - self._writing.keep)

    @plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        query = _query(messages)
        if query is not None:
            self._staging(query).forget(batchId, _files(messages))


def _query(messages: Sequence[WriterCommitMessage | None]) -> str | None:
    return next((message.query for message in messages if isinstance(message, Message)), None)


def finish_others(writing: Writing, root: Path) -> None:
    """See to batch jobs whose driver died: those with a record are finished, old ones without removed.

    Only jobs: a stream finishes its own batches when it is started again.
    """
    for staging in writes(root):
        if staging.root.name.startswith(_QUERY_PREFIX):
            continue
        if staging.read(0) is None:
            if staging.idle_seconds() > ABANDONED_SECONDS:
                staging.remove()
        elif staging.root.name.startswith(_JOB_PREFIX) or staging.directory(0).exists():
            with contextlib.suppress(NotFound):  # its own driver has just finished it
                commit(writing, staging, f"spark:{staging.root.name}", 0, ())
            if staging.root.name.startswith(_JOB_PREFIX):
                staging.remove()
