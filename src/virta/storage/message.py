"""The Arrow message around a block's columns, written and read without a general encoder.

A record batch on disk is an encapsulated message (little-endian):

    ff ff ff ff | i32 length of the metadata | metadata (flatbuffer, padded to 8) | body

pyarrow writes the user's columns; Virta puts `_offset` and `_timestamp` before them
and its own block fields into the message's custom metadata. Both are only known
under the partition's lock, so the metadata is laid out here by hand, at places that
are known beforehand, and patched. The layout of the flatbuffer (all offsets forward):

    root, message vtable + table, record batch vtable + table, [compression],
    nodes, buffers, [variadic counts], key-value tables, strings

It is an ordinary Arrow message: any Arrow implementation reads it. This module opens
no file and knows nothing of chains; `parse_*` trusts no length it is given.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from virta.errors import Corrupt

CONTINUATION = b"\xff\xff\xff\xff"
PREFIX_SIZE = 8
FIELDS_KEY = b"virta"
EVENT_KEY = b"virta.event"
TRAIL_KEY = b"virta.trail"
SOURCE_KEY = b"virta.source"

SCHEMA_MESSAGE = 1
DICTIONARY_MESSAGE = 2
RECORD_BATCH_MESSAGE = 3
_VERSION_5 = 4
CODEC_LZ4 = 0
CODEC_ZSTD = 1

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A message's prefix and metadata with every place that changes known."""

    data: bytes
    length_at: int
    body_length_at: int
    nodes_at: int
    buffers_at: int
    variadic_at: int
    fields_at: int


def build_template(
    *,
    nodes: int,
    buffers: int,
    fields_size: int,
    codec: int | None = None,
    variadic: int = 0,
    extra: Sequence[tuple[bytes, bytes]] = (),
) -> Template:
    """Lay out prefix and metadata for a batch of so many nodes and buffers; `extra`: further pairs."""
    out = bytearray()

    def pad(size: int) -> None:
        out.extend(bytes(-len(out) % size))

    def later(at: int) -> None:
        """Point the offset at `at` to here."""
        _U32.pack_into(out, at, len(out) - at)

    # message: version i16, header type u8, header, body length i64, custom metadata
    out += bytes(4)
    pad(2)
    vtable = len(out)
    out += struct.pack("<7H", 14, 32, 4, 6, 8, 16, 24)
    pad(8)
    # the i64 at +16 of the table must be 8-aligned
    message = len(out)
    _U32.pack_into(out, 0, message)
    out += struct.pack(
        "<i h B x I I q I I", message - vtable, _VERSION_5, RECORD_BATCH_MESSAGE, 0, 0, 0, 0, 0
    )
    body_length_at = message + 16

    # record batch: length i64, nodes, buffers, compression, variadic counts
    pad(2)
    batch_vtable = len(out)
    out += struct.pack("<7H", 14, 32, 8, 16, 20, 24 if codec is not None else 0, 28 if variadic else 0)
    pad(8)
    batch = len(out)
    _U32.pack_into(out, message + 8, batch - (message + 8))
    out += struct.pack("<i I q I I I I", batch - batch_vtable, 0, 0, 0, 0, 0, 0)
    length_at = batch + 8

    if codec is not None:
        pad(2)
        compression_vtable = len(out)
        out += struct.pack("<4H", 8, 8, 4, 5)
        pad(4)
        later(batch + 24)
        compression = len(out)
        out += struct.pack("<i b b 2x", compression - compression_vtable, codec, 0)

    def vector(pointer: int, count: int, item_size: int) -> int:
        out.extend(bytes((4 - len(out)) % 8))  # the count is at 4 mod 8, so that the items are 8-aligned
        later(pointer)
        out.extend(_U32.pack(count))
        at = len(out)
        out.extend(bytes(count * item_size))
        return at

    nodes_at = vector(batch + 16, nodes, 16)
    buffers_at = vector(batch + 20, buffers, 16)
    variadic_at = vector(batch + 28, variadic, 8) if variadic else 0

    pairs = [(FIELDS_KEY, b"0" * fields_size)]
    pairs += extra
    pad(4)
    later(message + 24)
    out += _U32.pack(len(pairs))
    slots = len(out)
    out += bytes(4 * len(pairs))
    fields_at = 0
    for index, (key, value) in enumerate(pairs):
        pad(4)
        pair_vtable = len(out)
        out += struct.pack("<4H", 8, 12, 4, 8)
        later(slots + 4 * index)
        pair = len(out)
        out += struct.pack("<i I I", pair - pair_vtable, 0, 0)
        for pointer, text in ((pair + 4, key), (pair + 8, value)):
            pad(4)
            later(pointer)
            out += _U32.pack(len(text))
            if text is value and index == 0:
                fields_at = len(out)
            out += text + b"\0"
    pad(8)
    prefix = CONTINUATION + _I32.pack(len(out))
    return Template(
        data=prefix + bytes(out),
        length_at=length_at + PREFIX_SIZE,
        body_length_at=body_length_at + PREFIX_SIZE,
        nodes_at=nodes_at + PREFIX_SIZE,
        buffers_at=buffers_at + PREFIX_SIZE,
        variadic_at=variadic_at + PREFIX_SIZE if variadic else 0,
        fields_at=fields_at + PREFIX_SIZE,
    )


