"""Rows as they go over the wire: Arrow's own messages, without the leading columns.

The broker stamps offsets and times, so it is the broker that puts the leading columns before
them. A batch goes as pyarrow writes it. One plain row is put together without Arrow's
builders, by the same code as in an embedded log; only its message's head is another one.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from virta.metadata.catalog import TopicRecord
from virta.storage import message
from virta.storage.block import Prepared
from virta.topics.append import Form
from virta.types import Compression

_CODECS = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}
# Heads of one-row messages: as many shapes as `SingleRow` remembers.
_HEADS_LIMIT = 4096
_Q = struct.Struct("<q")


class WireBatch:
    """A batch, encoded; stands where a prepared block stands in an embedded log."""

    __slots__ = ("parts", "rows", "size")

    def __init__(self, rows: int, parts: list[Any]) -> None:
        self.rows = rows
        self.parts = parts
        self.size = sum(map(len, parts))


class WireEncoder:
    """Encodes batches of one schema."""

    def __init__(self, schema: pa.Schema, compression: Compression) -> None:
        self._schema_size = schema.serialize().size
        self._options = pa.ipc.IpcWriteOptions(compression=_CODECS.get(compression), unify_dictionaries=False)
        # batches with dictionaries of their own are not put together: theirs would have to be made one
        self.joins = not any(map(_holds_dictionary, schema.types))
        self._is_plain = compression is Compression.NONE and self.joins

    def prepare(self, batch: pa.RecordBatch) -> Any:
        if self._is_plain:
            return WireBatch(batch.num_rows, [memoryview(batch.serialize())])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=self._options) as writer:
            writer.write_batch(batch)
        # the stream's schema before it, its end mark of 8 bytes behind it
        whole = memoryview(sink.getvalue())
        return WireBatch(batch.num_rows, [whole[message.parse_head(whole).size : -8]])


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(index).type) for index in range(kind.num_fields))


class WireForm(Form):
    """How rows are prepared under one version of a topic, for a broker."""

    __slots__ = ()

    def __init__(self, record: TopicRecord, schema: pa.Schema) -> None:
        super().__init__(record, schema)
        self.encoder = WireEncoder(schema, record.config.compression)  # type: ignore[assignment]


_heads: dict[bytes, bytes] = {}


def parts_of(prepared: Any) -> list[Any]:
    """The body of an append."""
    if isinstance(prepared, WireBatch):
        return prepared.parts
    head = _heads.get(prepared.head)
    if head is None:
        head = _remember(prepared)
    return [head, *prepared.parts]


def _remember(prepared: Prepared) -> bytes:
    """The head of a one-row message without the leading columns."""
    found = message.parse_head(memoryview(prepared.head))
    layout = message.parse_batch(found)
    leading = found.body_length - len(prepared.body)
    numbers = list(struct.unpack(f"<{len(layout.buffers) // 8}q", layout.buffers[64:] and layout.buffers))[8:]
    numbers[::2] = [at - leading for at in numbers[::2]]
    nodes = layout.nodes[32:]
    template = message.build_template(nodes=len(nodes) // 16, buffers=len(numbers) // 2, fields_size=0)
    head = bytearray(template.data)
    _Q.pack_into(head, template.length_at, layout.rows)
    _Q.pack_into(head, template.body_length_at, len(prepared.body))
    head[template.nodes_at : template.nodes_at + len(nodes)] = nodes
    struct.pack_into(f"<{len(numbers)}q", head, template.buffers_at, *numbers)
    if len(_heads) >= _HEADS_LIMIT:
        _heads.clear()
    made = _heads[bytes(prepared.head)] = bytes(head)
    return made
