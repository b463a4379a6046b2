"""The chain: one 128-byte header per block, linked by hashes.

    at  size  field            meaning (integers little-endian)
     0     8  base_offset      offset of the first row the block covers
     8     4  span             offsets covered (rows at append; more after a compaction; 0: control block)
    12     4  rows             rows present
    16     2  flags            1: control block, 2: has dictionaries, 4: rewritten
    18     2  schema_version   of the topic's schemas
    20     4  position         in the data file, in units of 8 bytes
    24     4  length           of the block's bytes
    28     4  epoch            term of the leader, or of a recovery that cut rows
    32     8  min_timestamp    microseconds since 1970, UTC, signed
    40     8  max_timestamp
    48     8  producer         0: no name
    56     4  sequence         of the block's first row, low 32 bits
    60     2  producer_epoch
    62     2  reserved         zero
    64    32  digest           BLAKE3 of the block's bytes, the digest's own place read as ASCII zeros
    96    32  hash             BLAKE3(hash before || bytes 0-63 with position and length zero || digest)

A rewritten block (compacted, erased, joined from others) keeps the hash of the last block
that it stands for, which its own fields and digest do not lead to: what does lead to it, the
old fields and digests, is its trail (trail.py), in the block itself. Its header has in place
of the producer's fields (bytes 48-63) a check of 16 bytes: the first of BLAKE3(hash before ||
bytes 0-47 with position and length zero || digest || hash).

A header is valid when
 1. it is whole: the file reaches 128 bytes past a multiple of 128;
 2. its `hash` follows from the hash before it, its fields and its digest; or it is
    rewritten, in a sealed segment, and its check is right;
 3. it begins where its predecessor ended: `position` by file, `base_offset` by log.
To readers a block exists once its header is valid, and not before. The file is
derived: the data file's blocks carry the same fields, so it can be made again.

This module is pure bytes: it opens no file.
"""

from __future__ import annotations

import bisect
import struct
from typing import Any, NamedTuple

import numpy as np
from blake3 import blake3

from virta.errors import Corrupt

HEADER_SIZE = 128
FIELDS_SIZE = 64
POSITION_UNIT = 8

CONTROL = 1
DICTIONARIES = 2
REWRITTEN = 4

FIELDS = struct.Struct("<QIIHHIIIqqQIHH")
_PLACE = struct.Struct("<II")
PLACE_AT = 20  # position and length: they say where, not what, and stay outside the hash
_NO_PLACE = bytes(8)
_FLAGS_AT = 16
_CHECK_AT = 48  # the producer's fields; in a rewritten block's header its check
_NO_CHECK = bytes(FIELDS_SIZE - _CHECK_AT)

