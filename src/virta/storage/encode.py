"""From a batch of the user's columns to a block that only has to be stamped: all that needs no lock.

pyarrow encodes the columns. The record batch's message around them is laid out here, with the
two leading columns in front, and with every place known that is still to change.

This module opens no file and reads no clock.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from virta.errors import Corrupt
from virta.storage import chain, message
from virta.storage.block import FIELDS_DIGITS, Prepared, leading_size
from virta.types import Compression

_Q = struct.Struct("<q")
_QQQQ = struct.Struct("<4q")
_QQQQQQQQ = struct.Struct("<8q")
_LEADING = 2  # the columns _offset and _timestamp
_CODECS = {Compression.LZ4: "lz4", Compression.ZSTD: "zstd"}

_templates: dict[tuple[int, int, int | None, int], message.Template] = {}


def _template(nodes: int, buffers: int, codec: int | None, variadic: int) -> message.Template:
    key = (nodes, buffers, codec, variadic)
    found = _templates.get(key)
    if found is None:
        found = _templates[key] = message.build_template(
            nodes=nodes, buffers=buffers, fields_size=FIELDS_DIGITS, codec=codec, variadic=variadic
        )
    return found


def _leading_buffers(rows: int, codec: int | None) -> bytes:
    """(offset, length) of validity and values of the two leading columns."""
    each = 8 * rows if codec is None or not rows else 8 * rows + 8
    return _QQQQQQQQ.pack(0, 0, 0, each, each, 0, each, each)


class Encoder:
    """Encodes batches of one schema: the user's columns, with `_headers`, without the two leading ones."""

    def __init__(self, schema: pa.Schema, compression: Compression = Compression.NONE) -> None:
        dictionaries = any(_holds_dictionary(field.type) for field in schema)
        self._plain = compression is Compression.NONE and not dictionaries
        # unify_dictionaries is for files; here each block carries its own dictionaries whole
        self._options = pa.ipc.IpcWriteOptions(compression=_CODECS.get(compression), unify_dictionaries=False)
        self._known: message.KnownLayout | None = None

    def prepare(self, batch: pa.RecordBatch) -> Prepared:
        if self._plain:
            return self._prepare_plain(memoryview(batch.serialize()), batch.num_rows)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=self._options) as writer:
            writer.write_batch(batch)
        view = memoryview(sink.getvalue())
        at = _skip(view, 0, message.SCHEMA_MESSAGE)
        start = at
        while (head := message.parse_head(view[at:])).kind == message.DICTIONARY_MESSAGE:
            at += head.size
        body = view[at + head.metadata_length : at + head.size]
        return with_leading(message.parse_batch(head), body, bytes(view[start:at]), batch.num_rows)

    def _prepare_plain(self, encoded: memoryview, rows: int) -> Prepared:
        """The short way: pyarrow's metadata of one schema has one form, which is learned once."""
        known = self._known
        layout = known.read(encoded) if known is not None else None
        if layout is None or known is None:
            head = message.parse_head(encoded)
            layout = message.parse_batch(head)
            self._known = message.KnownLayout.learn(encoded)
            return with_leading(layout, encoded[head.metadata_length : head.size], b"", rows)
        return with_leading(layout, encoded[known.size :], b"", rows)


def prepare(batch: pa.RecordBatch, compression: Compression = Compression.NONE) -> Prepared:
    """Encode one batch."""
    return Encoder(batch.schema, compression).prepare(batch)


def _skip(view: memoryview, at: int, kind: int) -> int:
    head = message.parse_head(view[at:])
    if head.kind != kind:
        raise Corrupt("an Arrow stream does not begin with its schema")
    return at + head.size


