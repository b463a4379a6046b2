"""From rows to an acknowledgement: prepare outside the lock, append, follow a changed topic.

The rows are validated and encoded before the partition is asked for anything. When the
topic has changed meanwhile (another process altered it), its record is read again and
the rows are prepared anew; rows that no longer fit are refused then.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from virta.errors import Closed, Conflict, DamageError, SchemaMismatch
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.catalog import TopicRecord
from virta.metadata.schemas import user_schema
from virta.storage import block
from virta.storage.commit import Append, RowsAlreadyThere, TopicChanged
from virta.topics.rows import RowConverter
from virta.topics.schema import SchemaSource
from virta.topics.single import SingleRow
from virta.types import Ack, Compression

# A topic that changes faster than rows can be prepared for it would keep a caller here for ever.
_ATTEMPTS = 16


class Appender:
    """Appends to one partition of one topic."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource) -> None:
        self.stored = stored
        self._number = stored.identity.number
        self._schemas = schemas
        self._lock = threading.Lock()
        self._take(schemas.record)

    def _take(self, record: TopicRecord) -> None:
        self.record = record
        self.converter = RowConverter(
            user_schema(self._schemas.newest()),
            row_limit_bytes=record.config.row_limit_bytes,
            keys=record.config.keys,
        )
        self._encoder = block.Encoder(user_schema(self._schemas.newest()), record.config.compression)
        single = SingleRow(
            user_schema(self._schemas.newest()), record.config.keys, record.config.row_limit_bytes
        )
        plain = record.config.compression is Compression.NONE
        self.single = single if single.usable and plain else None

    def prepare(self, batches: list[pa.RecordBatch]) -> list[block.Prepared]:
        return [self._encoder.prepare(batch) for batch in batches if batch.num_rows]

    def append(self, rows: Any, *, expected_offset: int | None = None) -> Ack:
        """Append anything `RowConverter` takes; durable to the topic's level when it returns."""
        for _ in range(_ATTEMPTS):
            if self._schemas.record is not self.record:
                self._take(self._schemas.record)
            record = self.record
            try:
                if expected_offset is None and type(rows) is dict and self.single is not None:
                    single = self.single.prepare(rows)
                    if single is not None:
                        return self._append_one(single, record)
                prepared = self.prepare(self.converter.batches(rows))
                return self._commit(prepared, record, expected_offset)
            except TopicChanged:
                self._follow()
            except SchemaMismatch:
                if self._schemas.reload().version == record.version:
                    raise
        raise self._restless()

    def append_batch(
        self,
        batch: pa.RecordBatch,
        *,
        producer: int,
        producer_epoch: int,
        sequence: int,
    ) -> Ack:
        """Append a checked batch of a producer; rows it has sent before are left out."""
        for _ in range(_ATTEMPTS):
            record = self.record
            prepared = self.prepare([batch])
            append = Append(
                prepared[0],
                record.version,
                producer=producer,
                producer_epoch=producer_epoch,
                sequence=sequence,
            )
            try:
                self.stored.append([append], record.config.durability)
            except TopicChanged:
                self._follow()
                batch = self.converter.batches(batch)[0]
                continue
            except RowsAlreadyThere as overlap:
                batch = batch.slice(overlap.rows)
                sequence += overlap.rows
                continue
            return self._ack([append], record)
        raise self._restless()

    def _commit(
        self, prepared: list[block.Prepared], record: TopicRecord, expected_offset: int | None
    ) -> Ack:
        appends = []
        for each in prepared:
            appends.append(Append(each, record.version, expected_offset=expected_offset))
            if expected_offset is not None:
                expected_offset += each.rows
        if not appends:
            return self._nothing(record, expected_offset)
        self.stored.append(appends, record.config.durability)
        return self._ack(appends, record)

    def _append_one(self, prepared: block.Prepared, record: TopicRecord) -> Ack:
        append = Append(prepared, record.version)
        self.stored.append_one(append, record.config.durability)
        assert append.block is not None
        header = append.block.header
        offset = header.base_offset
        return Ack(
            self._number, offset, offset + header.rows - 1, header.hash.hex(), record.config.durability
        )

    def _ack(self, appends: list[Append], record: TopicRecord) -> Ack:
        first, last = appends[0].block, appends[-1].block
        if first is None or last is None:  # a producer sent rows that are already there
            head = self.stored.head.hex()
            there = self.stored.next_offset
            return Ack(
                partition=self.stored.identity.number,
                first_offset=there,
                last_offset=there - 1,
                head=head,
                durability=record.config.durability,
                duplicate=True,
            )
        return Ack(
            partition=self.stored.identity.number,
            first_offset=first.header.base_offset,
            last_offset=last.header.end_offset - 1,
            head=last.header.hash.hex(),
            durability=record.config.durability,
        )

    def _nothing(self, record: TopicRecord, expected_offset: int | None) -> Ack:
        """Zero rows write nothing; the expectation is still held against what is there."""
        there = self.stored.next_offset
        if expected_offset is not None and expected_offset != there:
            raise Conflict(expected=expected_offset, actual=there)
        return Ack(
            partition=self.stored.identity.number,
            first_offset=there,
            last_offset=there - 1,
            head=self.stored.head.hex(),
            durability=record.config.durability,
        )

    def _follow(self) -> None:
        """Another process changed the topic: take its new version."""
        with self._lock:
            before = self.record
            found = self._schemas.reload()
            if found.id != before.id:
                raise Closed(
                    f"topic {before.name!r} was dropped and made again: it is another topic now",
                    hint="get it with log.topic() again",
                )
            self._take(found)
            if found.version == before.version:
                finish_change(self.stored, found)

    def _restless(self) -> DamageError:
        return DamageError(
            f"the topic's version in {self.stored.paths.lock} and in topic.toml do not come together",
            topic=self.record.name,
            partition=self.stored.identity.number,
            hint="run `virta doctor`",
        )


def finish_change(stored: StoredPartition, record: TopicRecord) -> None:
    """Bring a partition to the topic's version: a change may have been cut short by a crash."""
    with stored.writing() as committer:
        view = committer.view
        if view.state.topic_version >= record.version:
            return
        if view.active.entry.schema_version < record.schema_version:
            committer.roll(record.schema_version)
        committer.write_state(topic_version=record.version)