HEADER_DTYPE = np.dtype(
    [
        ("base_offset", "<u8"),
        ("span", "<u4"),
        ("rows", "<u4"),
        ("flags", "<u2"),
        ("schema_version", "<u2"),
        ("position", "<u4"),
        ("length", "<u4"),
        ("epoch", "<u4"),
        ("min_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("producer", "<u8"),
        ("sequence", "<u4"),
        ("producer_epoch", "<u2"),
        ("reserved", "<u2"),
        ("digest", "V32"),
        ("hash", "V32"),
    ]
)
assert HEADER_DTYPE.itemsize == HEADER_SIZE and FIELDS.size == FIELDS_SIZE


class Header(NamedTuple):
    """One header, in the struct's order. A named tuple: it is made for every block that passes."""

    base_offset: int
    span: int
    rows: int
    flags: int
    schema_version: int
    position_units: int
    length: int
    epoch: int
    min_timestamp: int
    max_timestamp: int
    producer: int
    sequence: int
    producer_epoch: int
    reserved: int
    digest: bytes
    hash: bytes

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.span

    @property
    def position(self) -> int:
        return self.position_units * POSITION_UNIT

    @property
    def end_position(self) -> int:
        return self.position_units * POSITION_UNIT + self.length

    @property
    def is_control(self) -> bool:
        return bool(self.flags & CONTROL)

    @property
    def is_rewritten(self) -> bool:
        return bool(self.flags & REWRITTEN)

    def fields(self) -> bytes:
        """The 64 bytes of fields, as they stand in the chain file."""
        return FIELDS.pack(*self[:14])

    def to_bytes(self) -> bytes:
        return self.fields() + self.digest + self.hash


def unpack_header(data: bytes | memoryview, at: int = 0) -> Header:
    return Header._make(
        (*FIELDS.unpack_from(data, at), bytes(data[at + 64 : at + 96]), bytes(data[at + 96 : at + 128]))
    )


def unpack_headers(data: bytes | memoryview) -> list[Header]:
    return [unpack_header(data, at) for at in range(0, len(data) - HEADER_SIZE + 1, HEADER_SIZE)]


def without_place(fields: bytes) -> bytes:
    """The fields that say what a block is: position and length read as zeros."""
    return fields[:PLACE_AT] + _NO_PLACE + fields[PLACE_AT + 8 : FIELDS_SIZE]


def described(fields: bytes) -> bytes:
    """The fields as the block says them of itself: without its place, and without a check."""
    if fields[_FLAGS_AT] & REWRITTEN:
        return fields[:PLACE_AT] + _NO_PLACE + fields[PLACE_AT + 8 : _CHECK_AT] + _NO_CHECK
    return without_place(fields)


def with_place(fields: bytes, position: int, length: int) -> bytes:
    units, rest = divmod(position, POSITION_UNIT)
    assert rest == 0
    return fields[:PLACE_AT] + _PLACE.pack(units, length) + fields[PLACE_AT + 8 :]


def link(previous: bytes, fields_without_place: bytes, digest: bytes) -> bytes:
    """The hash of a block: it names the whole history up to it."""
    return blake3(previous + fields_without_place + digest).digest()


def rewritten_check(previous: bytes, fields: bytes, digest: bytes, hash_: bytes) -> bytes:
    """What holds a rewritten block's header together, since its hash is an older one's."""
    return blake3(previous + without_place(fields)[:_CHECK_AT] + digest + hash_).digest()[: len(_NO_CHECK)]


def with_check(previous: bytes, fields: bytes, digest: bytes, hash_: bytes) -> bytes:
    """The fields of a rewritten block as they stand in the chain file."""
    return fields[:_CHECK_AT] + rewritten_check(previous, fields, digest, hash_)


def follows(record: bytes, previous: bytes) -> bool:
    """Rule 2: whether a header stands behind this hash."""
    digest, hash_ = record[64:96], record[96:HEADER_SIZE]
    if record[_FLAGS_AT] & REWRITTEN:
        return record[_CHECK_AT:FIELDS_SIZE] == rewritten_check(previous, record[:FIELDS_SIZE], digest, hash_)
    return link(previous, without_place(record), digest) == hash_


def genesis(log_id: bytes, topic_id: bytes, partition: int) -> bytes:
    """The hash before the first block."""
    return blake3(log_id + topic_id + struct.pack("<I", partition)).digest()


def check_links(data: bytes | memoryview, previous: bytes) -> int:
    """How many headers follow from `previous`, one after another."""
    good = 0
    for at in range(0, len(data) - HEADER_SIZE + 1, HEADER_SIZE):
        record = bytes(data[at : at + HEADER_SIZE])
        if link(previous, without_place(record), record[64:96]) != record[96:] and not (
            record[_FLAGS_AT] & REWRITTEN and follows(record, previous)
        ):
            break
        previous = record[96:]
        good += 1
    return good


def check_follows(header: Header, *, next_offset: int, position: int) -> None:
    """Rule 3 for a header that readers are about to believe."""
    if header.position != position:
        raise Corrupt(
            f"the header says its block begins at {header.position}, but the one before ends at {position}"
        )
    if header.base_offset != next_offset:
        raise Corrupt(f"the header covers offset {header.base_offset}, but the next offset is {next_offset}")


def check_appended(header: Header) -> None:
    """That a header of an active segment is of a block that was appended: only sealed ones are rewritten."""
    if header.is_rewritten:
        raise Corrupt("a rewritten block lies in a segment that is appended to")


def as_array(data: bytes | memoryview | Any) -> np.ndarray[Any, Any]:
    """Headers as one structured array, without copying."""
    whole = len(data) // HEADER_SIZE * HEADER_SIZE
    return np.frombuffer(data, dtype=HEADER_DTYPE, count=whole // HEADER_SIZE)


class HeaderView:
    """Headers of one chain file, found by bisection: only the ones looked at are read.

    `read(at, length)` gives bytes of the chain file: a slice of a mapping, or a pread.
    """

    __slots__ = ("_read", "count")

    def __init__(self, read: Any, count: int) -> None:
        self._read = read
        self.count = count

    def header(self, index: int) -> Header:
        return unpack_header(self._read(index * HEADER_SIZE, HEADER_SIZE))

    def raw(self, start: int, stop: int) -> bytes:
        data: bytes = self._read(start * HEADER_SIZE, (stop - start) * HEADER_SIZE)
        return data

    def _end_offset(self, index: int) -> int:
        base, span = struct.unpack_from("<QI", self._read(index * HEADER_SIZE, 12))
        return int(base + span)

    def _max_timestamp(self, index: int) -> int:
        return int(struct.unpack_from("<q", self._read(index * HEADER_SIZE + 40, 8))[0])

    def first_ending_after(self, offset: int) -> int:
        """Index of the first block that ends after the offset: the one that covers it, or the next."""
        return bisect.bisect_right(range(self.count), offset, key=self._end_offset)

    def first_reaching(self, timestamp: int) -> int:
        """Index of the first block whose newest row is not older than the timestamp."""
        return bisect.bisect_left(range(self.count), timestamp, key=self._max_timestamp)
