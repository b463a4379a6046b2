"""The changes of an update topic, awaited."""

from __future__ import annotations

from collections.abc import Awaitable

import pyarrow as pa

from virta.aio.reading import ROWS_PER_VISIT, AsyncReading
from virta.aio.worker import Worker
from virta.topics.changes import Change, Changes


class AsyncChanges:
    """The changes of an update topic from a place on, not read yet."""

    def __init__(self, worker: Worker, sync: Changes) -> None:
        self._worker = worker
        self._sync = sync

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """`_change`, `_partition`, `_offset`, `_timestamp`, and the row `before` and `after`."""
        return self._worker.run(lambda: self._sync.schema)

    def batches(self) -> AsyncReading[pa.RecordBatch]:
        """What is there, as Arrow record batches."""
        return AsyncReading(self._worker, self._sync.batches)

    def __aiter__(self) -> AsyncReading[Change]:
        return AsyncReading(self._worker, self._sync.__iter__, per_visit=ROWS_PER_VISIT)

    async def to_arrow(self) -> pa.Table:
        return await self._worker.run_apart(self._sync.to_arrow)

    async def to_pylist(self) -> list[Change]:
        return [change async for change in self]

    def tail(self, *, stop_when_idle: float | None = None) -> AsyncReading[Change]:
        """What is there, then what comes; ends after so many idle seconds, or never."""
        return AsyncReading(
            self._worker, self._sync.steps, per_visit=ROWS_PER_VISIT, stop_when_idle=stop_when_idle
        )

    def tail_batches(self, *, stop_when_idle: float | None = None) -> AsyncReading[pa.RecordBatch]:
        """As `tail`, by batches."""
        return AsyncReading(self._worker, self._sync.batch_steps, stop_when_idle=stop_when_idle)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
