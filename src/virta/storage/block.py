"""A block: its dictionaries, whole, then exactly one Arrow record batch that describes itself.

The record batch's custom metadata has under the key `virta` 224 hexadecimal digits:

    digits    bytes  what
      0-127     64   the header's fields (see chain.py), position and length zero
    128-159     16   a random salt
    160-223     32   the digest: BLAKE3 of all the block's bytes with these 64 digits read as '0'

A control block is a batch of zero rows; its event is JSON text under `virta.event`.

A block is valid when its messages parse, nothing is left over, its digest is right
and its fields agree with its place (schema version, rows). Columns `_offset` and
`_timestamp` come first and are never compressed: they are stamped under the lock,
when the rest has long been built.

`encode` does all that can be done before the lock; `stamp` the little that is left.
This module opens no file and reads no clock.
"""

from __future__ import annotations

import json
import os
import struct
import weakref
from binascii import hexlify
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3

from virta.errors import Corrupt, TooLarge, UsageError
from virta.storage import chain, message
from virta.storage.chain import FIELDS, FIELDS_SIZE, Header

SALT_SIZE = 16
DIGEST_SIZE = 32
FIELDS_DIGITS = 2 * (FIELDS_SIZE + SALT_SIZE + DIGEST_SIZE)
_DIGEST_AT = 2 * (FIELDS_SIZE + SALT_SIZE)
_NO_DIGEST = b"0" * (2 * DIGEST_SIZE)
# Decoded bytes; one oversize row excepted. Large enough to amortise, small enough to hold a few in memory.
BLOCK_LIMIT_BYTES = 16 * 1024 * 1024
# Blocks up to this size are put together in one buffer, since BLAKE3 takes one piece nearly twice as
# fast as three; larger ones are hashed and written from where their parts lie.
_JOIN_LIMIT_BYTES = 1024 * 1024

