"""What is behind `format("virta")`, put together from options, plans, reading and writing.

Spark makes an object of each of these classes in whatever process it likes and sends them
on by pickle, so they hold options and plain values, and open the log where they are used.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import IntegerType, StructField, StructType

from virta.errors import NotFound, UsageError
from virta.metadata.schemas import stored_schema, suggest
from virta.spark import options, plan
from virta.spark.filters import Pushed, push
from virta.spark.headers import BLOCKS
from virta.spark.logs import topic_at
from virta.spark.options import Reading
from virta.spark.reading import PARTITION
from virta.spark.schemas import spark_schema
from virta.spark.sink import BatchWriter, StreamWriter
from virta.spark.stream import StreamReader
from virta.spark.task import NOTHING, Task, read_task
from virta.spark.telling import plainly
from virta.topics.filters import parse_filter
from virta.types import Kind


@plainly
def schema_of(given: Mapping[str, str]) -> StructType:
    """Partition, offset and time, then the topic's columns in its newest version."""
    topic, wanted = _opened(given)
    return readable_schema(topic, wanted)


@plainly
def reader_of(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    topic, wanted = _opened(given)
    wanted = of_kind(topic, wanted)
    check_columns(topic, wanted, schema)
    check_where(topic, wanted)
    # a reader that takes filters is refused where Spark does not give any
    kind = FilteringReader if wanted.pushdown and _is_asked_for_filters() else Reader
    return kind(wanted, schema)


@plainly
def stream_reader_of(given: Mapping[str, str], schema: StructType) -> StreamReader:
    topic, wanted = _opened(given)
    wanted = of_kind(topic, wanted, is_stream=True)
    check_columns(topic, wanted, schema)
    check_where(topic, wanted)
    return StreamReader(wanted, schema)


def _opened(given: Mapping[str, str]) -> tuple[Any, Reading]:
    wanted = options.reading(given)
    return topic_at(wanted.place), wanted


def of_kind(topic: Any, wanted: Reading, *, is_stream: bool = False) -> Reading:
    """With what is to be read of the topic settled."""
    kind = wanted.kind
    if kind == "blocks":
        _check_blocks(topic, wanted, is_stream=is_stream)
        return replace(wanted, pushdown=False)
    if topic.kind is not Kind.UPDATE:
        if kind in ("changes", "table"):
            raise UsageError(
                f"topic {topic.name!r} has no {kind}: it is of kind 'append'",
                hint="leave the option 'kind' out",
            )
        return replace(wanted, kind="rows")
    if is_stream and kind not in ("changes", "rows"):
        raise UsageError(
            f"topic {topic.name!r} is a table, and a table is not a stream",
            hint=".option('kind', 'changes') streams what changes it",
        )
    if kind == "table" and wanted.starting != "earliest":
        raise UsageError("a table has no beginning", hint="'ending' says as of when")
    return replace(wanted, kind="changes" if kind in ("rows", "changes") else "table")


def _check_blocks(topic: Any, wanted: Reading, *, is_stream: bool) -> None:
    if is_stream:
        raise UsageError(
            f"the blocks of topic {topic.name!r} are no stream", hint="read them as a batch, with spark.read"
        )
    if wanted.where is not None:
        raise UsageError(
            "the option 'where' is about rows, and these are blocks", hint="filter the DataFrame"
        )


@plainly
def writer_of(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    return BatchWriter(options.writing(given), schema, overwrite=overwrite)


@plainly
def stream_writer_of(given: Mapping[str, str], schema: StructType) -> StreamWriter:
    return StreamWriter(options.writing(given), schema)


def _is_asked_for_filters() -> bool:
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules or (
        getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "")
        == "pyspark.sql.worker.data_source_pushdown_filters"
    )


def readable_schema(topic: Any, wanted: Reading) -> StructType:
    """All columns a DataFrame over the topic has, or the chosen ones."""
    stored = columns_of(topic, wanted)
    if wanted.columns is not None:
        for name in wanted.columns:
            if name != PARTITION and name not in stored.names:
                raise _no_column(topic, name)
        chosen = [stored.field(name) for name in wanted.columns if name != PARTITION]
        fields = {field.name: field for field in spark_schema(pa.schema(chosen))}
        fields[PARTITION] = _PARTITION_FIELD
        return StructType([fields[name] for name in wanted.columns])
    return StructType([_PARTITION_FIELD, *spark_schema(stored)])


_PARTITION_FIELD = StructField(PARTITION, IntegerType(), False)


def _no_column(topic: Any, name: str) -> NotFound:
    return NotFound(
        f"topic {topic.name!r} has no column {name!r}", hint=suggest(name, topic.schema.names) or None
    )


def columns_of(topic: Any, wanted: Reading) -> pa.Schema:
    """The columns there are, `_partition` aside."""
    if wanted.kind == "blocks":
        return BLOCKS
    is_changes = topic.kind is Kind.UPDATE and wanted.kind in ("rows", "changes")
    return stored_schema(topic.schema, tombstones=is_changes)


def check_columns(topic: Any, wanted: Reading, schema: StructType) -> None:
    """That a schema the user gave asks for columns that are there."""
    known = {PARTITION, *columns_of(topic, wanted).names}
    for name in schema.names:
        if name not in known:
            raise _no_column(topic, name)


def check_where(topic: Any, wanted: Reading) -> None:
    """That the expression can be asked of the topic's columns, before any task is."""
    if wanted.where is not None:
        parse_filter(wanted.where).check(columns_of(topic, wanted))


class Reader(DataSourceReader):
    """A batch: planned where the driver is, read by executors."""

    def __init__(self, wanted: Reading, schema: StructType) -> None:
        self._reading = wanted
        self._schema = schema
        self._pushed = Pushed()

    @plainly
    def partitions(self) -> list[InputPartition]:
        wanted = self._reading
        topic = topic_at(wanted.place)
        spans = [
            self._pushed.narrow(span, functools.partial(plan.offset_at, topic.partition(span.partition)))
            for span in plan.spans(topic, wanted.starting, wanted.ending)
        ]
        if wanted.kind == "table":
            found = plan.whole(topic, spans)
        elif wanted.kind == "blocks" or not self._schema.names:
            found = plan.undivided(topic, spans)
        else:
            found = plan.slices(
                topic,
                spans,
                task_bytes=wanted.task_bytes,
                tasks=wanted.tasks,
                columns=self._schema.names,
            )
        return [Task(part) for part in found] or [NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._reading, self._schema, self._pushed.text)


class FilteringReader(Reader):
    """A batch whose filters Spark hands over; it looks again at every row that comes back."""

    @plainly
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        topic = topic_at(self._reading.place)
        self._pushed = push(filters, columns_of(topic, self._reading))
        if self._reading.kind == "table":
            # an older row of a key may match where its newest does not
            self._pushed = Pushed(partitions=self._pushed.partitions, text=self._pushed.text)
        return filters
