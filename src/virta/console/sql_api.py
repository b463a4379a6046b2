"""The SQL page: a query's rows as they come, its plan, and its result as a file.

Queries run over the WebSocket: leaving the page, or Stop, ends them. They only read; whoever may not
read a topic may not ask about it either.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.websockets import WebSocket

from virta.console.access import READ, Visitor, check
from virta.console.download import FORMS, streamed
from virta.console.live import Messages
from virta.console.newest import newest_query
from virta.console.requests import console_of, text_of
from virta.console.state import Console
from virta.console.values import CELL_LIMIT, columns_of, encode_column
from virta.errors import Denied, UsageError
from virta.query.names import mentioned
from virta.types import Kind

MOST_ROWS = 10_000
_MESSAGE_ROWS = 1_000


def routes() -> list[Route]:
    return [Route("/api/sql/export", export)]


def check_query(console: Console, visitor: Visitor, query: str) -> None:
    """Refuse a query about topics that may not be read."""
    names = console.log.topics()
    for name in mentioned(query, [*names, *_internal(query)]):
        if not console.access.allows(visitor, READ, name):
            raise Denied(f"topic {name!r} may not be read here")


def ask(console: Console, query: str, us: Any = None) -> Any:
    """The result of a query; with `us`, of all its topics as they stood at that moment."""
    if us in (None, ""):
        return console.log.sql(query)
    try:
        moment = int(us)
    except ValueError:
        raise UsageError("a moment is a number of microseconds since 1970") from None
    return console.log.sql(_as_of(console, query.strip().rstrip(";"), moment))


def _as_of(console: Console, query: str, moment_us: int) -> str:
    """The query over its topics' rows of then: each name stands for what it meant at the moment."""
    until = f"_timestamp <= make_timestamptz({moment_us})"
    then = []
    for name in mentioned(query, [*console.log.topics(), *_internal(query)]):
        topic, quoted = console.log.topic(name), '"' + name.replace('"', '""') + '"'
        inner = (
            newest_query(topic, until) if topic.kind == Kind.UPDATE else f"from main.{quoted} where {until}"
        )
        then.append(f"{quoted} as ({inner})")
    return f"with {', '.join(then)} select * from ({query})" if then else query


def _internal(query: str) -> list[str]:
    """Virta's own topics are not listed, but may be asked about."""
    folded = query.casefold()
    return [name for name in ("__events", "__offsets", "__transport") if name in folded]


async def sql(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """Run a query: its columns, its rows up to the limit, how long it took."""
    visitor = check(console.access, socket, READ, None)
    query = str(request.get("query", ""))
    limit = max(1, min(int(request.get("limit") or 1000), MOST_ROWS))
    begun = time.monotonic()
    work = console.hub.work
    await work(check_query, console, visitor, query)
    result = await work(ask, console, query, request.get("us"))
    batches = result.batches()
    sent, more = 0, False
    try:
        while (batch := await work(next, batches, None)) is not None:
            more = batch.num_rows > limit - sent
            for piece in _pieces(batch, limit - sent):
                yield {
                    "columns": columns_of(piece.schema),
                    "rows": await work(rows_of_batch, piece),
                    "seconds": time.monotonic() - begun,
                }
            sent += min(batch.num_rows, limit - sent)
            if more:
                break
        names = [{"name": name, "type": "", "number": False} for name in result.columns]
        yield {
            "columns": None if sent else names,
            "rows": [],
            "done": True,
            "more": more,
            "seconds": time.monotonic() - begun,
        }
    finally:
        result.cancel()
        with contextlib.suppress(ValueError):  # a step that was cancelled is still on its way out
            batches.close()


def _pieces(batch: pa.RecordBatch, left: int) -> Iterator[pa.RecordBatch]:
    batch = batch.slice(0, left)
    for first in range(0, batch.num_rows, _MESSAGE_ROWS):
        yield batch.slice(first, _MESSAGE_ROWS)


def rows_of_batch(batch: pa.RecordBatch) -> list[Any]:
    """Rows as the browser gets them."""
    values = [encode_column(plain_number(column), CELL_LIMIT) for column in batch.columns]
    return [list(row) for row in zip(*values, strict=True)]


def plain_number(column: pa.Array) -> pa.Array:
    """Sums of whole numbers are 128 bits wide, which would be text: as numbers, where they fit."""
    if column.type == pa.decimal128(38, 0):
        with contextlib.suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column


async def export(request: Request) -> Response:
    """The whole result as a file, streamed."""
    console = console_of(request)
    visitor = check(console.access, request, READ, None)
    query, form = text_of(request, "q"), text_of(request, "form", "csv")
    if form not in FORMS:
        raise UsageError(f"results are exported as {', '.join(FORMS)}")
    await console.hub.work(check_query, console, visitor, query)
    result = await console.hub.work(ask, console, query, request.query_params.get("us"))
    schema = await console.hub.work(lambda: result.schema)
    return streamed(console, schema, result.batches, form, "result")
