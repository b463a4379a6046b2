"""The verbs underneath, awaited: one partition, read by blocks and tokens."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import overload

from virta.aio.reading import AsyncReading
from virta.aio.selection import AsyncSelection
from virta.aio.worker import Worker
from virta.topics.block import Block
from virta.topics.partition import POLL_BYTES, Partition
from virta.topics.read import Moment, Place, Row
from virta.types import Stats, Token

# Blocks taken by one visit to the worker when a stream reads what is there.
_BLOCKS_PER_VISIT = 64


class AsyncPartition:
    """A strictly ordered log inside a topic."""

    def __init__(self, worker: Worker, sync: Partition) -> None:
        self._worker = worker
        self._sync = sync

    @property
    def number(self) -> int:
        return self._sync.number

    @property
    def topic(self) -> str:
        return self._sync.topic

    # -- positions ----------------------------------------------------------------------------

    @property
    def next_offset(self) -> Awaitable[int]:
        return self._worker.run(lambda: self._sync.next_offset)

    @property
    def start_offset(self) -> Awaitable[int]:
        return self._worker.run(lambda: self._sync.start_offset)

    @property
    def durable_offset(self) -> Awaitable[int]:
        return self._worker.run(lambda: self._sync.durable_offset)

    @property
    def head(self) -> Awaitable[str]:
        return self._worker.run(lambda: self._sync.head)

    @property
    def first_token(self) -> Awaitable[Token]:
        """Before the oldest row that can still be read."""
        return self._worker.run(lambda: self._sync.first_token)

    @property
    def last_token(self) -> Awaitable[Token]:
        """After the newest row."""
        return self._worker.run(lambda: self._sync.last_token)

    async def token(self, offset: int) -> Token:
        """Where a reader stands whose next row has this offset."""
        return await self._worker.run(self._sync.token, offset)

    async def token_since(self, moment: Moment) -> Token:
        """Where a reader stands whose next row is the first one stamped then or later."""
        return await self._worker.run(self._sync.token_since, moment)

    async def stats(self) -> Stats:
        return await self._worker.run(self._sync.stats)

    # -- rows ---------------------------------------------------------------------------------

    @overload
    def __getitem__(self, place: int) -> Awaitable[Row]: ...

    @overload
    def __getitem__(self, place: slice[Place, Place, None]) -> AsyncSelection: ...

    def __getitem__(self, place: int | slice) -> Awaitable[Row] | AsyncSelection:
        """Rows of this partition, as a topic gives them: `partition[10:20]`, `await partition[5]`."""
        if isinstance(place, slice):
            return AsyncSelection(self._worker, self._sync[place])
        return self._worker.run(self._sync.__getitem__, place)

    # -- the five verbs ---------------------------------------------------------------------------

    async def fetch(self, token: Token | str) -> Block:
        """The block that holds the token's next row."""
        return await self._worker.run(self._sync.fetch, token)

    async def fetch_batch(self, from_: int | Token | str, to: int | Token | str) -> list[Block]:
        """The blocks that hold the rows from `from_` up to, not including, `to`."""
        return await self._worker.run(self._sync.fetch_batch, from_, to)

    async def poll(self, token: Token | str, *, max_bytes: int = POLL_BYTES) -> tuple[list[Block], Token]:
        """What is there now from the token on, and the token after it."""
        return await self._worker.run(self._sync.poll, token, max_bytes=max_bytes)

    async def long_poll(
        self,
        token: Token | str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the sync interface's name
        max_bytes: int = POLL_BYTES,
    ) -> tuple[list[Block], Token]:
        """As `poll`, but waits up to `timeout` seconds for something to be there."""
        blocks, following = await self.poll(token, max_bytes=max_bytes)
        if not blocks and await self._worker.arrival([(self._sync.stored, following.offset)], timeout):
            blocks, following = await self.poll(following, max_bytes=max_bytes)
        return blocks, following

    def stream(self, from_: int | Token | str | None = None) -> AsyncReading[Block]:
        """Block after block, for ever: what is there, then what comes."""
        return AsyncReading(self._worker, lambda: self._sync.steps(from_), per_visit=_BLOCKS_PER_VISIT)

    async def find(self, hash_: str) -> Block:
        """The block with this hash; the first eight digits or more are enough."""
        return await self._worker.run(self._sync.find, hash_)

    def __repr__(self) -> str:
        return f"AsyncPartition({self.topic!r}/{self.number})"
