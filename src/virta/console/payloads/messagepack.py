"""MessagePack, by its specification: one value."""

from __future__ import annotations

import datetime
from typing import Any

from virta.console.payloads.reader import MOST_DEPTH, Malformed, Reader

_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {1: ">B", 2: ">H", 4: ">I"}
_TIMESTAMP = -1


def begins_collection(data: bytes) -> bool:
    """Whether the first byte begins a map or an array that is not empty."""
    if not data:
        return False
    first = data[0]
    return 0x81 <= first <= 0x8F or 0x91 <= first <= 0x9F or first in (0xDC, 0xDD, 0xDE, 0xDF)


def read(data: bytes) -> Any:
    """The value that fills the bytes exactly."""
    reader = Reader(data)
    value = _value(reader, 0)
    if not reader.is_at_end:
        raise Malformed("there is more after the value")
    return value


def _value(reader: Reader, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise Malformed("nested too deeply")
    first = reader.byte()
    if first <= 0x7F:
        return first
    if first >= 0xE0:
        return first - 256
    if first <= 0x8F:
        return _map(reader, first & 0x0F, depth)
    if first <= 0x9F:
        return _list(reader, first & 0x0F, depth)
    if first <= 0xBF:
        return _text(reader, first & 0x1F)
    if first in _NUMBERS:
        return reader.unpack(_NUMBERS[first])
    return _other(reader, first, depth)


def _other(reader: Reader, first: int, depth: int) -> Any:
    match first:
        case 0xC0:
            return None
        case 0xC2 | 0xC3:
            return first == 0xC3
        case 0xC4 | 0xC5 | 0xC6:
            return reader.take(_length(reader, 1 << (first - 0xC4)))
        case 0xC7 | 0xC8 | 0xC9:
            size = _length(reader, 1 << (first - 0xC7))
            return _extension(reader.unpack(">b"), reader.take(size))
        case 0xD4 | 0xD5 | 0xD6 | 0xD7 | 0xD8:
            return _extension(reader.unpack(">b"), reader.take(1 << (first - 0xD4)))
        case 0xD9 | 0xDA | 0xDB:
            return _text(reader, _length(reader, 1 << (first - 0xD9)))
        case 0xDC | 0xDD:
            return _list(reader, _length(reader, 2 << (first - 0xDC)), depth)
        case 0xDE | 0xDF:
            return _map(reader, _length(reader, 2 << (first - 0xDE)), depth)
    raise Malformed("0xc1 is never used")


def _length(reader: Reader, size: int) -> int:
    return int(reader.unpack(_LENGTHS[size]))


def _text(reader: Reader, size: int) -> str:
    try:
        return reader.take(size).decode()
    except UnicodeDecodeError as error:
        raise Malformed("a text is not UTF-8") from error


def _list(reader: Reader, count: int, depth: int) -> list[Any]:
    _check_count(reader, count)
    return [_value(reader, depth + 1) for _ in range(count)]


def _map(reader: Reader, count: int, depth: int) -> dict[Any, Any]:
    _check_count(reader, 2 * count)
    found: dict[Any, Any] = {}
    for _ in range(count):
        key = _value(reader, depth + 1)
        if isinstance(key, list | dict):
            key = str(key)
        found[key] = _value(reader, depth + 1)
    return found


def _check_count(reader: Reader, count: int) -> None:
    if count > reader.end - reader.at:  # each takes a byte at least
        raise Malformed("more items than bytes")


def _extension(kind: int, data: bytes) -> Any:
    if kind == _TIMESTAMP:
        return _timestamp(data)
    return {"$extension": kind, "data": data}


def _timestamp(data: bytes) -> Any:
    match len(data):
        case 4:
            seconds, nanoseconds = int.from_bytes(data), 0
        case 8:
            both = int.from_bytes(data)
            seconds, nanoseconds = both & ((1 << 34) - 1), both >> 34
        case 12:
            nanoseconds = int.from_bytes(data[:4])
            seconds = int.from_bytes(data[4:], signed=True)
        case _:
            raise Malformed("a timestamp of an unknown size")
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return f"{seconds}s"
    return moment.isoformat() + (f".{nanoseconds:09d}".rstrip("0") if nanoseconds else "") + "Z"
