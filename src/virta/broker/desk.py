"""One partition at the broker: appends that gather for the next commit, and readers that wait.

Everything here runs in the event loop. A commit is made there too, as long as nobody else
holds the partition: writing to the page cache takes microseconds, handing over to a thread
more. Where it would have to wait (another process at work, a sync to the disk), and where
there is much to hash and to write, it goes to a thread, and what comes meanwhile gathers for
the one after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from virta.broker.intake import Intake
from virta.memory.partition import Partition as StoredPartition
from virta.memory.waiters import Waiter, process_waiters
from virta.storage import chain
from virta.storage.chain import HEADER_SIZE, Header
from virta.storage.commit import Append
from virta.topics.topic import Topic
from virta.types import Durability

# Bytes of one commit: bounds the time that the event loop, or another process, is kept waiting.
COMMIT_BYTES = 8 * 1024 * 1024
# Commits of so many bytes are made in a thread: hashing and writing let go of the interpreter, and
# the event loop takes in what comes meanwhile.
THREAD_BYTES = 256 * 1024

Answer = Callable[[Append], None]


class Order:
    """One append and who is told what became of it."""

    __slots__ = ("answer", "append")

    def __init__(self, append: Append, answer: Answer) -> None:
        self.append = append
        self.answer = answer


class TopicDesk:
    """A topic that is open at the broker, with its partitions."""

    def __init__(self, topic: Topic, loop: asyncio.AbstractEventLoop, threads: Executor) -> None:
        self.topic = topic
        self.id = bytes.fromhex(topic.id)
        self.schemas = topic._schemas  # the broker reads what the topic's own readers read
        self.intake = Intake(self.schemas)
        self.partitions = [Desk(partition.stored, self, loop, threads) for partition in topic.partitions]


class Desk:
    """One partition."""

    def __init__(
        self, stored: StoredPartition, topic: TopicDesk, loop: asyncio.AbstractEventLoop, threads: Executor
    ) -> None:
        self.stored = stored
        self.topic = topic
        self._loop = loop
        self._threads = threads
        self._orders: list[Order] = []
        self._busy = False
        self._arrivals: set[asyncio.Future[None]] = set()
        self._watching: Waiter | None = None

    # -- appending --------------------------------------------------------------------------

    def take(self, order: Order) -> bool:
        """Put an order on the desk; whether it is the first that waits for a commit."""
        self._orders.append(order)
        return len(self._orders) == 1 and not self._busy

    def commit_at_once(self, append: Append) -> bool:
        """Commit one append without an order, where nobody else is at the partition."""
        durability = self.topic.schemas.record.config.durability
        if self._orders or self._busy or not self._is_quick([append], durability):
            return False
        if not self._commit_now([append], durability):
            return False
        self._move_watch()
        if self._arrivals:
            self.arrived()
        return True

    @property
    def is_idle(self) -> bool:
        return not self._orders and not self._busy

    def commit(self) -> None:
        """Commit what has gathered."""
        while self._orders and not self._busy:
            orders = self._next()
            appends = [order.append for order in orders]
            durability = self.topic.schemas.record.config.durability
            if self._is_quick(appends, durability) and self._commit_now(appends, durability):
                self._tell(orders)
            else:
                self._busy = True
                working = self._loop.run_in_executor(self._threads, self._append, appends, durability)
                working.add_done_callback(functools.partial(self._after, orders))

    def _commit_now(self, appends: list[Append], durability: Durability) -> bool:
        """Commit them here, if nobody is waited for."""
        try:
            return self.stored.append_now(appends, durability)
        except Exception:
            if not all(append.done for append in appends):
                raise
            return True  # each has its error, and whoever sent it is told

    @staticmethod
    def _is_quick(appends: list[Append], durability: Durability) -> bool:
        """Whether committing them takes less time than handing them to a thread and back."""
        if durability is Durability.DISK:
            return False
        return sum([append.prepared.size for append in appends]) < THREAD_BYTES

    def _next(self) -> list[Order]:
        """The orders of one commit, in the order they came."""
        size = 0
        for at, order in enumerate(self._orders):
            size += order.append.prepared.size
            if size > COMMIT_BYTES and at:
                taken, self._orders = self._orders[:at], self._orders[at:]
                return taken
        taken, self._orders = self._orders, []
        return taken

    def _append(self, appends: list[Append], durability: Durability) -> None:
        """In a thread: whatever goes wrong stands in the appends."""
        try:
            self.stored.append(appends, durability)
            return
        except BaseException as error:
            failure = error
        for append in appends:
            if not append.done:
                append.error = failure
        good = [append for append in appends if append.error is None]
        if durability is not Durability.DISK or not good:
            return
        try:
            if all(append.error is not failure for append in appends):
                raise failure  # it was the sync, which is everybody's
            # one of them was refused, which ended the call before its sync
            last = good[-1].block
            self.stored.sync(None if last is None else last.header.end_offset)
        except BaseException as error:
            for append in good:
                append.block, append.duplicate, append.error = None, False, error

    def _after(self, orders: list[Order], _: object) -> None:
        self._busy = False
        self._tell(orders)
        self.commit()

    def _tell(self, orders: list[Order]) -> None:
        for order in orders:
            order.answer(order.append)
        self._move_watch()
        self.arrived()

    # -- waiting ------------------------------------------------------------------------------

    def arrival(self) -> asyncio.Future[None]:
        """Done when something may have come to the partition, from whatever process."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._arrivals.add(future)
        future.add_done_callback(self._arrivals.discard)
        return future

    def watch(self, offset: int) -> None:
        """See to it that rows of other processes from this offset on are heard of."""
        if self._watching is None:
            self._watching = process_waiters().add(self.stored, offset, self._heard)

    @property
    def is_watched(self) -> bool:
        """Whether rows of other processes are listened for, and none were heard."""
        return self._watching is not None

    def _move_watch(self) -> None:
        """Rows that were committed here need not be heard of: listen for those behind them."""
        if self._watching is not None:
            self._watching.offset = max(self._watching.offset, self.stored.tail.end_offset)

    def _heard(self, _: BaseException | None) -> None:
        """In the waiters' thread. What went wrong is met again by those who look."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._heard_of)

    def _heard_of(self) -> None:
        self._watching = None
        self.arrived()

    def arrived(self) -> None:
        for future in list(self._arrivals):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        if self._watching is not None:
            process_waiters().remove(self._watching)
            self._watching = None
        for future in list(self._arrivals):
            future.cancel()

    # -- what a producer sent before -----------------------------------------------------------------

    def find_sequence(self, producer: int, sequence: int) -> Header | None:
        """The header of the block with these rows, if it is in the segments that are still looked at."""
        low = sequence & 0xFFFFFFFF
        newest = self.stored.tail.newest()
        if newest is not None and newest.header.producer == producer and newest.header.sequence == low:
            return newest.header
        with self.stored.view() as view:
            for index in range(len(view.manifest.segments) - 1, max(-1, len(view.manifest.segments) - 3), -1):
                count = view.blocks_in(index)
                segment = view.segment(index)
                data = segment.read_chain(0, count * HEADER_SIZE)
                headers = chain.as_array(data)
                found: Any = np.flatnonzero((headers["producer"] == producer) & (headers["sequence"] == low))
                for at in reversed(found.tolist()):
                    header = segment.headers(count).header(at)
                    if header.rows:
                        return header
        return None
