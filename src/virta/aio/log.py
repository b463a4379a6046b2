"""The asyncio twin of the embedded log: the sync core in one thread, the same names, awaited.

    async with virta.aopen("./events") as log:
        orders = await log.create_topic("orders", {"id": int, "user": str})
        await orders.append({"id": 1, "user": "ada"})
        async for row in orders.tail(stop_when_idle=0.1):
            print(row.offset, row["user"])

A call is awaited; so is a property that looks at files (`await orders.next_offset`);
iterations are `async for`. What only names or narrows stays as it is: `orders[10:20]`,
`orders.since("-15m")`, `orders.partition(0)`. Every class is its own, with its own
return types; nothing is sometimes a value and sometimes awaitable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from virta.aio.result import AsyncResult
from virta.aio.topic import AsyncTopic, worked_out
from virta.aio.worker import Worker
from virta.log import Log
from virta.query.engine import Parameters
from virta.settings import Settings
from virta.steward.doctor import DoctorReport
from virta.topics.difference import Difference
from virta.topics.groups.model import GroupDescription
from virta.topics.table import AsOf
from virta.types import Event, Stats, VerifyReport


class AsyncLog:
    """A directory that holds topics."""

    def __init__(self, worker: Worker, sync: Log) -> None:
        self._worker = worker
        self._sync = sync

    @classmethod
    async def start(cls, open_log: Callable[[], Log]) -> AsyncLog:
        """Open a log in a worker of its own."""
        worker = Worker()
        opening = worker.submit(open_log)
        try:
            return cls(worker, await asyncio.wrap_future(opening))
        except BaseException:
            await worker.close(lambda: _close_opened(opening))
            raise

    @property
    def path(self) -> Path:
        return self._sync.path

    @property
    def settings(self) -> Settings:
        return self._sync.settings

    # -- topics -------------------------------------------------------------------------------

    async def topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics; those that Virta keeps for itself only when asked for."""
        return await self._worker.run(self._sync.topics, internal=internal)

    async def topic(self, name: str) -> AsyncTopic:
        """An existing topic; NotFound, with a suggestion, when it is not there."""
        return AsyncTopic(self._worker, await self._worker.run(self._sync.topic, name))

    async def create_topic(
        self,
        name: str,
        schema: Any = None,
        *,
        keys: Any = (),
        kind: str = "append",
        partitions: int = 1,
        if_missing: bool = False,
        headers: bool = False,
        **options: Any,
    ) -> AsyncTopic:
        """Make a topic. `schema`: a dict of Python types, a pyarrow schema, or None for key and value.

        With `if_missing`, a topic that is there already is given back, if its columns agree.
        """
        made = await self._worker.run(
            self._sync.create_topic,
            name,
            schema,
            keys=keys,
            kind=kind,
            partitions=partitions,
            if_missing=if_missing,
            headers=headers,
            **options,
        )
        return AsyncTopic(self._worker, made)

    async def drop_topic(self, name: str) -> None:
        """Delete a topic and all its rows."""
        await self._worker.run(self._sync.drop_topic, name)

    async def record_event(self, event: Event) -> bool:
        """Note something that happened, as a row of `__events`; whether it is noted. Raises nothing."""
        return await self._worker.run(self._sync.record_event, event)

    # -- consumer groups --------------------------------------------------------------------------

    async def groups(self) -> list[GroupDescription]:
        """All consumer groups: members, positions and lag."""
        return await self._worker.run(self._sync.groups)

    async def diff(
        self,
        first: str,
        second: str,
        *,
        keys: Any = None,
        first_as_of: AsOf | None = None,
        second_as_of: AsOf | None = None,
    ) -> Difference:
        """What is different between two topics, by their keys: rows to insert, update and delete."""
        asked = {"keys": keys, "first_as_of": first_as_of, "second_as_of": second_as_of}
        return await self._worker.run_apart(lambda: worked_out(self._sync.diff(first, second, **asked)))

    # -- queries --------------------------------------------------------------------------------

    async def sql(
        self, query: str, parameters: Parameters = None, *, external_access: bool = False
    ) -> AsyncResult:
        """Ask DuckDB about any topics by name; all of them are fixed to their rows of this moment.

        Parameters stand for `?` or `$name`. Needs `pip install 'virta[sql]'`. With
        `external_access` a query may also read files and the network.
        """
        ask = self._sync.sql
        made = await self._worker.run_apart(ask, query, parameters, external_access=external_access)
        return AsyncResult(self._worker, made)

    # -- the whole ------------------------------------------------------------------------------

    async def stats(self) -> Stats:
        """Sizes over all topics."""
        return await self._worker.run(self._sync.stats)

    async def verify(self, *, progress: Any = None) -> dict[str, VerifyReport]:
        """Verify every topic; a report for each."""
        if progress is not None:
            progress = self._worker.tell(progress)
        return await self._worker.run_apart(self._sync.verify, progress=progress)

    async def examine(self) -> DoctorReport:
        """What the doctor finds: on this machine, and in this log's files."""
        return await self._worker.run_apart(self._sync.examine)

    async def repair(self, name: str) -> list[str]:
        """Cure what has a cure in a topic; what was done, in words."""
        return await self._worker.run(self._sync.repair, name)

    async def sync(self) -> None:
        """Make all rows of the topics opened here durable on disk."""
        await self._worker.run(self._sync.sync)

    async def close(self) -> None:
        """Write and sync what waits, and let go of every file."""
        await self._worker.close(self._sync.close)

    async def __aenter__(self) -> AsyncLog:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"


def _close_opened(opening: Future[Log]) -> None:
    """For whoever was cancelled while the log was being opened."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
