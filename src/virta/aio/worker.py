"""One thread that does a log's work, so that no lock or sync ever holds up the event loop.

Waiting for rows is not work: it is left to `memory.waiters`, and takes no thread here.
A call that is cancelled before its turn is never made; one whose turn has come goes on
to its end, and only its answer is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from virta.errors import Closed
from virta.memory.partition import Partition

Result = TypeVar("Result")


class Worker:
    """The thread, and all who wait for rows of its log."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="virta-async")
        self._arrivals: set[asyncio.Future[None]] = set()
        self._closed = False

    def submit(self, call: Callable[..., Result], *arguments: Any, **named: Any) -> Future[Result]:
        """Have it called in its turn."""
        if self._closed:
            raise Closed("the log was closed")
        return self._thread.submit(call, *arguments, **named)

    async def run(self, call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """What the call gives back."""
        return await asyncio.wrap_future(self.submit(call, *arguments, **named))

    async def run_apart(self, call: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """As `run`, in a thread of its own: for what reads a whole log and would hold up all else."""
        if self._closed:
            raise Closed("the log was closed")
        return await asyncio.to_thread(call, *arguments, **named)

    async def arrival(
        self,
        places: Sequence[tuple[Partition, int]],
        seconds: float | None,
        arrived: asyncio.Future[None] | None = None,
    ) -> bool:
        """Wait until one partition has a row at its offset, or `arrived` is set; False when time is over."""
        if self._closed:
            raise Closed("the log was closed")
        future = arrived or self.loop.create_future()

        def answer(error: BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is there to be told
                self.loop.call_soon_threadsafe(settle, future, error)

        self._arrivals.add(future)
        stops = [partition.when_there(offset, answer) for partition, offset in places]
        try:
            async with asyncio.timeout(seconds):
                await future
            return True
        except TimeoutError:
            return False
        finally:
            for stop in stops:
                stop()
            self._arrivals.discard(future)

    def tell(self, callback: Callable[..., object]) -> Callable[..., None]:
        """A function for other threads that has the callback called in the event loop."""

        def passed_on(*arguments: Any) -> None:
            self.loop.call_soon_threadsafe(callback, *arguments)

        return passed_on

    async def close(self, last: Callable[[], None]) -> None:
        """Make the last call, and let go of the thread; all who wait for rows are told."""
        if self._closed:
            return
        ending = self.submit(last)
        self._closed = True
        for arrived in self._arrivals:
            settle(arrived, Closed("the log was closed"))
        self._thread.shutdown(wait=False)
        # cancelled or not, the log is closed to its end
        await asyncio.shield(asyncio.wrap_future(ending))


def settle(arrived: asyncio.Future[None], error: BaseException | None = None) -> None:
    """Tell whoever awaits it, unless they were told or went away."""
    if arrived.done():
        return
    if error is None:
        arrived.set_result(None)
    else:
        arrived.set_exception(error)


class Closing(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *_: Any) -> None: ...


Opened = TypeVar("Opened", bound=Closing)


class Opening(Generic[Opened]):
    """Something about to be opened: `async with` it, or `await` it and close it yourself."""

    def __init__(self, start: Callable[[], Awaitable[Opened]]) -> None:
        self._start = start
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._start().__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self._start()
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(self, *raised: Any) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(*raised)
