"""Frames: how a stream of bytes is cut into messages.

    at  size  field         meaning (integers little-endian)
     0     4  size          bytes after the type: 8 + header, padded, + body; a multiple of 8
     4     4  type          see codes.py
     8     4  channel       what it belongs to: a request and its answers share one; 0 is the connection
    12     4  header_size   bytes of the header
    16     …  header        a protobuf message, by type
     …     …  zero bytes up to the next multiple of 8 of the frame
     …     …  body          blocks or Arrow messages, to the end of the frame; often none

A frame is valid when
 1. size is a multiple of 8, at least 8, and not over the bound agreed;
 2. the header, padded, ends inside it, and the padding is zero;
 3. its type is known and allowed where the connection stands (`connection.py`).
Nothing is set aside for a frame before its bytes have come: what is held for a peer is at
most twice what it sent.

This module opens no socket.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from virta.errors import UsageError
from virta.protocol.codes import FrameType

HEAD = struct.Struct("<IIII")
HEAD_SIZE = HEAD.size
# Before the welcome: a hello fits easily. And from somebody who is not known: enough for a few rows.
HELLO_LIMIT = 64 * 1024
STRANGER_LIMIT = 1024 * 1024
# A block is at most 16 MiB, but for one oversize row, which the topic bounds; this bounds both.
FRAME_LIMIT = 64 * 1024 * 1024


class BrokenProtocol(UsageError):
    """The other side sent what the protocol does not allow; the connection cannot go on."""

    code = "protocol"


class Frame(NamedTuple):
    """One frame as it came. The body may be a slice of what was received."""

    type: int
    channel: int
    header: Any
    body: memoryview


_PADDING = [bytes(count) for count in range(8)]


def encode(type_: int, channel: int, header: bytes = b"", body_size: int = 0) -> bytes:
    """The front of a frame: everything but its body, which follows as it is."""
    header_size = len(header)
    padding = -header_size % 8
    return (
        HEAD.pack(8 + header_size + padding + body_size, type_, channel, header_size)
        + header
        + _PADDING[padding]
    )


def encode_whole(type_: int, channel: int, header: bytes = b"", *body: Any) -> list[Any]:
    """A frame as the parts to be written one after another."""
    size = sum(map(len, body))
    if size % 8:
        raise AssertionError("bodies are Arrow data, whose sizes are multiples of 8")
    return [encode(type_, channel, header, size), *body]


class Receiver:
    """Cuts what is received into frames."""

    __slots__ = ("_rest", "limit")

    def __init__(self, limit: int = HELLO_LIMIT) -> None:
        self.limit = limit
        self._rest = bytearray()

    @property
    def waiting(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._rest)

    def feed(self, data: Any) -> list[Frame]:
        """The frames that are whole now."""
        if self._rest:
            self._rest += data
            data = self._rest
        frames: list[Frame] = []
        at = self._cut(data, frames)
        if data is self._rest:
            # frames keep slices of the old buffer, which therefore is not changed any more
            self._rest = bytearray() if at == len(data) else (data if not at else bytearray(data[at:]))
        elif at < len(data):
            self._rest = bytearray(memoryview(data)[at:])
        return frames

    def _cut(self, data: Any, frames: list[Frame]) -> int:
        at, end = 0, len(data)
        view: memoryview | None = None
        while end - at >= HEAD_SIZE:
            size, type_, channel, header_size = HEAD.unpack_from(data, at)
            if size % 8 or size < 8:
                raise BrokenProtocol(f"a frame says it has {size} bytes, which is not a multiple of 8")
            if size > self.limit:
                raise BrokenProtocol(
                    f"a frame of {size:,} bytes is over the {self.limit:,} that are allowed here",
                    hint="send smaller blocks",
                )
            if header_size > size - 8 or 8 + header_size + (-header_size % 8) > size:
                raise BrokenProtocol("a frame's header is longer than the frame")
            following = at + 8 + size
            if following > end:
                break
            if view is None:
                view = memoryview(data)
            header_end = at + HEAD_SIZE + header_size
            body_at = header_end + (-header_size % 8)
            if body_at > header_end and any(view[header_end:body_at]):
                raise BrokenProtocol("the padding behind a frame's header is not zero")
            frames.append(
                Frame(type_, channel, bytes(view[at + HEAD_SIZE : header_end]), view[body_at:following])
            )
            at = following
        return at


def name_of(type_: int) -> str:
    """A type's name, for messages."""
    try:
        return FrameType(type_).name.replace("_", " ").lower()
    except ValueError:
        return f"type {type_}"
