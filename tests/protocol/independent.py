"""A client of protocol 1 beside docs/protocol.md, with nothing of Virta: sockets, structs, BLAKE3, Arrow.

It is a check on the document: what it does not say, this client does not know. Protobuf too is
read and written here, from its wire format: varints and lengths.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from blake3 import blake3

FRAME = struct.Struct("<IIII")
HEADER = struct.Struct("<QIIHHIIIqqQIHH32s32s")
HELLO, WELCOME, CHALLENGE, AUTHENTICATE, HEARTBEAT, HEARTBEAT_ANSWER, GOODBYE, ERROR = range(1, 9)
DONE, CANCEL, CREDIT = 9, 10, 11
APPEND, APPENDED, FETCH, POLL, STREAM, BLOCKS = 16, 17, 32, 34, 36, 37
SELECT, ROWS, POSITIONS, POSITIONS_ANSWER, ADMINISTER, ANSWER = 38, 40, 50, 51, 64, 65


class Refused(Exception):
    """An ERROR frame."""

    def __init__(self, fields: dict[int, list[Any]]) -> None:
        self.number = fields[1][0]
        self.code, self.message = (fields[at][0].decode() for at in (2, 3))
        details = [dict(read_message(each)) for each in fields.get(5, [])]
        self.details = {each[1].decode(): each.get(3, each.get(2)) for each in details}
        super().__init__(f"{self.number} {self.code}: {self.message}")


# -- protobuf --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return number, at
        shift += 7


def read_message(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value: Any
        value, at = read_varint(data, at)
        if tag & 7 == 2:
            at, value = at + value, data[at : at + value]
        yield tag >> 3, value


def read_fields(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in read_message(data):
        found.setdefault(number, []).append(value)
    return found


# -- the connection ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    type: int
    channel: int
    fields: dict[int, list[Any]]
    body: bytes

    def one(self, number: int, default: Any = 0) -> Any:
        return self.fields.get(number, [default])[0]


class Client:
    """One connection."""

    def __init__(self, port: int, *, versions: tuple[int, ...] = (1,)) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.channel = 0
        self.send(HELLO, 0, b"".join([*(field(1, each) for each in versions), field(2, "independent")]))
        try:
            self.welcome = self.receive()
            assert self.welcome.type == WELCOME
        except BaseException:
            self.close()
            raise

    def send(self, type_: int, channel: int, header: bytes = b"", body: bytes = b"") -> None:
        padding = bytes(-len(header) % 8)
        size = 8 + len(header) + len(padding) + len(body)
        self.socket.sendall(FRAME.pack(size, type_, channel, len(header)) + header + padding + body)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self.socket.recv(count - len(found))
            if not piece:
                raise EOFError
            found += piece
        return found

    def receive(self) -> Answer:
        size, type_, channel, header_size = FRAME.unpack(self._exactly(16))
        assert size % 8 == 0 and size >= 8
        rest = self._exactly(size - 8)
        end = header_size + -header_size % 8
        assert not any(rest[header_size:end])
        fields = read_fields(rest[:header_size])
        if type_ == ERROR:
            raise Refused(fields)
        return Answer(type=type_, channel=channel, fields=fields, body=rest[end:])

    def begin(self, type_: int, header: bytes = b"", body: bytes = b"") -> int:
        self.channel += 1
        self.send(type_, self.channel, header, body)
        return self.channel

    def ask(self, type_: int, header: bytes = b"", body: bytes = b"") -> Answer:
        channel = self.begin(type_, header, body)
        answer = self.receive()
        assert answer.channel == channel
        return answer

    def verb(self, name: str, topic: str = "", body: bytes = b"", /, **arguments: Any) -> tuple[Any, bytes]:
        header = field(1, name) + field(2, topic) + field(3, json.dumps(arguments))
        answer = self.ask(ADMINISTER, header, body)
        assert answer.type == ANSWER
        return json.loads(answer.one(1)), answer.body

    def log_in(self, user: str, password: str) -> str:
        """SCRAM-SHA-256."""
        first = (
            f"n={user.replace('=', '=3D').replace(',', '=2C')},r={base64.b64encode(os.urandom(18)).decode()}"
        )
        self.send(AUTHENTICATE, 0, field(1, "SCRAM-SHA-256") + field(2, f"n,,{first}"))
        challenge = self.receive().one(1).decode()
        given = dict(part.split("=", 1) for part in challenge.split(","))
        final = f"c=biws,r={given['r']}"
        whole = f"{first},{challenge},{final}".encode()
        salted = hashlib.pbkdf2_hmac(
            "sha256", password.encode(), base64.b64decode(given["s"]), int(given["i"])
        )
        key = hmac.digest(salted, b"Client Key", "sha256")
        proof = bytes(
            a ^ b
            for a, b in zip(key, hmac.digest(hashlib.sha256(key).digest(), whole, "sha256"), strict=True)
        )
        self.send(AUTHENTICATE, 0, field(2, f"{final},p={base64.b64encode(proof).decode()}"))
        answer = self.receive()
        signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), whole, "sha256")
        assert answer.one(1) == b"v=" + base64.b64encode(signature)
        assert answer.one(2) == 1
        return str(answer.one(3).decode())

    def close(self) -> None:
        self.socket.close()


# -- topics ---------------------------------------------------------------------------------------------


class Topic:
    """A topic of one partition."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.producer = int.from_bytes(os.urandom(8), "little") or 1
        self.sequence = 0
        self.read_record()
        log_id = client.welcome.one(3)
        self.genesis = blake3(log_id + bytes.fromhex(self.record["id"]) + struct.pack("<I", 0)).digest()

    def read_record(self) -> None:
        self.record, self.stored_schema = self.client.verb("topic", self.name)
        stored = pa.ipc.read_schema(pa.py_buffer(self.stored_schema))
        self.columns = pa.schema(list(stored)[2:], metadata=stored.metadata)

    def body(self, rows: list[dict[str, Any]]) -> bytes:
        """What Arrow writes for one batch, between the schema and the end mark."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.columns) as writer:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=self.columns))
        return sink.getvalue().to_pybytes()[self.columns.serialize().size : -8]

    def append(
        self, rows: list[dict[str, Any]], *, sequence: int | None = None, expected: int | None = None
    ) -> Answer:
        sequence = self.sequence if sequence is None else sequence
        header = field(1, self.name) + field(3, self.record["version"])
        header += field(4, self.producer) + field(6, sequence)
        if expected is not None:
            header += field(7, expected)
        answer = self.client.ask(APPEND, header, self.body(rows))
        assert answer.type == APPENDED
        self.sequence = max(self.sequence, sequence + len(rows))
        return answer

    def fetch(self, type_: int, offset: int, hash_: bytes | None = None, **more: int) -> Answer:
        return self.client.ask(type_, self.place(offset, hash_, **more))

    def place(self, offset: int, hash_: bytes | None = None, *, end: int = 0, credit: int = 0) -> bytes:
        header = field(1, self.name) + field(3, offset)
        header += field(4, hash_) if hash_ is not None else b""
        header += field(5, end) if end else b""
        return header + (field(8, credit) if credit else b"")

    def rows_of(self, answer: Answer) -> tuple[list[dict[str, Any]], int, bytes]:
        """The rows of a BLOCKS frame, everything checked, and the place after them."""
        count, head = answer.one(1), answer.one(2, b"")
        rows: list[dict[str, Any]] = []
        at, offset = 128 * count, 0
        for index in range(count):
            raw = answer.body[128 * index : 128 * (index + 1)]
            base, span, present, flags, version, _, length = HEADER.unpack(raw)[:7]
            digest, hash_ = HEADER.unpack(raw)[-2:]
            assert version == self.record["schema_version"]
            what = raw[:20] + bytes(8) + raw[28:64]
            assert blake3(head + what + digest).digest() == hash_
            block = answer.body[at : at + length]
            check_block(block, what, digest)
            if not flags & 1:
                with pa.ipc.open_stream(self.stored_schema + block) as reader:
                    batch = reader.read_next_batch()
                assert batch.num_rows == present
                rows += batch.to_pylist()
            at, offset, head = at + length, base + span, hash_
        assert at == len(answer.body)
        return rows, offset, head


def check_block(block: bytes, what: bytes, digest: bytes) -> None:
    """The 224 digits: found by their text, since this reader has no parser of flatbuffers."""
    at = block.index(what.hex().encode())
    assert block[at + 160 : at + 224] == digest.hex().encode()
    assert blake3(block[: at + 160] + b"0" * 64 + block[at + 224 :]).digest() == digest