# -- reading ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHead:
    """What the front of an encapsulated message says of itself."""

    kind: int
    metadata_length: int  # with the prefix
    body_length: int
    metadata: bytes  # the flatbuffer, without the prefix

    @property
    def size(self) -> int:
        return self.metadata_length + self.body_length


# The largest metadata we believe: a thousand columns take about 64 KiB; a key-value text a little more.
METADATA_LIMIT = 64 * 1024 * 1024


def metadata_size(prefix: bytes) -> int:
    """The length of prefix and metadata that the first 8 bytes of a message promise."""
    if len(prefix) < PREFIX_SIZE or prefix[:4] != CONTINUATION:
        raise Corrupt("no Arrow message begins here")
    length = _I32.unpack_from(prefix, 4)[0]
    if length < 8 or length % 8 or length > METADATA_LIMIT:
        raise Corrupt(f"an Arrow message promises metadata of {length} bytes")
    return PREFIX_SIZE + int(length)


def parse_head(data: bytes | memoryview) -> MessageHead:
    """Read the head of a message from its prefix and metadata."""
    size = metadata_size(bytes(data[:PREFIX_SIZE]))
    if len(data) < size:
        raise Corrupt("an Arrow message ends in its metadata")
    metadata = bytes(data[PREFIX_SIZE:size])
    try:
        table = _Table(metadata, _U32.unpack_from(metadata, 0)[0])
        kind = table.u8(1)
        body_length = table.i64(3)
    except (struct.error, IndexError) as error:
        raise Corrupt("an Arrow message's metadata points outside itself") from error
    if body_length < 0 or body_length % 8:
        raise Corrupt(f"an Arrow message promises a body of {body_length} bytes")
    return MessageHead(kind=kind, metadata_length=size, body_length=body_length, metadata=metadata)


class _Table:
    """A flatbuffer table, read with every position checked by `struct` itself."""

    __slots__ = ("at", "data", "vtable", "vtable_size")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.vtable = at - _I32.unpack_from(data, at)[0]
        if self.vtable < 0:
            raise IndexError
        self.vtable_size = _U16.unpack_from(data, self.vtable)[0]

    def field(self, index: int) -> int:
        """Where the field lies, or 0 when it is left out."""
        entry = 4 + 2 * index
        if entry + 2 > self.vtable_size:
            return 0
        offset: int = _U16.unpack_from(self.data, self.vtable + entry)[0]
        return self.at + offset if offset else 0

    def u8(self, index: int) -> int:
        at = self.field(index)
        return self.data[at] if at else 0

    def i64(self, index: int) -> int:
        at = self.field(index)
        return int(_I64.unpack_from(self.data, at)[0]) if at else 0

    def pointer(self, index: int) -> int:
        at = self.field(index)
        return at + int(_U32.unpack_from(self.data, at)[0]) if at else 0

    def items(self, index: int, item_size: int) -> tuple[int, int]:
        """Position and count of a vector's items."""
        at = self.pointer(index)
        if not at:
            return 0, 0
        count: int = _U32.unpack_from(self.data, at)[0]
        if at + 4 + count * item_size > len(self.data):
            raise IndexError
        return at + 4, count

    def text(self, index: int) -> tuple[int, int]:
        """Position and length of a string."""
        return self.items(index, 1)


class BatchLayout(NamedTuple):
    """The part of a record batch's metadata that says where its buffers lie. One is made for every block."""

    rows: int
    nodes: bytes  # (length, null count) pairs
    buffers: bytes  # (offset, length) pairs
    variadic: bytes
    codec: int | None


