"""Blocks on their way out: as they lie on disk, never decoded, never hashed again.

The reader checks digests and links itself, so the broker does not; it checks only that a
token is still true. What is in the tail buffer is handed out in the event loop; what has to
be read from files is read in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from virta.broker.desk import Desk
from virta.protocol import connection
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.storage.segment import StoredBlock
from virta.types import Token

# What one answer may carry: well under the bound of a frame, and enough to keep a reader busy.
ANSWER_BYTES = 8 * 1024 * 1024
# Blocks smaller than this on average are joined before they are written.
_JOIN_BELOW_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a reader stands: an offset, and the hash before its block where it is known."""

    offset: int
    hash: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Blocks, and where the partition ended when they were read."""

    blocks: list[StoredBlock]
    next_offset: int


def read_from_memory(desk: Desk, place: Place, max_bytes: int) -> Found | None:
    """What the tail buffer has for this place; None where files have to be asked."""
    tail = desk.stored.tail
    blocks = tail.read(place.offset, max_bytes=max_bytes)
    if not blocks or (place.hash is not None and blocks[0].previous != place.hash):
        return None
    return Found(blocks=blocks, next_offset=tail.end_offset)


def is_at_end(desk: Desk, place: Place) -> bool:
    """Whether nothing is there for this place yet, as far as this process has heard."""
    newest = desk.stored.tail.newest()
    if newest is None or newest.header.end_offset != place.offset:
        return False
    return place.hash is None or newest.header.hash == place.hash


def read_from_files(desk: Desk, place: Place, max_bytes: int, end: int | None) -> Found:
    """In a thread: check the token, and read."""
    stored = desk.stored
    if place.hash is not None:
        number = stored.identity.number
        stored.check_token(Token(partition=number, offset=place.offset, hash=place.hash))
    blocks = stored.read(place.offset, max_bytes=max_bytes, end=end, verify=False)
    return Found(blocks=blocks, next_offset=stored.next_offset)


def body_of(blocks: list[StoredBlock]) -> list[Any]:
    """Their headers, then their bytes."""
    headers = b"".join([block.header.to_bytes() for block in blocks])
    parts = [headers, *(block.data for block in blocks)]
    size = sum(map(len, parts))
    return [b"".join(parts)] if size < len(blocks) * _JOIN_BELOW_BYTES else parts


def blocks_frame(desk: Desk, channel: int, found: Found, *, last: bool = False) -> list[Any]:
    blocks = found.blocks
    header = message("Blocks")(
        count=len(blocks),
        previous=blocks[0].previous if blocks else b"",
        next_offset=found.next_offset,
        topic_version=desk.stored.topic_version,
        last=last,
    )
    return connection.frame(FrameType.BLOCKS, channel, header, *(body_of(blocks) if blocks else ()))


def within(blocks: list[StoredBlock], end: int | None) -> list[StoredBlock]:
    """The blocks that begin before an offset."""
    if end is None:
        return blocks
    return [block for block in blocks if block.header.base_offset < end]
