"""What a query gives, awaited. It runs in a thread of its own, and a cancelled task cancels it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from virta.aio.worker import Worker
from virta.query.result import Result

Answer = TypeVar("Answer")


class AsyncResult:
    """The rows of a query, not read yet."""

    def __init__(self, worker: Worker, sync: Result) -> None:
        self._worker = worker
        self._sync = sync

    @property
    def query(self) -> str:
        return self._sync.query

    @property
    def columns(self) -> list[str]:
        return self._sync.columns

    async def _run(self, call: Callable[..., Answer], *arguments: Any) -> Answer:
        try:
            return await self._worker.run_apart(call, *arguments)
        except asyncio.CancelledError:
            self._sync.cancel()
            raise

    # -- reading ------------------------------------------------------------------------------

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """The columns with their Arrow types."""
        return self._run(lambda: self._sync.schema)

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows as Arrow record batches, streamed."""
        source = self._sync.batches()
        try:
            while (batch := await self._run(_following, source)) is not None:
                yield batch
        finally:
            _close(source)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Row by row, as dicts."""
        async for row in self.tuples():
            yield dict(zip(self.columns, row, strict=True))

    async def tuples(self) -> AsyncIterator[tuple[Any, ...]]:
        """Row by row, as tuples."""
        async for batch in self.batches():
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield row

    async def to_arrow(self) -> pa.Table:
        return await self._run(self._sync.to_arrow)

    async def to_reader(self) -> pa.RecordBatchReader:
        """A fresh stream of record batches; it runs the query where it is pulled."""
        return await self._run(self._sync.to_reader)

    async def to_pylist(self) -> list[dict[str, Any]]:
        return await self._run(self._sync.to_pylist)

    async def first(self) -> dict[str, Any] | None:
        return await self._run(self._sync.first)

    def cancel(self) -> None:
        """Stop whoever reads it now: they get an error that says so."""
        self._sync.cancel()

    def __repr__(self) -> str:
        return f"AsyncResult({self.query!r})"


def _following(source: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next(source, None)


def _close(source: Any) -> None:
    # a thread that is still in it was told to stop, and ends it then
    with contextlib.suppress(ValueError):
        source.close()
