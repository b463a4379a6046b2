"""From rows to an acknowledgement: prepare outside the lock, append, follow a changed topic.

The rows are validated and encoded before the partition is asked for anything. When the
topic has changed meanwhile (another process altered it), its record is read again and
the rows are prepared anew; rows that no longer fit are refused then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from virta.errors import Closed, Conflict, DamageError, SchemaMismatch, TooLarge
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.catalog import TopicRecord
from virta.metadata.schemas import written_schema
from virta.storage import block, encode, sources, state
from virta.storage.commit import Append, RowsAlreadyThere, TopicChanged
from virta.topics.rows import RowConverter
from virta.topics.schema import SchemaSource
from virta.topics.single import SingleRow
from virta.types import Ack, Compression

# A topic that changes faster than rows can be prepared for it would keep a caller here for ever.
_ATTEMPTS = 16
# What can be converted twice. An Arrow stream may be spent after the first time.
_REPEATABLE = (list, dict, pa.Table, pa.RecordBatch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Whose rows these are, and which of them, so that what is sent again is not written again."""

    producer: int = 0
    sequence: int = 0


NOBODY = Origin()


class Form:
    """How rows are prepared under one version of a topic; all of it changes together.

    A block prepared in one form must be appended under that form's version: its columns
    are told by the segment it goes into.
    """

    __slots__ = ("converter", "encoder", "record", "single")

    def __init__(self, record: TopicRecord, schema: pa.Schema) -> None:
        config = record.config
        self.record = record
        self.converter = RowConverter(schema, row_limit_bytes=config.row_limit_bytes, keys=config.keys)
        self.encoder = encode.Encoder(schema, config.compression)
        single = SingleRow(schema, config.keys, config.row_limit_bytes)
        self.single = single if single.usable and config.compression is Compression.NONE else None

    def prepare(self, batches: list[pa.RecordBatch]) -> list[block.Prepared]:
        return [self.encoder.prepare(batch) for batch in batches if batch.num_rows]


