"""The verbs underneath: one partition, read by blocks and tokens.

`fetch` one block; `fetch_batch` a range; `poll` what is there now; `long_poll` waits
for something; `stream` goes on. Each is written with the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from virta.errors import NotFound, UsageError, VirtaError
from virta.memory.partition import Partition as StoredPartition
from virta.requests import parse_moment, parse_token
from virta.storage.chain import HEADER_SIZE
from virta.storage.segment import StoredBlock
from virta.storage.view import View
from virta.topics.block import Block
from virta.topics.idle import Idle
from virta.topics.read import Moment, Selection, chosen
from virta.topics.schema import SchemaSource
from virta.types import Stats, Token

POLL_BYTES = 4 * 1024 * 1024


class Partition:
    """A strictly ordered log inside a topic."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource, now_us: Callable[[], int]) -> None:
        self.stored = stored
        self._schemas = schemas
        self._now_us = now_us

    @property
    def number(self) -> int:
        return self.stored.identity.number

    @property
    def topic(self) -> str:
        return self.stored.identity.topic

    def _block(self, stored: StoredBlock) -> Block:
        self._schemas.follow_block(stored.header.schema_version)
        return Block(stored, self._schemas.newest(), topic=self.topic, partition=self.number)

    # -- positions ----------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        return self.stored.next_offset

    @property
    def start_offset(self) -> int:
        return self.stored.start_offset

    @property
    def durable_offset(self) -> int:
        return self.stored.durable_offset

    @property
    def head(self) -> str:
        return self.stored.head.hex()

    @property
    def first_token(self) -> Token:
        """Before the oldest row that can still be read."""
        return self.stored.token_at(self.stored.start_offset)

    @property
    def last_token(self) -> Token:
        """After the newest row."""
        return self.stored.token_at(self.stored.next_offset)

    def token(self, offset: int) -> Token:
        """Where a reader stands whose next row has this offset."""
        if not self.start_offset <= offset <= self.next_offset:
            raise NotFound(
                f"offset {offset} is not here",
                hint=f"offsets go from {self.start_offset} to {self.next_offset}",
            )
        return self.stored.token_at(offset)

    def token_since(self, moment: Moment) -> Token:
        """Where a reader stands whose next row is the first one stamped then or later."""
        return self.stored.token_at(self.stored.first_offset_at(parse_moment(moment, self._now_us())))

    def stats(self) -> Stats:
        return self.stored.stats()

    # -- rows ---------------------------------------------------------------------------------

    def __getitem__(self, place: int | slice) -> Any:
        """Rows of this partition, as a topic gives them: `partition[10:20]`, `partition[5]`."""
        return chosen(Selection([self.stored], self._schemas, self._now_us), place)

    # -- the five verbs ---------------------------------------------------------------------------

    def fetch(self, token: Token | str) -> Block:
        """The block that holds the token's next row."""
        blocks, _ = self.poll(token, max_bytes=1)
        if not blocks:
            raise NotFound(
                f"there is no row at offset {self._own(token).offset} yet", hint="long_poll waits for one"
            )
        return blocks[0]

    def fetch_batch(self, from_: int | Token | str, to: int | Token | str) -> list[Block]:
        """The blocks that hold the rows from `from_` up to, not including, `to`."""
        start = self._offset(from_)
        end = min(self._offset(to), self.next_offset)
        found: list[Block] = []
        while start < end:
            read = self.stored.read(start, max_bytes=POLL_BYTES)
            if not read:
                break
            found += [
                self._block(block) for block in read if block.header.base_offset < end and block.header.rows
            ]
            start = max(start + 1, read[-1].header.end_offset)
        return found

    def poll(self, token: Token | str, *, max_bytes: int = POLL_BYTES) -> tuple[list[Block], Token]:
        """What is there now from the token on, and the token after it."""
        own = self._own(token)
        self.stored.check_token(own)
        while read := self.stored.read(own.offset, max_bytes=max_bytes):
            last = read[-1].header
            own = Token(partition=self.number, offset=last.end_offset, hash=last.hash)
            blocks = [self._block(block) for block in read if block.header.rows]
            if blocks:
                return blocks, own
        return [], own

    def long_poll(
        self, token: Token | str, *, timeout: float | None = None, max_bytes: int = POLL_BYTES
    ) -> tuple[list[Block], Token]:
        """As `poll`, but waits up to `timeout` seconds for something to be there."""
        blocks, following = self.poll(token, max_bytes=max_bytes)
        if not blocks and self.stored.wait(following.offset, timeout):
            blocks, following = self.poll(following, max_bytes=max_bytes)
        return blocks, following

    def stream(self, from_: int | Token | str | None = None) -> Iterator[Block]:
        """Block after block, for ever: what is there, then what comes."""
        for step in self.steps(from_):
            if isinstance(step, Idle):
                self.stored.wait(step.offset, None)
            else:
                yield step

    def steps(self, from_: int | Token | str | None = None) -> Iterator[Block | Idle]:
        """What `stream` reads, with the places where it waits."""
        if from_ is None:
            token = self.first_token
        else:
            token = self.token(from_) if isinstance(from_, int) else self._own(from_)
        while True:
            blocks, following = self.poll(token)
            yield from blocks
            if following == token:
                yield Idle(places=((self.stored, token.offset),))
            token = following

    def find(self, hash_: str) -> Block:
        """The block with this hash; the first eight digits or more are enough."""
        try:
            wanted = bytes.fromhex(hash_ if len(hash_) % 2 == 0 else hash_[:-1])
        except ValueError as error:
            raise UsageError(
                f"{hash_!r} is not a hash: it has other signs than hexadecimal digits"
            ) from error
        if len(hash_) < 8:
            raise UsageError("a hash needs at least eight digits to be looked for")
        self.stored.dump()  # what is only in memory stands in no chain file
        with self.stored.view() as view:
            found = view.settled(lambda: _find(view, wanted, hash_.lower()))
            if found is None:
                found = view.settled(lambda: _find_rewritten(view, hash_.lower()))
        if found is None:
            raise NotFound(f"no block has the hash {hash_}")
        return self._block(found)

    # -- what ranges may be given as -------------------------------------------------------------

    def _own(self, token: Token | str) -> Token:
        own = parse_token(token) if isinstance(token, str) else token
        if own.partition != self.number:
            raise UsageError(f"the token is of partition {own.partition}, not {self.number}")
        return own

    def _offset(self, place: int | Token | str) -> int:
        if isinstance(place, int):
            if place < 0:
                raise UsageError("an offset is not negative", hint="topic[-10:] counts from the end")
            return place
        own = self._own(place)
        self.stored.check_token(own)
        return own.offset

    def __repr__(self) -> str:
        place = f"{self.topic!r}/{self.number}"
        try:
            return f"Partition({place}, next offset {self.next_offset}, head {self.head[:8]})"
        except VirtaError as error:
            return f"Partition({place}, {error.code})"


def _find(view: View, wanted: bytes, digits: str) -> StoredBlock | None:
    """The newest block whose hash begins so, by its header."""
    for index in range(len(view.manifest.segments) - 1, -1, -1):
        segment, count = view.segment(index), view.blocks_in(index)
        data = segment.read_chain(0, count * HEADER_SIZE)
        for at in range((count - 1) * HEADER_SIZE, -1, -HEADER_SIZE):
            if data[at + 96 : at + 96 + len(wanted)] == wanted:
                number = at // HEADER_SIZE
                found = segment.read_blocks(number, number + 1, max_bytes=1)[0]
                if found.header.hash.hex().startswith(digits):
                    return found
    return None


def _find_rewritten(view: View, digits: str) -> StoredBlock | None:
    """The block that stands for the one whose hash begins so."""
    for index in range(len(view.manifest.segments) - 2, -1, -1):
        segment = view.segment(index)
        for at in range(view.blocks_in(index) - 1, -1, -1):
            if not segment.is_rewritten(at):
                continue
            if any(before.hex().startswith(digits) for before in segment.trail_at(at)[1][1:]):
                return segment.read_blocks(at, at + 1, max_bytes=1)[0]
    return None
