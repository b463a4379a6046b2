"""A topic as a sink: rows are appended under a producer's name, so that none is there twice.

The producer's sequence counts the rows the flow has appended. A batch remembers where the
count stood before it; taken again, the rows that are there are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import virta
from virta.errors import Conflict, NotFound, UsageError
from virta.metadata.schemas import DELETED
from virta.pipelines.sinks.base import Batch, Committed, Sink
from virta.pipelines.sources.base import Origin
from virta.topics.partitioner import split_by_key

_SEQUENCE = "sequence"


class TopicSink(Sink):
    """A topic of a log; made from the source's keys and kind where it is not there."""

    def __init__(
        self,
        *,
        log: str,
        topic: str,
        create: bool = True,
        evolve: bool = True,
        keys: tuple[str, ...] | None = None,
        kind: str | None = None,
        partitions: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._address = log
        self._name = self.known_as = topic
        self._create = create
        self._evolve = evolve
        self._keys = keys
        self._kind = kind
        self._partitions = partitions
        self._options = dict(options or {})
        self._opened: Any = None
        self._origin: Origin | None = None

    def like(self, origin: Origin) -> None:
        """Take keys, kind and partitions from the source, where nothing else was said."""
        self._origin = origin

    @property
    def log(self) -> Any:
        if self._opened is None:
            self._opened = virta.open(self._address, create=self._create)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def describe(self) -> str:
        return f"topic {self._name} of {self._address}"

    def _found(self) -> Any:
        try:
            return self.log.topic(self._name)
        except NotFound:
            return None

    def _chosen(self, what: str, otherwise: Any) -> Any:
        own = getattr(self, f"_{what}")
        if own is not None:
            return own
        return otherwise if self._origin is None else getattr(self._origin, what)

    def check(self, schema: pa.Schema | None, keys: tuple[str, ...]) -> None:
        try:
            found = self._found()
        except NotFound:
            found = None
        if found is None and not self._create:
            raise NotFound(f'there is no topic "{self._name}" in {self._address}', hint="say create = true")
        wanted = tuple(self._chosen("keys", keys)) if found is None else tuple(found.config.keys)
        if schema is not None:
            missing = [key for key in wanted if key not in schema.names]
            if missing:
                raise UsageError(
                    f"{self.describe()} has the key {', '.join(wanted)}, and {', '.join(missing)} is dropped",
                    hint="mask keys with hash or id, which keep rows apart; or give the sink other keys",
                )

    def prepare(self, schema: pa.Schema) -> None:
        """A copy of which no row was wanted is an empty topic."""
        if self._found() is None:
            self._prepared(schema)

    def committed(self, flow: str) -> Committed | None:  # noqa: ARG002
        return None  # a topic knows how many rows it has of a flow, not of which batch

    def holds(self, flow: str) -> int:
        found = self._found()
        return 0 if found is None else sum(_counts(found, flow).values())

    def begin(self, flow: str) -> Mapping[str, Any]:
        found = self._found()
        return {_SEQUENCE: {} if found is None else _counts(found, flow)}

    def commit(self, batch: Batch) -> None:
        if batch.schema is None:
            return
        topic = self._prepared(batch.schema)
        places = [
            _Place(topic, number, batch.flow, int(batch.sink[_SEQUENCE].get(str(number), 0)))
            for number in range(topic.config.partitions)
        ]
        try:
            for turn, rows in enumerate(batch.rows()):
                for number, part in _routed(_fitting(rows, topic), topic, turn + batch.number):
                    places[number].send(part)
        finally:
            for place in places:
                place.close()
        topic.sync()

    def _prepared(self, schema: pa.Schema) -> Any:
        """The topic, made or widened so that the rows fit."""
        own = pa.schema(
            [field for field in schema if not field.name.startswith("_") or field.name == "_headers"]
        )
        headers = "_headers" in own.names
        plain = pa.schema([field for field in own if field.name != "_headers"])
        found = self._found()
        if found is None:
            return self.log.create_topic(
                self._name,
                plain,
                keys=self._chosen("keys", ()),
                kind=self._chosen("kind", "append"),
                partitions=self._chosen("partitions", 1),
                headers=headers,
                if_missing=True,
                **self._options,
            )
        missing = [field for field in plain if field.name not in found.schema.names]
        if missing:
            if not self._evolve:
                raise UsageError(
                    f"{self.describe()} has no column {', '.join(field.name for field in missing)}",
                    hint="say evolve = true, and it gets them",
                )
            found.alter(schema=pa.schema([*found.schema, *(field.with_nullable(True) for field in missing)]))
        return found

    def deletes(self) -> bool:
        try:
            found = self._found()
        except NotFound:
            found = None
        kind = self._chosen("kind", "append") if found is None else found.config.kind
        return str(kind) == "update"

    def head_if_there(self) -> Any:
        """As `head`, also where there is no log yet."""
        try:
            return self.head()
        except NotFound:
            return None

    def head(self) -> Any:
        found = self._found()
        if found is None:
            return None
        return {
            "topic_id": found.id,
            "heads": {str(number): head for number, head in found.heads.items()},
            "next_offsets": {str(number): offset for number, offset in found.next_offsets.items()},
        }


class _Place:
    """A partition of the target: what it has of the flow is left out, the rest is appended."""

    def __init__(self, topic: Any, number: int, flow: str, first: int) -> None:
        self._writer = topic.writer(producer=producer_of(flow), partition=number, linger=0)
        self._there = self._writer.last_sequence + 1 - first
        if self._there < 0:
            self._writer.close()
            raise Conflict(
                expected=first,
                actual=first + self._there,
                what=f"rows of {flow} in topic {topic.name}/{number}",
            )

    def send(self, rows: pa.RecordBatch) -> None:
        left = max(0, rows.num_rows - self._there)
        if left:
            self._writer.send_batch(rows.slice(rows.num_rows - left))
        self._there = max(0, self._there - rows.num_rows)

    def close(self) -> None:
        self._writer.close()


def _counts(topic: Any, flow: str) -> dict[str, int]:
    """How many rows each partition has of the flow."""
    found = {}
    for number in range(topic.config.partitions):
        with topic.writer(producer=producer_of(flow), partition=number, linger=0) as writer:
            found[str(number)] = writer.last_sequence + 1
    return found


def _routed(rows: pa.RecordBatch, topic: Any, turn: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows by partition: by their key as always, else in turns that are the same when taken again."""
    count = topic.config.partitions
    if count == 1 or not topic.config.keys:
        yield turn % count, rows
    else:
        yield from split_by_key(rows, topic.config.keys, count)


def producer_of(flow: str) -> str:
    return f"pipeline:{flow}"


def _fitting(rows: pa.RecordBatch, topic: Any) -> pa.RecordBatch:
    """The columns the topic takes; rows that delete only where the topic knows what that is."""
    deletes = str(topic.config.kind) == "update"
    if not deletes and DELETED in rows.schema.names:
        rows = rows.filter(pc.invert(rows.column(DELETED)))
    names = [
        name
        for name in rows.schema.names
        if not name.startswith("_") or name == "_headers" or (name == DELETED and deletes)
    ]
    return rows.select(names)