class Appender:
    """Appends to one partition of one topic."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource) -> None:
        self.stored = stored
        self._number = stored.identity.number
        self._schemas = schemas
        self._lock = threading.Lock()
        self._form = self._take(schemas.record)

    @property
    def record(self) -> TopicRecord:
        return self._form.record

    @property
    def topic(self) -> str:
        return self._schemas.record.name

    def _take(self, record: TopicRecord) -> Form:
        self._form = form = Form(record, written_schema(self._schemas.version(record.schema_version)))
        return form

    def _newest_form(self) -> Form:
        form, record = self._form, self._schemas.record
        return form if record is form.record else self._take(record)

    def append(self, rows: Any, *, expected_offset: int | None = None, origin: Origin = NOBODY) -> Ack:
        """Append anything `RowConverter` takes; durable to the topic's level when it returns."""
        batches: list[pa.RecordBatch] | None = None
        for _ in range(_ATTEMPTS):
            form = self._form
            if form.record is not self._schemas.record:
                form = self._newest_form()
            try:
                if expected_offset is None and type(rows) is dict and form.single is not None:
                    single = form.single.prepare(rows)
                    if single is not None:
                        return self._append_one(single, form.record)
                if batches is None:
                    form, batches = self.convert(rows)
                else:  # a stream can be read only once
                    batches = [part for batch in batches for part in form.converter.batches(batch)]
                return self._commit(form.prepare(batches), form.record, expected_offset, origin)
            except TopicChanged:
                self._follow(form)
        raise self._restless()

    def append_alone(self, make: Callable[[], Any], *, origin: Origin = NOBODY) -> Ack:
        """Append the rows that `make` gives, while nobody else can append between its look and them."""
        for _ in range(_ATTEMPTS):
            form = self._newest_form()
            appends: list[Append] = []

            def decide(form: Form = form, appends: list[Append] = appends) -> list[Append]:
                prepared = form.prepare(form.converter.batches(make()))
                appends.extend(_appends(prepared, form.record, None, origin))
                return appends

            try:
                self.stored.append_alone(decide, form.record.config.durability)
                return self._ack(appends, form.record)
            except TopicChanged:
                self._follow(form)
        raise self._restless()

    def convert(self, rows: Any) -> tuple[Form, list[pa.RecordBatch]]:
        """The rows as batches of the newest form; rows that do not fit may fit a newer one."""
        if not isinstance(rows, _REPEATABLE):  # there is one try: begin with the newest version
            self.stored.refresh()
            self._schemas.follow(self.stored.topic_version)
        form = self._newest_form()
        try:
            return form, form.converter.batches(rows)
        except SchemaMismatch:
            if not isinstance(rows, _REPEATABLE) or self._schemas.reload().version == form.record.version:
                raise
        form = self._newest_form()
        return form, form.converter.batches(rows)

    def append_batch(
        self,
        form: Form,
        batch: pa.RecordBatch,
        *,
        producer: int,
        producer_epoch: int,
        sequence: int,
    ) -> Ack:
        """Append a converted batch of a producer; rows it has sent before are left out."""
        for _ in range(_ATTEMPTS):
            append = Append(
                form.encoder.prepare(batch),
                form.record.version,
                producer=producer,
                producer_epoch=producer_epoch,
                sequence=sequence,
            )
            try:
                self.stored.append([append], form.record.config.durability)
            except TopicChanged:
                self._follow(form)
                form = self._newest_form()
                # wider columns may not fit one block any more
                batch, *rest = form.converter.batches(batch)
                for part in rest:
                    self.append_batch(
                        form,
                        batch,
                        producer=producer,
                        producer_epoch=producer_epoch,
                        sequence=sequence,
                    )
                    sequence += batch.num_rows
                    batch = part
                continue
            except RowsAlreadyThere as overlap:
                batch = batch.slice(overlap.rows)
                sequence += overlap.rows
                continue
            return self._ack([append], form.record)
        raise self._restless()

    def append_caused(
        self,
        form: Form,
        batch: pa.RecordBatch,
        *,
        producer: int,
        producer_epoch: int,
        sequence: int,
        source: str,
    ) -> None:
        """Append a converted batch as one block that says what position of its source it was caused by."""
        for _ in range(_ATTEMPTS):
            append = Append(
                self._caused(form.encoder.prepare(batch), producer, source),
                form.record.version,
                producer=producer,
                producer_epoch=producer_epoch,
                sequence=sequence,
                source=source,
            )
            try:
                self.stored.append([append], form.record.config.durability)
                return
            except TopicChanged:
                self._follow(form)
                form = self._newest_form()
                batch, *rest = form.converter.batches(batch)
                if rest:
                    raise TooLarge(
                        "what one batch caused is too large for one block", hint="read smaller batches"
                    ) from None
        raise self._restless()

    def _caused(self, prepared: Any, producer: int, source: str) -> Any:
        return encode.with_source(prepared, sources.encode({producer: source}))

    def _commit(
        self, prepared: list[block.Prepared], record: TopicRecord, expected_offset: int | None, origin: Origin
    ) -> Ack:
        if len(prepared) == 1 and expected_offset is None and origin is NOBODY:
            return self._append_one(prepared[0], record)
        appends = _appends(prepared, record, expected_offset, origin)
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

    def _follow(self, form: Form) -> None:
        """Another process changed the topic: take its new version."""
        with self._lock:
            before = form.record
            found = self._schemas.reload()
            if found.id != before.id:
                raise Closed(
                    f"topic {before.name!r} was dropped and made again: it is another topic now",
                    hint="get it with log.topic() again",
                )
            if found.version == before.version:
                finish_change(self.stored, found)

    def _restless(self) -> DamageError:
        return DamageError(
            f"the topic's version in {self.stored.paths.lock} and in topic.toml do not come together",
            topic=self.record.name,
            partition=self.stored.identity.number,
            hint="run `virta doctor`",
        )


def _appends(
    prepared: Sequence[block.Prepared], record: TopicRecord, expected_offset: int | None, origin: Origin
) -> list[Append]:
    """Blocks that follow each other."""
    found, sequence = [], origin.sequence
    for each in prepared:
        found.append(
            Append(
                each,
                record.version,
                expected_offset=expected_offset,
                producer=origin.producer,
                sequence=sequence,
            )
        )
        sequence += each.rows
        if expected_offset is not None:
            expected_offset += each.rows
    return found


def finish_change(stored: StoredPartition, record: TopicRecord) -> None:
    """Bring a partition to the topic's version: a change may have been cut short by a crash.

    Who made the change may have died before its topic.toml would outlast a power loss. The
    state record may outlast one, so topic.toml is made to last before the record names it.
    """
    with stored.writing() as committer:
        view = committer.view
        if view.state.topic_version >= record.version:
            return
        committer.settle_name(stored.paths.root.parent)
        if view.active.entry.schema_version < record.schema_version:
            committer.roll(record.schema_version)
        locked = state.LOCKED if record.config.locked else 0
        committer.write_state(topic_version=record.version, flags=view.state.flags | locked)
