"""Reading a topic from asyncio: narrowed as in `topics.read`, then awaited.

There is no `__arrow_c_stream__` here: whoever pulls an Arrow stream does so from the
event loop, and would stop it. `await selection.to_arrow()` gives a table to pass on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pyarrow as pa

from virta.aio.reading import ROWS_PER_VISIT, AsyncReading
from virta.aio.worker import Worker
from virta.topics.read import Moment, Row, Selection


class AsyncSelection:
    """Some rows of one partition or of several, not read yet: partition after partition."""

    def __init__(self, worker: Worker, sync: Selection) -> None:
        self._worker = worker
        self._sync = sync

    @property
    def topic(self) -> str:
        return self._sync.topic

    # -- narrowing: nothing is read, so nothing is awaited --------------------------------------

    def since(self, moment: Moment) -> AsyncSelection:
        """Rows stamped at this moment or later: `"-15m"`, `"2026-11-18T10:00Z"`, a datetime."""
        return AsyncSelection(self._worker, self._sync.since(moment))

    def until(self, moment: Moment) -> AsyncSelection:
        """Rows stamped before this moment."""
        return AsyncSelection(self._worker, self._sync.until(moment))

    def where(self, expression: str) -> AsyncSelection:
        """Rows for which an SQL expression over the columns is true; several must all be."""
        return AsyncSelection(self._worker, self._sync.where(expression))

    def columns(self, *names: str) -> AsyncSelection:
        """Only these columns, in this order."""
        return AsyncSelection(self._worker, self._sync.columns(*names))

    def newest(self, rows: int) -> AsyncSelection:
        """The newest rows of each partition, and what comes."""
        return AsyncSelection(self._worker, self._sync.newest(rows))

    def limit(self, rows: int) -> AsyncSelection:
        """At most so many rows."""
        return AsyncSelection(self._worker, self._sync.limit(rows))

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """The schema of what this selection gives."""
        return self._worker.run(lambda: self._sync.schema)

    # -- reading ------------------------------------------------------------------------------

    def batches(self) -> AsyncReading[pa.RecordBatch]:
        """The rows as Arrow record batches, streamed."""
        return AsyncReading(self._worker, self._sync.batches)

    def __aiter__(self) -> AsyncReading[Row]:
        return AsyncReading(self._worker, self._sync.__iter__, per_visit=ROWS_PER_VISIT)

    async def to_arrow(self) -> pa.Table:
        # batch by batch, so that a long read lets the log's other work pass
        batches = [batch async for batch in self.batches()]
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else await self.schema)

    async def to_pylist(self) -> list[dict[str, Any]]:
        return [row.to_dict() async for row in self]

    async def to_reader(self) -> pa.RecordBatchReader:
        """A fresh stream of record batches; it reads files where it is pulled."""
        return await self._worker.run(self._sync.to_reader)

    async def count(self) -> int:
        """How many rows: from the chain alone where nothing has to be looked into."""
        return await self._worker.run(self._sync.count)

    async def first(self) -> Row | None:
        return await self._worker.run(self._sync.first)

    # -- going on -------------------------------------------------------------------------------

    def under_schema(self, schema_version: int) -> AsyncSelection:
        """The same rows with the columns of an older version of the schema."""
        return AsyncSelection(self._worker, self._sync.under_schema(schema_version))

    def tail(self, *, stop_when_idle: float | None = None) -> AsyncReading[Row]:
        """What is there, then what comes; ends after so many idle seconds, or never."""
        return AsyncReading(
            self._worker, self._sync.row_steps, per_visit=ROWS_PER_VISIT, stop_when_idle=stop_when_idle
        )

    def tail_batches(self, *, stop_when_idle: float | None = None) -> AsyncReading[pa.RecordBatch]:
        """As `tail`, by batches with all columns."""
        return AsyncReading(self._worker, self._sync.steps, stop_when_idle=stop_when_idle)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
