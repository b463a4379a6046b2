"""Consumer groups, awaited.

The steps are taken in the log's worker; waiting takes no thread. Nothing is lost when a task
is cancelled between two batches: what the worker has taken meanwhile is kept for the next one,
and is not finished before somebody had it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from virta.aio.worker import Worker
from virta.topics.groups.group import Group, Target
from virta.topics.groups.letters import DeadLetter, DeadLetters
from virta.topics.groups.model import GroupDescription, Lag, ResetPlan
from virta.topics.groups.reader import ROWS_AT_ONCE, Attempt, GroupReader
from virta.topics.read import Row
from virta.types import Token


class AsyncAttempt:
    """`async with reader.attempt():` around the work on what was handed out last."""

    def __init__(self, worker: Worker, sync: Attempt) -> None:
        self._worker = worker
        self._sync = sync

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *raised: Any) -> bool:
        if raised[0] is None:
            return False
        return await self._worker.run(self._sync.__exit__, *raised)


class AsyncGroupReader:
    """One member of a group on one topic."""

    def __init__(self, worker: Worker, sync: GroupReader) -> None:
        self._worker = worker
        self._sync = sync
        self._visit: asyncio.Future[pa.RecordBatch | None] | None = None

    @property
    def member(self) -> str:
        return self._sync.member

    @property
    def group(self) -> str:
        return self._sync.group

    @property
    def topic(self) -> str:
        return self._sync.topic

    @property
    def partitions(self) -> list[int]:
        """The partitions it reads now."""
        return self._sync.partitions

    @property
    def partition(self) -> int | None:
        """The partition of the batch handed out last."""
        return self._sync.partition

    @property
    def epochs(self) -> Mapping[int, int]:
        """By partition, the assignment that it is held by: a higher number for every owner."""
        return self._sync.epochs

    @property
    def position(self) -> Mapping[int, Token]:
        """By partition, the token behind what was handed out."""
        return self._sync.position

    @property
    def committed(self) -> Mapping[int, Token]:
        """By partition, where the group would go on if this reader ended now."""
        return self._sync.committed

    @property
    def lag(self) -> Awaitable[Lag]:
        """How far what was handed out is behind the newest rows of its partitions."""
        return self._worker.run(lambda: self._sync.lag)

    # -- reading ------------------------------------------------------------------------------

    async def batches(
        self, max_rows: int = 10_000, *, stop_when_idle: float | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Rows as they are and as they come, at most so many at once and of one partition each."""
        idle_since: float | None = None
        while True:
            batch = await self._step(max_rows)
            if batch is not None:
                idle_since = None
                yield batch
                continue
            now = self._worker.loop.time()
            idle_since = now if idle_since is None else idle_since
            left = None if stop_when_idle is None else stop_when_idle - (now - idle_since)
            if left is not None and left <= 0:
                return
            await self._pause(left)

    async def _step(self, max_rows: int) -> pa.RecordBatch | None:
        if self._visit is None:
            self._visit = asyncio.wrap_future(self._worker.submit(self._sync.step, max_rows))
        visit = self._visit
        try:
            # a task that is cancelled leaves the visit going on for the next one
            return await asyncio.shield(visit)
        finally:
            if visit.done() and self._visit is visit:
                self._visit = None

    async def _pause(self, most: float | None) -> None:
        places, seconds = await self._worker.run(self._sync.waits_for, most)
        if places:
            await self._worker.arrival(places, seconds)
        else:
            await asyncio.sleep(seconds)

    async def rows(self, *, stop_when_idle: float | None = None) -> AsyncIterator[Row]:
        """Row by row; a row is finished when the next one is asked for."""
        async for batch in self.batches(ROWS_AT_ONCE, stop_when_idle=stop_when_idle):
            for row in self._sync.rows_of(batch):
                yield row

    def __aiter__(self) -> AsyncIterator[Row]:
        return self.rows()

    def send(self, rows: Any) -> None:
        """What the rows at hand cause in the topic of `into`: a row, a list of them, or Arrow.

        It is appended when they are finished, and together with how far they reach.
        """
        self._sync.send(rows)

    def attempt(self) -> AsyncAttempt:
        """Work on what was handed out last: what raises inside is tried again, and at last set aside."""
        return AsyncAttempt(self._worker, self._sync.attempt())

    async def commit(self) -> None:
        """All that was handed out is done; Fenced when a part of it has been given to another reader."""
        await self._worker.run(self._sync.commit)

    async def close(self) -> None:
        """Commit what is finished, and give the partitions to the others."""
        await self._worker.run(self._sync.close)

    async def __aenter__(self) -> AsyncGroupReader:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._worker.run(self._sync.__exit__, *raised)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncGroup:
    """One group on one topic, from outside."""

    def __init__(self, worker: Worker, sync: Group) -> None:
        self._worker = worker
        self._sync = sync

    @property
    def name(self) -> str:
        return self._sync.name

    @property
    def topic(self) -> str:
        return self._sync.topic

    async def describe(self) -> GroupDescription:
        """Members, positions and lag; NotFound when nobody has read or committed under this name."""
        return await self._worker.run(self._sync.describe)

    def dead_letters(self) -> AsyncDeadLetters:
        """Rows that failed too often: `all()`, `resend()`, `discard()`."""
        return AsyncDeadLetters(self._worker, self._sync.dead_letters())

    async def plan_reset(self, to: Target) -> list[ResetPlan]:
        """What `reset` would do: rows that are read again, and rows that are passed over."""
        return await self._worker.run(self._sync.plan_reset, to)

    async def reset(self, to: Target, *, dry_run: bool = False) -> list[ResetPlan]:
        """Put the group somewhere else, while nobody reads: "oldest", "newest", a moment, an offset.

        With several partitions offsets are given by partition: `{0: 100, 3: 250}`; others stay.
        """
        return await self._worker.run(self._sync.reset, to, dry_run=dry_run)

    async def remove(self) -> None:
        """Forget the group; refused while somebody reads."""
        await self._worker.run(self._sync.remove)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


class AsyncDeadLetters:
    """The dead letters of one group on one topic: to look at, to send again, to throw away."""

    def __init__(self, worker: Worker, sync: DeadLetters) -> None:
        self._worker = worker
        self._sync = sync

    async def all(self) -> list[DeadLetter]:
        """All of them, the oldest first."""
        return await self._worker.run(self._sync.all)

    async def resend(self, letters: Iterable[DeadLetter] | None = None) -> int:
        """Append these rows (or all) to their topic again, and take them off the list; how many.

        Every group on the topic meets them as new rows. Interrupted and begun again, no row is
        sent twice: each goes by a producer's name of its own.
        """
        return await self._worker.run(self._sync.resend, letters)

    async def discard(self, letters: Iterable[DeadLetter] | None = None) -> int:
        """Take these (or all) off the list, for good; how many."""
        return await self._worker.run(self._sync.discard, letters)