_QQ = struct.Struct("<qq")
_RECORD = struct.Struct(FIELDS.format + f"{DIGEST_SIZE}s{DIGEST_SIZE}s")
_new_tuple = tuple.__new__  # what a named tuple does to make one, without a call of its own
_NOT_COMPRESSED = struct.pack("<q", -1)
_LEADING_FIELDS = [
    pa.field("_offset", pa.int64(), nullable=False),
    pa.field("_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
]


class Prepared:
    """A block but for what is only known under the lock: offsets, time, salt and digest.

    `parts` are the columns' bytes, one after another; they are put together with the rest.
    """

    __slots__ = ("codec", "dictionaries", "fields_at", "flags", "head", "parts", "rows", "size")

    def __init__(
        self,
        rows: int,
        dictionaries: bytes,
        head: bytes | bytearray,
        fields_at: int,
        parts: Sequence[Any],
        codec: int | None,
        flags: int,
        size: int = 0,
    ) -> None:
        self.rows = rows
        self.dictionaries = dictionaries
        self.head = head
        self.fields_at = fields_at
        self.parts = parts
        self.codec = codec
        self.flags = flags
        self.size = size or sum(map(len, (dictionaries, head, *parts))) + leading_size(rows, codec)

    @property
    def body(self) -> Any:
        """The columns' bytes in one piece."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


def leading_size(rows: int, codec: int | None) -> int:
    return 16 * rows if codec is None or not rows else 16 * rows + 16


def _leading_body(rows: int, codec: int | None, base_offset: int, timestamp: int) -> bytes:
    mark = b"" if codec is None or not rows else _NOT_COMPRESSED
    offsets = np.arange(base_offset, base_offset + rows, dtype="<i8").tobytes()
    return mark + offsets + mark + struct.pack("<q", timestamp) * rows


def stamp_rewritten(
    prepared: Prepared,
    *,
    offsets: np.ndarray[Any, Any],
    times: np.ndarray[Any, Any],
    fields: bytes,
    previous: bytes,
    hash_: bytes,
    position: int,
) -> Stamped:
    """Give a block with a trail its place: rows keep their offsets and times, the block an older hash.

    `fields` are what it says of itself, without its place; `offsets` and `times` those of its rows.
    """
    mark = b"" if prepared.codec is None or not prepared.rows else _NOT_COMPRESSED
    leading = b"".join((mark, offsets.astype("<i8").tobytes(), mark, times.astype("<i8").tobytes()))
    whole = bytearray().join((prepared.dictionaries, prepared.head, leading, *prepared.parts))
    at = prepared.fields_at + len(prepared.dictionaries)
    whole[at : at + _DIGEST_AT] = hexlify(fields + _salt())
    digest = blake3(whole).digest()
    whole[at + _DIGEST_AT : at + FIELDS_DIGITS] = hexlify(digest)
    placed = chain.with_place(chain.with_check(previous, fields, digest, hash_), position, len(whole))
    record = placed + digest + hash_
    return Stamped([whole], chain.unpack_header(record), record)


class Stamped:
    """A block as it goes to disk, with its header and the header's 128 bytes."""

    __slots__ = ("header", "parts", "record")

    def __init__(self, parts: list[Any], header: Header, record: bytes) -> None:
        self.parts = parts
        self.header = header
        self.record = record


# Random bytes are asked for in lots: one block takes one salt, and `pop` hands it to one thread only.
_SALTS_PER_LOT = 256
_salts: list[bytes] = []


def _salt() -> bytes:
    try:
        return _salts.pop()
    except IndexError:
        lot = os.urandom(SALT_SIZE * _SALTS_PER_LOT)
        _salts.extend(lot[at : at + SALT_SIZE] for at in range(SALT_SIZE, len(lot), SALT_SIZE))
        return lot[:SALT_SIZE]


os.register_at_fork(after_in_child=_salts.clear)


def stamp(
    prepared: Prepared,
    base_offset: int,
    timestamp: int,
    previous: bytes,
    position: int,
    schema_version: int,
    epoch: int,
    producer: int = 0,
    sequence: int = 0,
    producer_epoch: int = 0,
) -> Stamped:
    """Give a prepared block its place in history: the only work done under the lock."""
    rows, flags, size = prepared.rows, prepared.flags, prepared.size
    fields = FIELDS.pack(
        base_offset,
        rows,
        rows,
        flags,
        schema_version,
        0,
        0,
        epoch,
        timestamp,
        timestamp,
        producer,
        sequence,
        producer_epoch,
        0,
    )
    described = hexlify(fields + _salt())
    dictionaries, head = prepared.dictionaries, prepared.head
    at = prepared.fields_at
    if rows == 1 and prepared.codec is None:
        leading = _QQ.pack(base_offset, timestamp)
    else:
        leading = _leading_body(rows, prepared.codec, base_offset, timestamp)
    if size <= _JOIN_LIMIT_BYTES:
        whole = bytearray().join((dictionaries, head, leading, *prepared.parts))
        at += len(dictionaries)
        digest_at = at + _DIGEST_AT
        whole[at:digest_at] = described
        digest = blake3(whole).digest()
        whole[digest_at : digest_at + 2 * DIGEST_SIZE] = hexlify(digest)
        parts: list[Any] = [whole]
    else:
        head = bytearray(head)
        head[at : at + _DIGEST_AT] = described
        hasher = blake3(dictionaries)
        hasher.update(head)
        hasher.update(leading)
        body = prepared.body
        hasher.update(body)
        digest = hasher.digest()
        head[at + _DIGEST_AT : at + FIELDS_DIGITS] = hexlify(digest)
        parts = [part for part in (dictionaries, head, leading, body) if len(part)]
    hash_ = blake3(previous + fields + digest).digest()
    values = (
        base_offset,
        rows,
        rows,
        flags,
        schema_version,
        position // chain.POSITION_UNIT,
        size,
        epoch,
        timestamp,
        timestamp,
        producer,
        sequence,
        producer_epoch,
        0,
        digest,
        hash_,
    )
    return Stamped(parts, _new_tuple(Header, values), _RECORD.pack(*values))


# -- the way back -------------------------------------------------------------------------


def join(parts: list[Any]) -> bytes | bytearray:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def measure(read: Any, position: int, end: int) -> int:
    """The length of the block that begins at `position`, by the heads of its messages.

    `read(position, length)` gives bytes of the data file. Nothing is believed but
    lengths that fit before `end`. Raises Corrupt where no whole block lies.
    """
    at = position
    while True:
        if at + message.PREFIX_SIZE > end:
            raise Corrupt("the block is cut off")
        size = message.metadata_size(read(at, message.PREFIX_SIZE))
        if at + size > end:
            raise Corrupt("the block is cut off in its metadata")
        head = message.parse_head(read(at, size))
        at += head.size
        if at > end:
            raise Corrupt("the block is cut off in its body")
        if head.kind == message.RECORD_BATCH_MESSAGE:
            return at - position
        if head.kind != message.DICTIONARY_MESSAGE:
            raise Corrupt(f"an Arrow message of kind {head.kind} lies where a block belongs")


def last_message(data: memoryview) -> tuple[int, message.MessageHead]:
    """The record batch at a block's end: position and head; checks that nothing is left over."""
    at = 0
    while True:
        head = message.parse_head(data[at:])
        if at + head.size > len(data):
            raise Corrupt("the block is cut off")
        if head.kind == message.RECORD_BATCH_MESSAGE:
            if at + head.size != len(data):
                raise Corrupt("bytes are left over after the block's record batch")
            return at, head
        if head.kind != message.DICTIONARY_MESSAGE:
            raise Corrupt(f"an Arrow message of kind {head.kind} lies where a block belongs")
        at += head.size


def describe(data: bytes | memoryview) -> tuple[bytes, bytes, int]:
    """What a block says of itself: fields (without place), digest, and where the digest's digits lie."""
    at, head = last_message(memoryview(data))
    found = message.find_metadata(head, message.FIELDS_KEY)
    if found is None or found[1] != FIELDS_DIGITS:
        raise Corrupt("the record batch does not describe itself as a block")
    digits = head.metadata[found[0] : found[0] + FIELDS_DIGITS]
    try:
        binary = bytes.fromhex(digits.decode("ascii"))
    except ValueError as error:
        raise Corrupt("the block's own description is not hexadecimal") from error
    if digits.lower() != digits:
        raise Corrupt("the block's own description is not in lower case")
    digest_at = at + message.PREFIX_SIZE + found[0] + _DIGEST_AT
    return binary[:FIELDS_SIZE], binary[FIELDS_SIZE + SALT_SIZE :], digest_at


def is_rewritten(fields: bytes) -> bool:
    """Whether a block says of itself that it stands for others."""
    return bool(FIELDS.unpack_from(fields)[3] & chain.REWRITTEN)


def base_offset_of(fields: bytes) -> int:
    return int(FIELDS.unpack_from(fields)[0])


def check(data: bytes | memoryview) -> tuple[bytes, bytes]:
    """Fields (without place) and digest of a block whose digest is right; Corrupt otherwise."""
    fields, digest, digest_at = describe(data)
    view = memoryview(data)
    hasher = blake3(view[:digest_at])
    hasher.update(_NO_DIGEST)
    hasher.update(view[digest_at + 2 * DIGEST_SIZE :])
    if hasher.digest() != digest:
        raise Corrupt("the block's bytes do not match its digest")
    return fields, digest


def check_against(data: bytes | memoryview, header: Header) -> None:
    """That these bytes are the block the header names."""
    if len(data) != header.length:
        raise Corrupt(f"the block should have {header.length} bytes, but {len(data)} are there")
    fields, digest = check(data)
    if digest != header.digest:
        raise Corrupt("the block is whole, but it is not the one the chain names")
    if fields != chain.described(header.fields()):
        raise Corrupt("the block's own fields are not those in the chain")


# The block's description stands within its first bytes: mostly the fewer of these, where it has
# dictionaries or very many columns the more.
_DESCRIBED_WITHIN = (2 * 1024, 64 * 1024)
# BLAKE3 takes what follows a whole power of two of its chunks as fast as one piece.
_COPIED_BYTES = 16 * 1024


def is_named_by(data: memoryview, header: Header) -> bool:
    """Whether these bytes are the block the header names, found out the short way.

    The digest's digits are looked for instead of parsing the message: the digest covers
    every other byte, so where it agrees the message is the one that was written. False
    says nothing; `check_against` then finds out, and names what is wrong.
    """
    digits = hexlify(header.digest)
    at = -1
    for size in _DESCRIBED_WITHIN:
        if at < 0:
            at = bytes(data[:size]).find(digits)
    fields_at = at - _DIGEST_AT
    if len(data) != header.length or fields_at < 0:
        return False
    if data[fields_at : fields_at + 2 * FIELDS_SIZE] != hexlify(chain.described(header.fields())):
        return False
    # the beginning is copied to blank the digest in it; the rest is hashed where it lies
    split = max(at + 2 * DIGEST_SIZE, _COPIED_BYTES)
    hasher = blake3(b"".join((data[:at], _NO_DIGEST, data[at + 2 * DIGEST_SIZE : split])))
    if split < len(data):
        hasher.update(data[split:])
    return bool(hasher.digest() == header.digest)


def check_leading(data: bytes | memoryview, header: Header) -> None:
    """That the columns `_offset` and `_timestamp` hold what the header says of them.

    The block's digest and fields must have been checked.
    """
    at, head = last_message(memoryview(data))
    layout = message.parse_batch(head)
    if layout.rows != header.rows:
        raise Corrupt(f"the record batch has {layout.rows} rows, but the header says {header.rows}")
    if not header.rows:
        return
    body = memoryview(data)[at + head.metadata_length :]
    offsets = _leading_values(layout, body, 0, header.rows)
    if header.span == header.rows:
        good = np.array_equal(offsets, np.arange(header.base_offset, header.end_offset, dtype="<i8"))
    else:  # compacted: rows are gone, the rest keeps its offsets
        good = header.base_offset <= offsets[0] and offsets[-1] < header.end_offset
        good = good and bool((offsets[1:] > offsets[:-1]).all())
    if not good:
        raise Corrupt("the column _offset is not what the header says")
    times = _leading_values(layout, body, 1, header.rows)
    low, high = header.min_timestamp, header.max_timestamp
    if times[0] != low or times[-1] != high or (low != high and bool((times[1:] < times[:-1]).any())):
        raise Corrupt("the column _timestamp is not what the header says")
    if low == high and not bool((times == low).all()):
        raise Corrupt("the column _timestamp is not what the header says")


def _leading_values(layout: message.BatchLayout, body: memoryview, column: int, rows: int) -> Any:
    """The eight-byte values of a leading column; they are never compressed and never null."""
    if len(layout.buffers) < 64 or len(layout.nodes) < 32:
        raise Corrupt("the record batch has no leading columns")
    start, length = struct.unpack_from("<qq", layout.buffers, 32 * column + 16)
    count, nulls = struct.unpack_from("<qq", layout.nodes, 16 * column)
    if layout.codec is not None:
        if body[start : start + 8] != _NOT_COMPRESSED:
            raise Corrupt("a leading column is compressed")
        start, length = start + 8, length - 8
    if count != rows or nulls or start < 0 or length < 8 * rows or start + 8 * rows > len(body):
        raise Corrupt("a leading column is not as long as the block")
    return np.frombuffer(body, dtype="<i8", count=rows, offset=start)


def event_of(data: bytes | memoryview) -> dict[str, Any] | None:
    """The event of a control block."""
    _, head = last_message(memoryview(data))
    found = message.find_metadata(head, message.EVENT_KEY)
    if found is None:
        return None
    try:
        event = json.loads(head.metadata[found[0] : found[0] + found[1]])
    except ValueError as error:
        raise Corrupt("a control block's event is not JSON") from error
    if not isinstance(event, dict):
        raise Corrupt("a control block's event is not an object")
    return event


def decode(data: Any, schema: pa.Schema, *, dictionaries: bool) -> pa.RecordBatch:
    """The record batch in a block's bytes, without copying where there are no dictionaries.

    The bytes must have been checked or come from this process.
    """
    buffer = pa.py_buffer(data)
    try:
        if not dictionaries:
            return pa.ipc.read_record_batch(buffer, schema)
        with pa.ipc.open_stream(pa.BufferReader(_with_schema(buffer, schema))) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, OSError, EOFError, StopIteration, ValueError, LookupError) as error:
        raise Corrupt(f"Arrow cannot read the block: {error}") from error