def _holds_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    return any(_holds_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def with_leading(layout: message.BatchLayout, body: memoryview, dictionaries: bytes, rows: int) -> Prepared:
    """Put the leading columns before an encoded batch of the user's columns."""
    buffers = np.frombuffer(layout.buffers, "<i8").copy()
    buffers[::2] += leading_size(rows, layout.codec)
    return assemble(
        rows=rows,
        nodes=layout.nodes,
        buffers=buffers.tobytes(),
        variadic=layout.variadic,
        codec=layout.codec,
        parts=(body,),
        dictionaries=dictionaries,
    )


def assemble(
    *,
    rows: int,
    nodes: bytes,
    buffers: bytes,
    parts: Sequence[Any],
    variadic: bytes = b"",
    codec: int | None = None,
    dictionaries: bytes = b"",
) -> Prepared:
    """A prepared block from the places of its columns; `buffers` already lie behind the leading ones."""
    template = _template(
        len(nodes) // 16 + _LEADING, len(buffers) // 16 + 2 * _LEADING, codec, len(variadic) // 8
    )
    head = bytearray(template.data)
    _Q.pack_into(head, template.length_at, rows)
    _Q.pack_into(head, template.body_length_at, leading_size(rows, codec) + sum(map(len, parts)))
    at = template.nodes_at
    _QQQQ.pack_into(head, at, rows, 0, rows, 0)
    head[at + 32 : at + 32 + len(nodes)] = nodes
    at = template.buffers_at
    head[at : at + 64] = _leading_buffers(rows, codec)
    head[at + 64 : at + 64 + len(buffers)] = buffers
    if variadic:
        head[template.variadic_at : template.variadic_at + len(variadic)] = variadic
    flags = chain.DICTIONARIES if dictionaries else 0
    return Prepared(rows, dictionaries, head, template.fields_at, parts, codec, flags)


def layout_of(batch: pa.RecordBatch) -> tuple[message.BatchLayout, bytes]:
    """Where the buffers of a batch of the user's columns lie, and the body that holds them."""
    encoded = memoryview(batch.serialize())
    head = message.parse_head(encoded)
    return message.parse_batch(head), bytes(encoded[head.metadata_length : head.size])


def prepare_control(schema: pa.Schema, event: Mapping[str, Any]) -> Prepared:
    """A zero-row batch that carries an event. `schema` is the user's, without the leading columns."""
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    plain = prepare(empty)
    layout = message.parse_batch(message.parse_head(memoryview(plain.head + bytes(plain.body))))
    text = json.dumps(event, separators=(",", ":"), sort_keys=True).encode()
    template = message.build_template(
        nodes=len(layout.nodes) // 16,
        buffers=len(layout.buffers) // 16,
        fields_size=FIELDS_DIGITS,
        variadic=len(layout.variadic) // 8,
        extra=((message.EVENT_KEY, text),),
    )
    head = bytearray(template.data)
    struct.pack_into("<q", head, template.body_length_at, len(plain.body))
    head[template.buffers_at : template.buffers_at + len(layout.buffers)] = layout.buffers
    flags = chain.CONTROL | plain.flags
    return Prepared(0, plain.dictionaries, head, template.fields_at, plain.parts, None, flags)


def with_trail(prepared: Prepared, trail: bytes, source: bytes = b"") -> Prepared:
    """A prepared block that says which blocks it stands for, and what they said of their source."""
    extra = [(message.TRAIL_KEY, trail)]
    if source:
        extra.append((message.SOURCE_KEY, source))
    return _with_metadata(prepared, extra, prepared.flags | chain.REWRITTEN)


def with_source(prepared: Prepared, source: bytes) -> Prepared:
    """A prepared block that says what caused it (see sources)."""
    return _with_metadata(prepared, [(message.SOURCE_KEY, source)], prepared.flags)


def _with_metadata(prepared: Prepared, extra: list[tuple[bytes, bytes]], flags: int) -> Prepared:
    layout = message.parse_batch(message.parse_head(memoryview(prepared.head)))
    template = message.build_template(
        nodes=len(layout.nodes) // 16,
        buffers=len(layout.buffers) // 16,
        fields_size=FIELDS_DIGITS,
        codec=layout.codec,
        variadic=len(layout.variadic) // 8,
        extra=extra,
    )
    rows = prepared.rows
    head = bytearray(template.data)
    _Q.pack_into(head, template.length_at, rows)
    size = leading_size(rows, prepared.codec) + sum(map(len, prepared.parts))
    _Q.pack_into(head, template.body_length_at, size)
    head[template.nodes_at : template.nodes_at + len(layout.nodes)] = layout.nodes
    head[template.buffers_at : template.buffers_at + len(layout.buffers)] = layout.buffers
    if layout.variadic:
        head[template.variadic_at : template.variadic_at + len(layout.variadic)] = layout.variadic
    return Prepared(
        rows, prepared.dictionaries, head, template.fields_at, prepared.parts, prepared.codec, flags
    )
