"""A client's rows on their way in: Arrow messages into a block that can be stamped.

What comes is what Arrow writes for one batch: its dictionaries, then one record batch with
the topic's own columns. Nothing of it is believed:

 1. the messages must fill the body exactly, and each buffer lie inside it;
 2. compressed buffers say how large they become: the sum is held to a bound before any is
    opened;
 3. Arrow reads the batch and validates it in full (offsets, texts, null counts);
 4. rows are held to what an append in this process is held to: not null, limits of keys,
    rows and blocks.
The columns are not decoded into Python, and their bytes go to disk as they came. Only
batches with dictionaries are written anew, because those may come in ways that a block
must not have them (deltas, replacements).

Knows no sockets and no partitions.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from virta.broker.single import SingleRows
from virta.errors import Corrupt, SchemaMismatch, TooLarge, UsageError
from virta.metadata.schemas import written_schema
from virta.storage import block, encode, message
from virta.storage.block import Prepared
from virta.storage.commit import TopicChanged
from virta.topics.append import Form
from virta.topics.schema import SchemaSource
from virta.topics.sizes import BLOCK_LIMIT_BYTES, split

# Beside the largest row: offsets, null bits and padding of the columns, and what compresses well.
_SLACK_BYTES = BLOCK_LIMIT_BYTES


class Intake:
    """Takes batches for one topic."""

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas
        self._form: Form | None = None
        self._columns = pa.schema([])
        self._known: message.KnownLayout | None = None
        self._shape = (0, 0)  # bytes of nodes and of buffers that the columns take
        self._singles = SingleRows(self._columns)

    def _newest(self, topic_version: int) -> Form:
        """The form of this version; TopicChanged when the topic has another one."""
        form, record = self._form, self._schemas.record
        if record.version != topic_version:
            record = self._schemas.reload()
            if record.version != topic_version:
                raise TopicChanged
        if form is None or form.record is not record:
            self._columns = written_schema(self._schemas.version(record.schema_version))
            form = self._form = Form(record, self._columns)
            self._known = None
            self._singles = SingleRows(self._columns)
            empty, _ = encode.layout_of(pa.RecordBatch.from_pylist([], schema=self._columns))
            self._shape = len(empty.nodes), len(empty.buffers)
        return form

    def take(self, body: memoryview, topic_version: int) -> Prepared:
        """The rows, ready to be stamped; raises what is wrong with them."""
        form = self._newest(topic_version)
        single = self._singles.take(body)
        if single is not None:
            return single
        try:
            start, layout = self._layout(body)
        except Corrupt as error:
            raise SchemaMismatch(f"this is not valid Arrow data: {error.message}") from error
        head_size = len(body) - start - self._body_size(body, start)
        columns = body[start + head_size :]
        self._check_buffers(layout, columns, form.record.config.row_limit_bytes)
        batch = self._decode(body, has_dictionaries=start > 0)
        # the same checks as for an append in this process
        for checked in form.converter.from_arrow(batch, validate=True):
            if len(pieces := split(checked)) > 1:
                raise TooLarge(
                    f"a block has at most {BLOCK_LIMIT_BYTES:,} bytes, and this one has {checked.nbytes:,}",
                    size=checked.nbytes,
                    limit=BLOCK_LIMIT_BYTES,
                    hint="send fewer rows at a time",
                )
            if start or pieces[0] is not checked:
                return form.encoder.prepare(pieces[0])
        prepared = encode.with_leading(layout, columns, b"", batch.num_rows)
        self._singles.remember(body, head_size, layout, prepared)
        return prepared

    def _layout(self, body: memoryview) -> tuple[int, message.BatchLayout]:
        """Where the record batch begins, and where its buffers lie."""
        known = self._known
        if known is not None and (layout := known.read(body)) is not None:
            return 0, layout
        start, head = block.last_message(body)
        if head.kind != message.RECORD_BATCH_MESSAGE:
            raise Corrupt("no record batch stands in it")
        layout = message.parse_batch(head)
        if (len(layout.nodes), len(layout.buffers)) != self._shape or layout.variadic:
            raise Corrupt("the record batch has other columns than the topic")
        if layout.codec not in (None, 0, 1):
            raise Corrupt(f"the columns are compressed in a way that is not known here ({layout.codec})")
        if not start:
            self._known = message.KnownLayout.learn(body)
        return start, layout

    def _body_size(self, body: memoryview, start: int) -> int:
        known = self._known
        if not start and known is not None:
            return len(body) - known.size
        return len(body) - start - message.metadata_size(bytes(body[start : start + message.PREFIX_SIZE]))

    @staticmethod
    def _check_buffers(layout: message.BatchLayout, columns: memoryview, row_limit_bytes: int) -> None:
        size = len(columns)
        opened = 0
        for start, length in struct.iter_unpack("<qq", layout.buffers):
            if start < 0 or length < 0 or start + length > size:
                raise SchemaMismatch("this is not valid Arrow data: a buffer lies outside the message")
            if layout.codec is not None and length:
                if length < 8:
                    raise SchemaMismatch("this is not valid Arrow data: a compressed buffer is cut off")
                promised = struct.unpack_from("<q", columns, start)[0]
                opened += length - 8 if promised == -1 else promised
                if promised < -1:
                    raise SchemaMismatch("this is not valid Arrow data: a buffer of less than nothing")
        limit = max(row_limit_bytes, BLOCK_LIMIT_BYTES) + _SLACK_BYTES
        if layout.rows < 1:
            raise UsageError("an append holds at least one row")
        if max(opened, 16 * layout.rows) > limit:
            raise TooLarge(
                f"the rows become {max(opened, 16 * layout.rows):,} bytes when they are unpacked",
                size=opened,
                limit=limit,
                hint="send fewer rows at a time",
            )

    def _decode(self, body: memoryview, *, has_dictionaries: bool) -> pa.RecordBatch:
        try:
            return block.decode(body, self._columns, dictionaries=has_dictionaries)
        except Corrupt as error:
            raise SchemaMismatch(
                f"this is not valid Arrow data of the topic's columns: {error.message}"
            ) from error
