"""Appending and writing through a broker: the embedded code, with what the wire makes different."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pyarrow as pa

from virta.client.encoding import WireEncoder, WireForm
from virta.client.partition import RemotePartition
from virta.client.wire import Pending
from virta.errors import VirtaError
from virta.metadata.catalog import TopicRecord
from virta.metadata.schemas import written_schema
from virta.storage.commit import Append, RowsAlreadyThere, TopicChanged
from virta.topics.append import Appender, Form
from virta.topics.writer import Writer
from virta.types import Ack

# Batches of a writer on their way: enough to keep broker and network busy, few enough to hold twice.
_WINDOW_BYTES = 8 * 1024 * 1024
_WINDOW_BATCHES = 64
# Small batches that come while others are on their way are joined up to this: larger blocks cost less.
_JOIN_BYTES = 1024 * 1024


class RemoteAppender(Appender):
    """Appends to one partition at a broker."""

    stored: RemotePartition  # type: ignore[assignment]

    def _take(self, record: TopicRecord) -> Form:
        self._form = form = WireForm(record, written_schema(self._schemas.version(record.schema_version)))
        return form

    def _append_one(self, prepared: Any, record: TopicRecord) -> Ack:
        return self._marked(super()._append_one(prepared, record))

    def _ack(self, appends: list[Append], record: TopicRecord) -> Ack:
        return self._marked(super()._ack(appends, record))

    def _marked(self, ack: Ack) -> Ack:
        """With what was asked for: who has the rows when it comes back."""
        acks = self.stored.wire.address.acks
        return ack if acks == "leader" else ack._replace(acks=acks)

    def pipelined(self, form: Form, batch: Any, producer: int, epoch: int, sequence: int) -> _OnItsWay:
        """Send a batch without waiting for its acknowledgement."""
        append = Append(
            form.encoder.prepare(batch),
            form.record.version,
            producer=producer,
            producer_epoch=epoch,
            sequence=sequence,
        )
        return _OnItsWay(append, self.stored.post(append), form, batch)

    def _caused(self, prepared: Any, producer: int, source: str) -> Any:  # noqa: ARG002
        return prepared  # the broker lays out the block, and puts the position into it

    def acknowledged(self, appends: list[Append], record: TopicRecord) -> Any:
        return self._ack(appends, record)


class _OnItsWay:
    """A batch that was sent and is not acknowledged yet."""

    __slots__ = ("append", "batch", "form", "pending")

    def __init__(self, append: Append, pending: Pending | None, form: Form, batch: Any) -> None:
        self.append = append
        self.pending = pending
        self.form = form
        self.batch = batch


class RemoteWriter(Writer):
    """A buffered writer that does not wait for each batch: `flush` waits for all of them."""

    _appender: RemoteAppender

    def __init__(self, appender: RemoteAppender, **options: Any) -> None:
        self._on_their_way: deque[_OnItsWay] = deque()
        self._bytes_on_their_way = 0
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_form: Form | None = None
        self._gathered_rows = self._gathered_bytes = 0
        self._identity = appender.stored.take_identity()
        self._offset = self._identity.sequence  # sequences of the number, before this writer's first row
        super().__init__(appender, **options)

    def send_batch(self, rows: Any) -> None:
        """Take rows as Arrow, or a list of dicts; larger batches make larger blocks.

        A batch is sent at once where none is on its way; small ones behind it are joined.
        """
        with self._flushing:
            if self._rows or self._failure is not None or self._closed:
                super().flush()
            self._guard(self._append_all, rows)

    def flush(self) -> None:
        """Append what has gathered; durable to the topic's level when it returns."""
        with self._flushing:
            super().flush()
            self._guard(self._settle_all, None)

    def _flush_lingering(self) -> None:
        """As `flush`, but while more is sent nobody is held up for the acknowledgements."""
        with self._flushing:
            super().flush()
            self._guard(self._settle_all if not self._rows else self._send_only, None)

    def _send_only(self, _: None) -> None:
        self._send_gathered()

    def _has_waiting(self) -> bool:
        return bool(self._rows or self._gathered)

    def look(self) -> None:
        """Send when enough has gathered; acknowledgements are waited for at the next flush."""
        if self._failure is not None or self._closed:
            self._rows.clear()
            self._raise()
        super().look()

    def _append_all(self, rows: Any) -> None:
        form, batches = self._appender.convert(rows)
        for batch in batches:
            self._gather(form, batch)

    def _gather(self, form: Form, batch: pa.RecordBatch) -> None:
        """Send the batch, with small ones before it, or keep it for those that follow."""
        size = batch.get_total_buffer_size()
        if self._gathered and (
            form is not self._gathered_form
            or self._gathered_rows + batch.num_rows > self._max_rows
            or self._gathered_bytes + size > _JOIN_BYTES
        ):
            self._send_gathered()
        self._gathered.append(batch)
        self._gathered_form = form
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += size
        if (
            not self._on_their_way
            or not cast("WireEncoder", form.encoder).joins
            or self._gathered_rows >= self._max_rows
            or self._gathered_bytes >= _JOIN_BYTES
        ):
            self._send_gathered()

    def _send_gathered(self) -> None:
        form, batches = self._gathered_form, self._gathered
        if form is None or not batches:
            return
        self._gathered, self._gathered_form = [], None
        self._gathered_rows = self._gathered_bytes = 0
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        producer, sequence = self._place()
        sent = self._appender.pipelined(form, batch, producer, self._epoch, sequence)
        self._on_their_way.append(sent)
        self._bytes_on_their_way += sent.append.prepared.size
        self._sequence += batch.num_rows
        if self._bytes_on_their_way > _WINDOW_BYTES or len(self._on_their_way) > _WINDOW_BATCHES:
            self._settle(_WINDOW_BYTES // 2)

    def _place(self) -> tuple[int, int]:
        if self.producer is not None:
            return self._producer, self._sequence
        return self._identity.number, self._offset + self._sequence

    def _settle_all(self, _: None) -> None:
        self._send_gathered()
        self._settle(0)

    def _settle(self, most_bytes: int) -> None:
        """Take acknowledgements until so few bytes are on their way."""
        appender = self._appender
        while self._on_their_way and (self._bytes_on_their_way > most_bytes or most_bytes == 0):
            sent = self._on_their_way.popleft()
            self._bytes_on_their_way -= sent.append.prepared.size
            append = sent.append
            appender.stored.settle(append, sent.pending)
            if isinstance(append.error, TopicChanged | RowsAlreadyThere):
                self._again(sent)
                return
            if append.error is not None:
                raise append.error
            self.last_ack = appender.acknowledged([append], sent.form.record)

    def _again(self, first: _OnItsWay) -> None:
        """The topic changed under the batches on their way: none behind the first was taken either."""
        appender = self._appender
        waiting = [first, *self._on_their_way]
        for sent in self._on_their_way:
            appender.stored.settle(sent.append, sent.pending)
        self._on_their_way.clear()
        self._bytes_on_their_way = 0
        for sent in waiting:
            append = sent.append
            if append.error is None:
                continue
            self.last_ack = appender.append_batch(
                sent.form,
                sent.batch,
                producer=append.producer,
                producer_epoch=append.producer_epoch,
                sequence=append.sequence,
            )

    def _end(self) -> None:
        super()._end()
        if self.producer is None and self._failure is None and not self._on_their_way:
            self._identity.sequence = self._offset + self._sequence
            self._appender.stored.give_back(self._identity)

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        try:
            super().__exit__(kind, *raised)
        except VirtaError:
            if kind is None:
                raise
