"""What all tabs share: one look at the log per tick, however many watch, and none when nobody does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from virta.console.group_lags import GroupSampler, worst_lags
from virta.console.reading import Windows
from virta.console.sampler import Sampler
from virta.console.tails import Tail
from virta.errors import VirtaError

# Ten looks a second: a row is on the screen before the eye minds. Twice as many would have a browser
# draw twice as often, which is what a busy tail costs.
TICK_SECONDS = 0.1
SAMPLE_SECONDS = 1.0
# Long work (verify, search, export) has a thread of its own each; looks and windows share the others.
_THREADS = 16

Value = TypeVar("Value")


class Pulse:
    """Something that happens again and again, for many who wait for the next time."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def fire(self) -> None:
        self.count += 1
        for each in self._waiting:
            if not each.done():
                each.set_result(None)
        self._waiting.clear()

    async def after(self, count: int) -> int:
        """Wait until it happened more often than `count` times."""
        while self.count <= count:
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
        return self.count


class WatchedTail:
    """A tail, and the pulse of its ticks that brought something."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.pulse = Pulse()
        self.error: VirtaError | None = None

    def tick(self) -> bool:
        """Whether there is something to tell: news, an error, or the end of one."""
        try:
            changed, error = self.tail.tick(), None
        except VirtaError as found:
            changed, error = False, found
        told = changed or (error is None) != (self.error is None)
        self.error = error
        return told


class Hub:
    """Looks at a log for everybody."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.windows = Windows()
        self.groups = GroupSampler(log)
        self.sampler = Sampler(log, lambda: worst_lags(self.groups))
        self.samples: list[dict[str, Any]] = []
        self.sampled = Pulse()
        self._tails: dict[tuple[str, int], WatchedTail] = {}
        self._sample_watchers = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="virta-console")

    async def work(self, call: Callable[..., Value], *arguments: Any, **named: Any) -> Value:
        """Call it in a thread: the event loop never waits for a disk."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: call(*arguments, **named))

    # -- tails --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def tail(self, topic: str, partition: int) -> AsyncIterator[WatchedTail]:
        """The tail of a partition, ticking while anybody holds it."""
        key = (topic, partition)
        watched = self._tails.get(key)
        if watched is None:
            watched = self._tails[key] = WatchedTail(Tail(self.log, self.windows, topic, partition))
        watched.tail.watchers += 1
        try:
            if watched.pulse.count == 0:
                await self.work(watched.tick)
                watched.pulse.fire()
            self._keep_going("tails", self._tick_tails)
            yield watched
        finally:
            watched.tail.watchers -= 1
            if not watched.tail.watchers and self._tails.get(key) is watched:
                del self._tails[key]

    async def _tick_tails(self) -> None:
        loop = asyncio.get_running_loop()
        while self._tails:
            begun = loop.time()
            held = list(self._tails.values())
            for watched in await self.work(lambda held=held: [each for each in held if each.tick()]):
                watched.pulse.fire()
            await asyncio.sleep(max(0.001, TICK_SECONDS - (loop.time() - begun)))

    # -- samples --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def sampling(self) -> AsyncIterator[Pulse]:
        """Samples of all topics, taken while anybody holds this."""
        self._sample_watchers += 1
        try:
            if not self.samples:
                await self._sample()
            self._keep_going("samples", self._sample_on)
            yield self.sampled
        finally:
            self._sample_watchers -= 1

    async def _sample(self) -> None:
        self.samples = await self.work(self.sampler.sample)
        self.sampled.fire()

    async def _sample_on(self) -> None:
        while self._sample_watchers:
            await asyncio.sleep(SAMPLE_SECONDS)
            await self._sample()

    # -- tasks ----------------------------------------------------------------------------------

    def _keep_going(self, name: str, run: Callable[[], Any]) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.create_task(run())

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
