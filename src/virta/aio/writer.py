"""The buffered writer, awaited: a row is only put down; the worker appends what has gathered.

The sync writer's own thread for `linger` is replaced by a timer of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from virta.aio.worker import Worker
from virta.errors import Closed
from virta.topics.writer import Writer
from virta.types import Ack


class AsyncWriter:
    """Gathers rows by number, bytes and time; leaving the `async with` block flushes or raises."""

    def __init__(self, worker: Worker, sync: Writer, linger: float) -> None:
        self._worker = worker
        self._sync = sync
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None

    @property
    def producer(self) -> str | None:
        return self._sync.producer

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest row that is appended; -1 before the first."""
        return self._sync.last_sequence

    @property
    def last_ack(self) -> Ack | None:
        return self._sync.last_ack

    async def send(self, row: Mapping[str, Any]) -> None:
        """Take one row; it is appended with others, at the latest when the writer is left."""
        if self._sync.put(row):
            await self._worker.run(self._sync.look)
        elif self._timer is None and self._linger:
            self._timer = self._worker.loop.call_later(self._linger, self._flush_later)

    def _flush_later(self) -> None:
        """What goes wrong is kept by the writer and raised at the next call."""
        self._timer = None
        with contextlib.suppress(Closed):
            self._worker.submit(self._sync.flush).add_done_callback(Future.exception)

    async def send_batch(self, rows: Any) -> None:
        """Take rows as Arrow, or a list of dicts; larger batches make larger blocks."""
        await self._worker.run(self._sync.send_batch, rows)

    async def flush(self) -> None:
        """Append what has gathered; durable to the topic's level when it returns."""
        await self._worker.run(self._sync.flush)

    async def close(self) -> None:
        """Flush and end; raises what went wrong, also earlier in the background."""
        self._stop_timer()
        await self._worker.run(self._sync.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __aenter__(self) -> AsyncWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._stop_timer()
        await self._worker.run(self._sync.__exit__, kind, *rest)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
