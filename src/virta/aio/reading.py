"""Reading on and on, as `async for` sees it.

The steps of the sync core are taken in the log's worker, a handful at a time; where it
says `Idle` the reader waits without a thread. Nothing is lost when a task is cancelled
between two rows: what the worker has read meanwhile is kept for the next one. It holds
no files, so it may be left at any moment; `aclose` only makes the end official.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Generic, TypeVar, cast

from virta.aio.worker import Worker, settle
from virta.topics.idle import Idle

Item = TypeVar("Item")

# Rows taken by one visit to the worker: the hand-over is spread over them, and the others wait little.
ROWS_PER_VISIT = 1024


class AsyncReading(AsyncIterator[Item], Generic[Item]):
    """Rows, batches or blocks, in order."""

    def __init__(
        self,
        worker: Worker,
        begin: Callable[[], Iterable[Item | Idle]],
        *,
        per_visit: int = 1,
        stop_when_idle: float | None = None,
    ) -> None:
        self._worker = worker
        self._begin = begin
        self._per_visit = per_visit
        self._stop_when_idle = stop_when_idle
        self._steps: Iterator[Item | Idle] | None = None
        self._ready: deque[Item] = deque()
        self._idle: Idle | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._visit: asyncio.Future[list[Item | Idle]] | None = None
        self._ended = False

    def __aiter__(self) -> AsyncReading[Item]:
        return self

    async def __anext__(self) -> Item:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            await self._go_on()
        return self._ready.popleft()

    async def _go_on(self) -> None:
        if self._idle is not None:
            if not await self._arrival(self._idle):
                self._end()
            self._idle = None
        if self._ended:
            return
        if self._visit is None:
            self._visit = asyncio.wrap_future(self._worker.submit(self._take))
        visit = self._visit
        try:
            # a task that is cancelled leaves the visit going on for the next one
            taken = await asyncio.shield(visit)
        except Exception:
            self._end()
            raise
        if self._visit is visit:
            self._visit = None
            self._sort(taken)

    async def _arrival(self, idle: Idle) -> bool:
        arrived: asyncio.Future[None] = self._worker.loop.create_future()
        self._waiting.add(arrived)
        try:
            return await self._worker.arrival(idle.places, self._stop_when_idle, arrived)
        finally:
            self._waiting.discard(arrived)

    def _take(self) -> list[Item | Idle]:
        """In the worker: the next steps, up to where it would have to wait."""
        if self._steps is None:
            self._steps = iter(self._begin())
        taken: list[Item | Idle] = []
        for step in self._steps:
            taken.append(step)
            if isinstance(step, Idle) or len(taken) == self._per_visit:
                break
        return taken

    def _sort(self, taken: list[Item | Idle]) -> None:
        if not taken:
            self._end()
        elif isinstance(taken[-1], Idle):
            self._idle = taken.pop()  # type: ignore[assignment]
        if not self._ended:
            self._ready.extend(cast("list[Item]", taken))

    def _end(self) -> None:
        self._ended = True
        self._steps = None
        self._ready.clear()

    async def aclose(self) -> None:
        """Read no further; whoever waits in it is told that it is over."""
        self._end()
        for arrived in self._waiting:
            settle(arrived)
