"""An update topic as a table, awaited: narrowed as in `topics.table`, then read."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.aio.reading import ROWS_PER_VISIT, AsyncReading
from virta.aio.worker import Worker
from virta.topics.read import Row
from virta.topics.table import AsOf, Table

if TYPE_CHECKING:
    import pyarrow.dataset


class AsyncTable:
    """The current rows of an update topic, not read yet."""

    def __init__(self, worker: Worker, sync: Table) -> None:
        self._worker = worker
        self._sync = sync

    # -- narrowing: nothing is read, so nothing is awaited --------------------------------------

    def where(self, expression: str) -> AsyncTable:
        """Rows for which an SQL expression over the columns is true; several must all be."""
        return AsyncTable(self._worker, self._sync.where(expression))

    def columns(self, *names: str) -> AsyncTable:
        """Only these columns, in this order."""
        return AsyncTable(self._worker, self._sync.columns(*names))

    def limit(self, rows: int) -> AsyncTable:
        """At most so many rows."""
        return AsyncTable(self._worker, self._sync.limit(rows))

    def as_of(self, moment: AsOf) -> AsyncTable:
        """The table as it was before this offset or this time."""
        return AsyncTable(self._worker, self._sync.as_of(moment))

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """The schema of what this gives: `_offset` and `_timestamp` come first, unless columns say else."""
        return self._worker.run(lambda: self._sync.schema)

    # -- reading ------------------------------------------------------------------------------

    def batches(self) -> AsyncReading[pa.RecordBatch]:
        """The rows as Arrow record batches, streamed; in the order in which they were appended."""
        return AsyncReading(self._worker, self._sync.batches)

    def __aiter__(self) -> AsyncReading[Row]:
        return AsyncReading(self._worker, self._sync.__iter__, per_visit=ROWS_PER_VISIT)

    async def to_arrow(self) -> pa.Table:
        batches = [batch async for batch in self.batches()]
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else await self.schema)

    async def to_reader(self) -> pa.RecordBatchReader:
        """A fresh stream of record batches; it reads files where it is pulled."""
        return await self._worker.run(self._sync.to_reader)

    async def to_pylist(self) -> list[dict[str, Any]]:
        return [row.to_dict() async for row in self]

    async def dataset(self) -> pyarrow.dataset.Dataset:
        """The table of this moment as a `pyarrow.dataset`."""
        return await self._worker.run_apart(self._sync.dataset)

    async def first(self) -> Row | None:
        return await self._worker.run(self._sync.first)

    async def count(self) -> int:
        """How many rows: from the index alone where nothing has to be looked into."""
        return await self._worker.run(self._sync.count)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
