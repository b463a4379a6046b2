"""Avro: container files read with the schema inside them; other framings named by their first bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from virta.console.payloads.reader import MOST_DEPTH, Malformed, Reader

MAGIC = b"Obj\x01"
_SINGLE_OBJECT = b"\xc3\x01"
_SYNC_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the first bytes say of a value whose schema is elsewhere."""

    format: str
    note: str


def frame_of(data: bytes) -> Frame | None:
    if data.startswith(_SINGLE_OBJECT) and len(data) > 10:
        fingerprint = data[2:10][::-1].hex()
        return Frame(
            format="Avro",
            note=f"a single object of the schema with fingerprint {fingerprint}; cannot be read without it",
        )
    if data[:1] == b"\x00" and len(data) > 5 and data[1] == 0:
        number = int.from_bytes(data[1:5])
        return Frame(
            format="Schema registry frame",
            note=f"schema {number} of a registry, most often Avro; cannot be read without it",
        )
    return None


def read_container(data: bytes, *, limit: int) -> Iterator[Any]:
    """The records of a container file, at most so many."""
    reader = Reader(data)
    reader.take(len(MAGIC))
    metadata = _read_map(reader, lambda inner: inner.take(inner.zigzag()))
    sync = reader.take(_SYNC_SIZE)
    schema = Schema(metadata.get("avro.schema", b""))
    codec = metadata.get("avro.codec", b"null")
    left = limit
    while not reader.is_at_end and left > 0:
        count, size = reader.zigzag(), reader.zigzag()
        block = Reader(_unpacked(reader.take(size), codec))
        for _ in range(min(count, left)):
            yield schema.read(block)
            left -= 1
        if reader.take(_SYNC_SIZE) != sync:
            raise Malformed("a block does not end with the file's mark")


def _unpacked(data: bytes, codec: bytes) -> bytes:
    if codec in (b"null", b""):
        return data
    if codec != b"deflate":
        raise Malformed(f"codec {codec!r} is not read here")
    engine = zlib.decompressobj(-15)
    try:
        found = engine.decompress(data, 16 * 1024 * 1024)
    except zlib.error as error:
        raise Malformed("the block is not deflated") from error
    if engine.unconsumed_tail:
        raise Malformed("the block is too large to be shown")
    return found


class Schema:
    """An Avro schema, as its JSON says it."""

    def __init__(self, text: bytes) -> None:
        try:
            self._root = json.loads(text)
        except ValueError as error:
            raise Malformed("the schema is not JSON") from error
        self._named: dict[str, Any] = {}

    def read(self, reader: Reader) -> Any:
        return self._value(self._root, reader, 0)

    def _value(self, schema: Any, reader: Reader, depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise Malformed("nested too deeply")
        if isinstance(schema, list):
            branch = reader.zigzag()
            if not 0 <= branch < len(schema):
                raise Malformed("a union has no such branch")
            return self._value(schema[branch], reader, depth + 1)
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return _PRIMITIVE[schema](reader)
            if schema not in self._named:
                raise Malformed(f"the schema does not say what {schema!r} is")
            return self._value(self._named[schema], reader, depth + 1)
        if not isinstance(schema, dict):
            raise Malformed("the schema is not one")
        return self._complex(schema, reader, depth)

    def _complex(self, schema: dict[str, Any], reader: Reader, depth: int) -> Any:
        kind = schema.get("type")
        if "name" in schema:
            name = schema["name"]
            self._named[name] = schema
            if schema.get("namespace"):
                self._named[f"{schema['namespace']}.{name}"] = schema
        match kind:
            case "record" | "error":
                fields = schema.get("fields", [])
                return {field["name"]: self._value(field["type"], reader, depth + 1) for field in fields}
            case "enum":
                symbols, at = schema.get("symbols", []), reader.zigzag()
                if not 0 <= at < len(symbols):
                    raise Malformed("an enum has no such symbol")
                return symbols[at]
            case "array":
                return _read_list(reader, lambda inner: self._value(schema["items"], inner, depth + 1))
            case "map":
                return _read_map(reader, lambda inner: self._value(schema["values"], inner, depth + 1))
            case "fixed":
                return reader.take(int(schema.get("size", 0)))
        return self._value(kind, reader, depth + 1)


def _bool(reader: Reader) -> bool:
    byte = reader.byte()
    if byte > 1:
        raise Malformed("neither true nor false")
    return byte == 1


def _text(reader: Reader) -> str:
    try:
        return reader.take(reader.zigzag()).decode()
    except UnicodeDecodeError as error:
        raise Malformed("a text is not UTF-8") from error


_PRIMITIVE: dict[str, Callable[[Reader], Any]] = {
    "null": lambda _: None,
    "boolean": _bool,
    "int": Reader.zigzag,
    "long": Reader.zigzag,
    "float": lambda reader: reader.unpack("<f"),
    "double": lambda reader: reader.unpack("<d"),
    "bytes": lambda reader: reader.take(reader.zigzag()),
    "string": _text,
}


def _read_list(reader: Reader, item: Callable[[Reader], Any]) -> list[Any]:
    found: list[Any] = []
    while count := _block_count(reader):
        found += [item(reader) for _ in range(count)]
    return found


def _read_map(reader: Reader, item: Callable[[Reader], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while count := _block_count(reader):
        for _ in range(count):
            name = _text(reader)
            found[name] = item(reader)
    return found


def _block_count(reader: Reader) -> int:
    count = reader.zigzag()
    if count < 0:
        reader.zigzag()  # the size of the block, for those who skip it
        count = -count
    # an item of no bytes (null) could be counted without end
    if count > max(1024, reader.end - reader.at):
        raise Malformed("more items than bytes")
    return count
