"""Reading bytes in order, never past their end."""

from __future__ import annotations

import struct
from typing import Any


class Malformed(ValueError):
    """The bytes are not of this form."""


# Deeper than people nest and far from Python's own bound.
MOST_DEPTH = 64


class Reader:
    """A place in some bytes."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    @property
    def is_at_end(self) -> bool:
        return self.at >= self.end

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.end:
            raise Malformed("the bytes end too early")
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def byte(self) -> int:
        return self.take(1)[0]

    def unpack(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def varint(self) -> int:
        """Seven bits a byte, the lowest first, at most 64 bits."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            if shift > 63:
                raise Malformed("a number of more than 64 bits")
        if value >= 1 << 64:
            raise Malformed("a number of more than 64 bits")
        return value

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)