def parse_batch(head: MessageHead) -> BatchLayout:
    metadata = head.metadata
    try:
        batch = _Table(metadata, _Table(metadata, _U32.unpack_from(metadata, 0)[0]).pointer(2))
        rows = batch.i64(0)
        nodes_at, nodes = batch.items(1, 16)
        buffers_at, buffers = batch.items(2, 16)
        compression = batch.pointer(3)
        variadic_at, variadic = batch.items(4, 8)
        codec = _Table(metadata, compression).u8(0) if compression else None
    except (struct.error, IndexError) as error:
        raise Corrupt("a record batch's metadata points outside itself") from error
    return BatchLayout(
        rows=rows,
        nodes=metadata[nodes_at : nodes_at + 16 * nodes],
        buffers=metadata[buffers_at : buffers_at + 16 * buffers],
        variadic=metadata[variadic_at : variadic_at + 8 * variadic],
        codec=codec,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLayout:
    """Where the numbers stand in the metadata that one encoder writes for one schema.

    Its messages differ in those numbers only; `read` checks that before it believes it.
    """

    size: int  # prefix and metadata
    rest: bytes  # the metadata with the numbers blanked
    length_at: int
    body_length_at: int
    nodes_at: int
    nodes: int
    buffers_at: int
    buffers: int

    def read(self, encoded: memoryview) -> BatchLayout | None:
        """The layout of an encoded batch, or None when its metadata has another form."""
        metadata = bytearray(encoded[: self.size])
        if len(metadata) < self.size:
            return None
        rows = _I64.unpack_from(metadata, self.length_at)[0]
        body_length = _I64.unpack_from(metadata, self.body_length_at)[0]
        nodes_at, buffers_at = self.nodes_at, self.buffers_at
        nodes = bytes(metadata[nodes_at : nodes_at + 16 * self.nodes])
        buffers = bytes(metadata[buffers_at : buffers_at + 16 * self.buffers])
        self._blank(metadata)
        if metadata != self.rest or self.size + body_length != len(encoded):
            return None
        return BatchLayout(rows, nodes, buffers, b"", None)

    def _blank(self, metadata: bytearray) -> None:
        metadata[self.length_at : self.length_at + 8] = bytes(8)
        metadata[self.body_length_at : self.body_length_at + 8] = bytes(8)
        metadata[self.nodes_at : self.nodes_at + 16 * self.nodes] = bytes(16 * self.nodes)
        metadata[self.buffers_at : self.buffers_at + 16 * self.buffers] = bytes(16 * self.buffers)

    @classmethod
    def learn(cls, encoded: memoryview) -> KnownLayout | None:
        """The layout of a message that was read the long way; None for forms with more in them."""
        head = parse_head(encoded)
        metadata = head.metadata
        message = _Table(metadata, _U32.unpack_from(metadata, 0)[0])
        batch = _Table(metadata, message.pointer(2))
        if batch.pointer(3) or batch.pointer(4) or not batch.field(0) or not message.field(3):
            return None
        nodes_at, nodes = batch.items(1, 16)
        buffers_at, buffers = batch.items(2, 16)
        known = cls(
            size=head.metadata_length,
            rest=b"",
            length_at=PREFIX_SIZE + batch.field(0),
            body_length_at=PREFIX_SIZE + message.field(3),
            nodes_at=PREFIX_SIZE + nodes_at,
            nodes=nodes,
            buffers_at=PREFIX_SIZE + buffers_at,
            buffers=buffers,
        )
        rest = bytearray(encoded[: known.size])
        known._blank(rest)
        return dataclasses.replace(known, rest=bytes(rest))


def find_metadata(head: MessageHead, key: bytes) -> tuple[int, int] | None:
    """Position (in the metadata) and length of the custom metadata value of a key."""
    metadata = head.metadata
    try:
        message = _Table(metadata, _U32.unpack_from(metadata, 0)[0])
        slots, count = message.items(4, 4)
        for index in range(count):
            slot = slots + 4 * index
            pair = _Table(metadata, slot + _U32.unpack_from(metadata, slot)[0])
            at, length = pair.text(0)
            if metadata[at : at + length] == key:
                return pair.text(1)
    except (struct.error, IndexError) as error:
        raise Corrupt("a message's custom metadata points outside itself") from error
    return None
