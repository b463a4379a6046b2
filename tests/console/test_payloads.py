"""What bytes are recognised as, and that nothing bad happens when they are nothing."""

from __future__ import annotations

import io
import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.console.payloads import avro, messagepack, protobuf, recognise
from virta.console.payloads.reader import Malformed


def only(data: bytes) -> dict[str, Any]:
    (found,) = recognise(data, is_text=False)
    return found


def test_json() -> None:
    assert only(b' {"a": [1, 2]}') == {"format": "JSON", "value": {"a": [1, 2]}}
    assert recognise(b"{not json", is_text=True) == []


def test_messagepack() -> None:
    data = (
        b"\x87\xa1a\x01\xa1b\xff\xa1c\xcb" + struct.pack(">d", 1.5) + b"\xa1d\x93\xc0\xc2\xc3"
        b"\xa1e\xc4\x02\xff\x00\xa1f\xcf" + struct.pack(">Q", 2**63) + b"\xa1g\xd6\xff\x00\x00\x00\x01"
    )
    assert messagepack.read(data) == {
        "a": 1,
        "b": -1,
        "c": 1.5,
        "d": [None, False, True],
        "e": b"\xff\x00",
        "f": 2**63,
        "g": "1970-01-01T00:00:01Z",
    }
    assert only(data)["format"] == "MessagePack"
    assert only(data)["value"]["e"] == {"$binary": "/wA="}
    assert only(data)["value"]["f"] == str(2**63)


@pytest.mark.parametrize("data", [b"\x81\xa1a", b"\x81\xa1a\x01\x02", b"\xc1", b"\xdf\xff\xff\xff\xff", b""])
def test_messagepack_that_is_not(data: bytes) -> None:
    with pytest.raises(Malformed):
        messagepack.read(data)


def test_protobuf() -> None:
    data = b"\x0a\x03ada\x10\x96\x01\x1a\x04\x08\x01\x10\x02\x10\x05\x21" + struct.pack("<d", 2.25)
    assert protobuf.read(data) == {"1": "ada", "2": [150, 5], "3": {"1": 1, "2": 2}, "4": 2.25}
    found = only(data)
    assert found["format"] == "Protobuf"
    assert "without a schema" in found["note"]


def zigzag(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while True:
        out.append((value & 0x7F) | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def text(value: str) -> bytes:
    return zigzag(len(value.encode())) + value.encode()


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "extra", "type": {"type": "map", "values": "double"}},
        {"name": "parent", "type": ["null", "Order"]},
    ],
}


def container(codec: str) -> bytes:
    record = zigzag(7) + zigzag(1) + text("ada") + zigzag(1) + zigzag(1) + text("x") + zigzag(0)
    record += zigzag(-1) + zigzag(9) + text("pi") + struct.pack("<d", 3.5) + zigzag(0) + zigzag(0)
    body = record * 2
    if codec == "deflate":
        body = zlib.compress(body)[2:-4]
    out = io.BytesIO()
    out.write(avro.MAGIC + zigzag(2) + text("avro.schema") + text(json.dumps(SCHEMA)))
    out.write(text("avro.codec") + text(codec) + zigzag(0) + b"S" * 16)
    out.write(zigzag(2) + zigzag(len(body)) + body + b"S" * 16)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_an_avro_container_is_read_with_its_schema(codec: str) -> None:
    found = only(container(codec))
    assert found["format"] == "Avro"
    row = {"id": 7, "user": "ada", "state": "DONE", "tags": ["x"], "extra": {"pi": 3.5}, "parent": None}
    assert found["value"] == [row, row]


def test_frames_are_named_not_read() -> None:
    single = only(b"\xc3\x01" + bytes(range(8)) + b"\x02\x06ada")
    assert single["format"] == "Avro"
    assert "0706050403020100" in single["note"]
    assert "value" not in single
    registry = only(b"\x00\x00\x00\x00\x2a\x02\x06ada")
    assert "schema 42" in registry["note"]


def test_text_is_text() -> None:
    assert recognise(b"just some text", is_text=False) == []


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(data: bytes) -> None:
    for found in recognise(data, is_text=False):
        json.dumps(found)


@given(st.binary(max_size=80))
def test_broken_containers_are_survived(data: bytes) -> None:
    whole = container("null")
    json.dumps(recognise(whole[: len(whole) - 60] + data, is_text=False))
