"""The trail of a rewritten block: the blocks that it stands for, as their headers were.

A block that was compacted, erased from or joined from others keeps the hash of the last block
that it stands for. The trail is what leads there: old fields and digests, each with the hash
before it giving the next hash, as when they were written. So the chain can be followed across
what was rewritten, and a token from before finds its place.

It stands in the custom metadata of the block's record batch, under `virta.trail`, as base64 of

    at  size  field
     0     4  count of old headers
     4     4  length of what follows compressed
     8        zlib: the columns of the headers, one after another, each as an array:
              span u32, rows u32, flags u16, schema_version u16, epoch u32,
              min_timestamp i64 (the first as it is, each other less the one before),
              max_timestamp i64 (less the min_timestamp), producer u64, sequence u32,
              producer_epoch u16, reserved u16
    end   32  each: the digests

`base_offset` follows from the block's own and the spans; position and length are not kept.
A block that is rewritten again hands its trail on, so trails always name the blocks that were
appended. This module is pure bytes: it opens no file.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Any

import numpy as np

from virta.errors import Corrupt
from virta.storage import chain, message
from virta.storage.chain import FIELDS_SIZE, HEADER_DTYPE, HEADER_SIZE, Header

Trail = np.ndarray[Any, Any]  # of HEADER_DTYPE; position, length and hash are zero

# Old headers in one trail. Writers close a block at LIMIT; what is read may be a little more.
LIMIT = 1 << 16
_MOST = 4 * LIMIT
_HEAD = struct.Struct("<II")
_COLUMNS = (
    ("span", "<u4"),
    ("rows", "<u4"),
    ("flags", "<u2"),
    ("schema_version", "<u2"),
    ("epoch", "<u4"),
    ("min_timestamp", "<i8"),
    ("max_timestamp", "<i8"),
    ("producer", "<u8"),
    ("sequence", "<u4"),
    ("producer_epoch", "<u2"),
    ("reserved", "<u2"),
)
_PER_HEADER = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)
_DIGEST_SIZE = 32


def of_header(header: Header) -> Trail:
    """The trail of one block that was never rewritten."""
    record = chain.without_place(header.fields()) + header.digest + bytes(32)
    return np.frombuffer(record, HEADER_DTYPE)


def of_block(data: Any, base_offset: int) -> Trail:
    """The trail in a rewritten block's bytes."""
    return of_head(last_head(memoryview(data)), base_offset)


def of_head(head: message.MessageHead, base_offset: int) -> Trail:
    found = message.find_metadata(head, message.TRAIL_KEY)
    if found is None:
        raise Corrupt("a rewritten block does not say which blocks it stands for")
    return decode(head.metadata[found[0] : found[0] + found[1]], base_offset)


def last_head(data: memoryview) -> message.MessageHead:
    """The head of a block's record batch, behind its dictionaries."""
    at = 0
    while True:
        head = message.parse_head(data[at:])
        if head.kind == message.RECORD_BATCH_MESSAGE:
            return head
        at += head.size
        if head.kind != message.DICTIONARY_MESSAGE or at >= len(data):
            raise Corrupt("the block is cut off")


def encode(trail: Trail) -> bytes:
    columns = {name: trail[name].astype(kind) for name, kind in _COLUMNS}
    least = columns["min_timestamp"]
    columns["max_timestamp"] = columns["max_timestamp"] - least
    columns["min_timestamp"] = np.diff(least, prepend=np.zeros(1, least.dtype))
    packed = zlib.compress(b"".join(columns[name].tobytes() for name, _ in _COLUMNS))
    digests = np.ascontiguousarray(trail["digest"]).tobytes()
    return base64.b64encode(_HEAD.pack(len(trail), len(packed)) + packed + digests)


def decode(text: bytes, base_offset: int) -> Trail:
    """Back from the text; Corrupt when it is none."""
    try:
        data = base64.b64decode(text, validate=True)
        count, size = _HEAD.unpack_from(data)
        digests = data[_HEAD.size + size :]
        if not 0 < count <= _MOST or len(digests) != count * _DIGEST_SIZE:
            raise Corrupt("a trail is not as long as it says")
        expander = zlib.decompressobj()
        packed = expander.decompress(data[_HEAD.size : _HEAD.size + size], count * _PER_HEADER + 1)
    except (binascii.Error, struct.error, zlib.error) as error:
        raise Corrupt(f"a trail cannot be read: {error}") from error
    if len(packed) != count * _PER_HEADER:
        raise Corrupt("a trail is not as long as it says")
    trail: Trail = np.zeros(count, HEADER_DTYPE)
    at = 0
    for name, kind in _COLUMNS:
        trail[name] = np.frombuffer(packed, kind, count, at)
        at += count * np.dtype(kind).itemsize
    trail["min_timestamp"] = np.cumsum(trail["min_timestamp"])
    trail["max_timestamp"] += trail["min_timestamp"]
    trail["digest"] = np.frombuffer(digests, "V32")
    spans = trail["span"].astype("<u8")
    trail["base_offset"] = np.cumsum(spans) - spans + np.uint64(base_offset)
    return trail


def hashes(trail: Trail, previous: bytes) -> list[bytes]:
    """The hash of each old block, from the one before the first."""
    data = np.ascontiguousarray(trail).tobytes()
    found = []
    for at in range(0, len(data), HEADER_SIZE):
        previous = chain.link(previous, data[at : at + FIELDS_SIZE], data[at + 64 : at + 96])
        found.append(previous)
    return found


def relinked(trail: Trail, previous: bytes) -> bytes:
    """The hash that a trail leads to."""
    return hashes(trail, previous)[-1]


def joined(trails: list[Trail]) -> Trail:
    return trails[0] if len(trails) == 1 else np.concatenate(trails)
