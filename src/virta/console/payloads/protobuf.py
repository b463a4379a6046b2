"""Protobuf without its schema: what the wire itself says.

A message is a run of fields, each with a number and a wire type. Names, signs and most types are not on
the wire, so a number is shown as it would be unsigned, and bytes are shown as text, as a message, or as
bytes, whichever they can be read as.
"""

from __future__ import annotations

import struct
from typing import Any

from virta.console.payloads.reader import Malformed, Reader

# Guessing inside of guesses soon says nothing any more.
_MOST_DEPTH = 8
# Real messages number their fields from one; large numbers are a sign of other bytes.
_MOST_FIELD = 20_000


def read(data: bytes) -> dict[str, Any]:
    """The fields by number; a field that stands several times is a list."""
    return _message(data, 0)


def _message(data: bytes, depth: int) -> dict[str, Any]:
    if not data or depth > _MOST_DEPTH:
        raise Malformed("not a message")
    reader = Reader(data)
    found: dict[str, list[Any]] = {}
    while not reader.is_at_end:
        tag = reader.varint()
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= _MOST_FIELD:
            raise Malformed("no field has this number")
        found.setdefault(str(number), []).append(_value(reader, kind, depth))
    return {number: values[0] if len(values) == 1 else values for number, values in found.items()}


def _value(reader: Reader, kind: int, depth: int) -> Any:
    match kind:
        case 0:
            return reader.varint()
        case 1:
            return _fixed(reader.take(8), "<d", "<q")
        case 2:
            return _bytes(reader.take(reader.varint()), depth)
        case 5:
            return _fixed(reader.take(4), "<f", "<i")
    raise Malformed("no such wire type")


def _fixed(data: bytes, as_float: str, as_whole: str) -> Any:
    """A float where it looks like one that somebody wrote, else a whole number."""
    number = struct.unpack(as_float, data)[0]
    if number == 0 or 1e-6 < abs(number) < 1e15:
        return round(number, 6) if as_float == "<f" else number
    return struct.unpack(as_whole, data)[0]


def _bytes(data: bytes, depth: int) -> Any:
    try:
        text = data.decode()
        if all(sign.isprintable() or sign in "\r\n\t" for sign in text):
            return text
    except UnicodeDecodeError:
        pass
    try:
        return _message(data, depth + 1)
    except Malformed:
        return data
