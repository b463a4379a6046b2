"""A range of rows, once more: into another topic, filtered, changed by SQL, at the speed it came or faster.

The rows that go in are fixed when it begins. At a speed they keep the distances they had, divided by it;
they get new offsets and new times, as all rows do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from starlette.websockets import WebSocket

from virta.console.access import ALTER, READ, WRITE, check
from virta.console.download import Selected
from virta.console.live import Messages
from virta.console.rows_of import LEADING
from virta.console.state import Console
from virta.console.writing import PREVIEW_ROWS, preview
from virta.errors import NotFound, UsageError
from virta.metadata.schemas import DELETED
from virta.query.names import ALL_ROWS
from virta.types import Kind

_STEP_SECONDS = 0.05
_BATCH_ROWS = 10_000


async def replay(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """Replay, and say how far it is; with `dry_run` only how many rows and what the first ones are."""
    source, target = str(request.get("topic")), str(request.get("target", "")).strip()
    check(console.access, socket, READ, source)
    work = console.hub.work
    plan = await work(_Plan, console, request)
    if request.get("dry_run"):
        yield await work(plan.look)
        return
    if not target:
        raise UsageError("name the topic that the rows go into")
    check(console.access, socket, WRITE, target)
    topic = await _target(console, socket, target, plan, create=bool(request.get("create")))
    begun, done = time.monotonic(), 0
    first_us: int | None = None
    batches = plan.batches()
    while (batch := await work(next, batches, None)) is not None:
        for piece in _paced(batch, plan.speed):
            moment = _moment(piece)
            if plan.speed and moment is not None:
                first_us = moment if first_us is None else first_us
                due = begun + (moment - first_us) / 1e6 / plan.speed
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await work(_put, topic, piece)
            done += piece.num_rows
            yield {"done": done, "total": plan.total, "seconds": time.monotonic() - begun}
    yield {"done": done, "total": plan.total, "seconds": time.monotonic() - begun, "finished": True}


def _put(topic: Any, batch: pa.RecordBatch) -> None:
    """Append the rows; those that delete a key delete it there, too, where that can be done."""
    for rows, deletes in _runs(batch):
        if not deletes:
            topic.append(_without_stamps(rows))
        elif topic.kind == Kind.UPDATE:
            topic.delete(rows.select(list(topic.config.keys)).to_pylist())


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The batch in pieces that all delete, or all do not, in their order."""
    at = batch.schema.get_field_index(DELETED)
    if at < 0:
        yield batch, False
        return
    marks, first = batch.column(at).to_pylist(), 0
    for row in range(1, len(marks) + 1):
        if row == len(marks) or marks[row] != marks[first]:
            yield batch.slice(first, row - first), bool(marks[first])
            first = row


async def _target(console: Console, socket: WebSocket, name: str, plan: _Plan, *, create: bool) -> Any:
    work = console.hub.work
    try:
        return await work(console.log.topic, name)
    except NotFound:
        if not create:
            raise
    check(console.access, socket, ALTER, name)
    columns = await work(plan.columns)
    return await work(console.log.create_topic, name, columns)


class _Plan:
    """What is to be replayed, fixed."""

    def __init__(self, console: Console, request: Mapping[str, Any]) -> None:
        self._console = console
        self._name = str(request.get("topic"))
        self._partition = int(request.get("partition") or 0)
        self._where = str(request.get("where") or "").strip()
        self._sql = str(request.get("sql") or "").strip().rstrip(";")
        self.speed = float(request.get("speed") or 0)
        if self.speed < 0:
            raise UsageError("a speed is not negative")
        self._rows = Selected(console, self._name, self._partition, str(request.get("at") or ""), self._where)
        self.total: int | None = self._rows.stop - self._rows.start if not self._where else None

    def columns(self) -> pa.Schema:
        """The columns that come out."""
        schema = self._result().schema if self._sql else self._rows.schema
        return pa.schema([field for field in schema if field.name not in LEADING])

    def batches(self) -> Iterator[pa.RecordBatch]:
        found = self._result().batches() if self._sql else self._rows.batches()
        for batch in found:
            for first in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(first, _BATCH_ROWS)

    def _result(self) -> Any:
        """The query over `rows`: the range, and nothing else, under that name."""
        name = self._name.replace('"', '""')
        bounds = f"_offset >= {self._rows.start} and _offset < {self._rows.stop}"
        wanted = f"{bounds} and ({self._where})" if self._where else bounds
        every = ALL_ROWS if self._rows.topic.kind == Kind.UPDATE else ""
        inner = f'with rows as (select * from "{name}{every}" where {wanted} order by _offset)'
        return self._console.log.sql(f"{inner} select * from ({self._sql})")

    def look(self) -> dict[str, Any]:
        """How many rows there are, and the first of them."""
        count, head = 0, []
        for batch in self.batches():
            if count < PREVIEW_ROWS:
                head.append(_without_stamps(batch))
            count += batch.num_rows
        shown = preview(pa.concat_batches(head)) if head else None
        return {"count": count, "preview": shown}


def _paced(batch: pa.RecordBatch, speed: float) -> Iterator[pa.RecordBatch]:
    """The batch in pieces that belong together in time; whole where nobody waits."""
    at = batch.schema.get_field_index("_timestamp")
    if not speed or at < 0:
        yield batch
        return
    stamps = batch.column(at).cast(pa.int64()).to_pylist()
    step, first = _STEP_SECONDS * 1e6 * speed, 0
    for row in range(1, len(stamps) + 1):
        if row == len(stamps) or (stamps[row] or 0) - (stamps[first] or 0) >= step:
            yield batch.slice(first, row - first)
            first = row


def _moment(batch: pa.RecordBatch) -> int | None:
    at = batch.schema.get_field_index("_timestamp")
    return None if at < 0 else batch.column(at).cast(pa.int64())[0].as_py()


def _without_stamps(batch: pa.RecordBatch) -> pa.RecordBatch:
    kept = [name for name in batch.schema.names if name not in LEADING]
    return batch.select(kept)