def _with_schema(buffer: pa.Buffer, schema: pa.Schema) -> pa.Buffer:
    return pa.py_buffer(b"".join((schema_message(schema), memoryview(buffer))))


_schema_messages: dict[int, tuple[weakref.ref[pa.Schema], bytes]] = {}


def schema_message(schema: pa.Schema) -> bytes:
    """The schema as the message that opens a data file, padded to the chain's unit."""
    found = _schema_messages.get(id(schema))
    if found is not None and found[0]() is schema:
        return found[1]
    data: bytes = schema.serialize().to_pybytes()
    remember_schema_message(schema, data)
    return data


def remember_schema_message(schema: pa.Schema, data: bytes) -> None:
    """Take this message for the schema, whoever wrote it: other writers, and other versions of
    ours, may put the same schema into other bytes, and its digest is in the chain."""
    if len(data) % 8:
        raise UsageError("the schema cannot be written as an Arrow message")
    key = id(schema)
    gone = weakref.ref(schema, lambda _: _schema_messages.pop(key, None))
    _schema_messages[key] = (gone, data)


def leading_fields() -> list[pa.Field]:
    return list(_LEADING_FIELDS)


def too_large(size: int) -> TooLarge:
    return TooLarge("the block would be 4 GiB or larger", size=size, limit=(1 << 32) - 1)
