"""Checking many blocks of one shape: the long way once, then only what may differ.

Blocks of one schema have the same metadata but for a few numbers: rows, sizes, places of
buffers, and the block's own description. Once a block passed the long check (`block.py`),
another one whose metadata is the same without these numbers has the same structure, and
only the numbers, the digest and the leading columns are left to look at. `holds` says yes
only where the long way would; its no means nothing.
"""

from __future__ import annotations

import struct

import numpy as np
from blake3 import blake3

from virta.storage import chain, message
from virta.storage.block import DIGEST_SIZE, FIELDS_DIGITS, SALT_SIZE
from virta.storage.chain import FIELDS_SIZE, Header
from virta.storage.message import KnownLayout

_I64 = struct.Struct("<q")
_TWO_NODES = struct.Struct("<4q")
_FOUR_BUFFERS = struct.Struct("<8q")
_SALT_AT = 2 * FIELDS_SIZE
_DIGEST_AT = 2 * (FIELDS_SIZE + SALT_SIZE)
_NO_DIGEST = b"0" * (2 * DIGEST_SIZE)
_NO_DIGITS = b"0" * FIELDS_DIGITS


class QuickCheck:
    """Remembers the shape of the last block that was checked the long way."""

    def __init__(self) -> None:
        self._known: KnownLayout | None = None
        self._fields_at = 0
        self._rest = b""

    def learn(self, data: memoryview) -> None:
        """Remember the shape of a block that is good; one with dictionaries or a codec has none."""
        self._known = None
        head = message.parse_head(data)
        if head.kind != message.RECORD_BATCH_MESSAGE:
            return
        known = KnownLayout.learn(data)
        found = message.find_metadata(head, message.FIELDS_KEY)
        if known is None or known.nodes < 2 or known.buffers < 4 or found is None:
            return
        self._fields_at = message.PREFIX_SIZE + found[0]
        self._rest = self._without_numbers(known, bytearray(data[: known.size]))
        self._known = known

    def _without_numbers(self, known: KnownLayout, head: bytearray) -> bytes:
        head[known.length_at : known.length_at + 8] = bytes(8)
        head[known.body_length_at : known.body_length_at + 8] = bytes(8)
        head[known.nodes_at : known.nodes_at + 16 * known.nodes] = bytes(16 * known.nodes)
        head[known.buffers_at : known.buffers_at + 16 * known.buffers] = bytes(16 * known.buffers)
        head[self._fields_at : self._fields_at + FIELDS_DIGITS] = _NO_DIGITS
        return bytes(head)

    def holds(self, data: memoryview, header: Header) -> bool:
        """Whether these bytes are the block that the header names, seen the short way."""
        known = self._known
        if known is None or len(data) != header.length or len(data) < known.size:
            return False
        head = bytearray(data[: known.size])
        return (
            self._numbers_fit(known, head, header)
            and self._leading_fit(known, head, data, header)
            and self._without_numbers(known, head) == self._rest
            and self._digest(data) == header.digest
        )

    def _numbers_fit(self, known: KnownLayout, head: bytearray, header: Header) -> bool:
        at = self._fields_at
        fields = chain.described(header.fields()).hex().encode()
        digest = header.digest.hex().encode()
        return (
            known.size + _I64.unpack_from(head, known.body_length_at)[0] == header.length
            and _I64.unpack_from(head, known.length_at)[0] == header.rows
            and head[at : at + _SALT_AT] == fields
            and head[at + _DIGEST_AT : at + FIELDS_DIGITS] == digest
            and _is_lower_hex(head[at + _SALT_AT : at + _DIGEST_AT])
        )

    def _leading_fit(self, known: KnownLayout, head: bytearray, data: memoryview, header: Header) -> bool:
        """The columns as an append stamps them: offsets without gap, one time."""
        rows = header.rows
        if not rows or header.span != rows or header.min_timestamp != header.max_timestamp:
            return False
        if _TWO_NODES.unpack_from(head, known.nodes_at) != (rows, 0, rows, 0):
            return False
        places = _FOUR_BUFFERS.unpack_from(head, known.buffers_at)
        offsets = np.arange(header.base_offset, header.end_offset, dtype="<i8").tobytes()
        times = _I64.pack(header.min_timestamp) * rows
        return _lies(data, known.size, places[2:4], offsets) and _lies(data, known.size, places[6:8], times)

    def _digest(self, data: memoryview) -> bytes:
        at = self._fields_at + _DIGEST_AT
        hasher = blake3(data[:at])
        hasher.update(_NO_DIGEST)
        hasher.update(data[at + 2 * DIGEST_SIZE :])
        return bytes(hasher.digest())


def _lies(data: memoryview, body_at: int, place: tuple[int, ...], expected: bytes) -> bool:
    """Whether a buffer lies inside the block and begins with these bytes."""
    start, length = place
    at = body_at + start
    return start >= 0 and length >= len(expected) and bytes(data[at : at + len(expected)]) == expected


def _is_lower_hex(digits: bytearray) -> bool:
    return not digits.translate(None, b"0123456789abcdef")
