"""Keys: the row before and after with the same key, what a key has been, and the newest row of each.

A key becomes a filter (`"id" = 17 and "user" = 'ada'`), so everything that filters finds its rows,
and statistics of blocks rule out most of a large topic.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console.access import READ, check
from virta.console.newest import keys_of, newest_query
from virta.console.requests import answer, console_of, number_of, text_of
from virta.console.rows_of import read_row, row_columns, stamped
from virta.console.sql_api import rows_of_batch
from virta.console.state import Console
from virta.console.values import columns_of, encode_column
from virta.exchange.json_values import to_json
from virta.topics.filters import parse_filter

_FIRST_STRETCH, _MOST_STRETCH = 10_000, 4_000_000
# Somebody waits: what is not found by then can be looked for further on.
_LOOK_SECONDS = 3.0
LATEST_ROWS = 1000


def routes() -> list[Route]:
    return [Route("/api/key", key), Route("/api/near", near), Route("/api/latest", latest)]


def key_filter(batch: pa.RecordBatch, keys: list[str]) -> str:
    """The filter for rows with the key of this one row."""
    return " and ".join(_equal(name, batch.column(batch.schema.get_field_index(name))) for name in keys)


def _equal(name: str, column: pa.Array) -> str:
    said = '"' + name.replace('"', '""') + '"'
    value = column[0].as_py()
    if value is None:
        return f"{said} is null"
    kind = column.type
    if isinstance(value, bytes):
        return f"{said} = x'{value.hex()}'"
    if isinstance(value, bool):
        return f"{said} = {str(value).lower()}"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return f"{said} = {value}"
    text = value if isinstance(value, str) else str(to_json(column)[0])
    return f"{said} = '" + text.replace("'", "''") + "'"


async def key(request: Request) -> Response:
    """The key of a row: its values, and the filter that finds its rows."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    place = number_of(request, "partition", 0), number_of(request, "offset")
    return answer(await console.hub.work(_key, console, name, *place))


def _key(console: Console, name: str, partition: int, offset: int) -> dict[str, Any]:
    topic, batch = read_row(console, name, partition, offset)
    keys = keys_of(topic)
    values = {each: encode_column(batch.column(batch.schema.get_field_index(each)))[0] for each in keys}
    return {"key": values, "where": key_filter(batch, keys), "columns": row_columns(topic)}


async def near(request: Request) -> Response:
    """The next row of the same key, in one direction; or how far one looked in the time there was."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    place = number_of(request, "partition", 0), number_of(request, "offset")
    forward = text_of(request, "direction", "next") == "next"
    begin = request.query_params.get("from")
    return answer(
        await console.hub.work(_near, console, name, *place, forward, None if begin is None else int(begin))
    )


def _near(
    console: Console, name: str, partition: int, offset: int, forward: bool, begin: int | None
) -> dict[str, Any]:
    topic, batch = read_row(console, name, partition, offset)
    where = key_filter(batch, keys_of(topic))
    place = topic.partition(partition)
    start, end = place.start_offset, place.next_offset
    at = begin if begin is not None else offset + 1 if forward else offset
    stretch, until = _FIRST_STRETCH, time.monotonic() + _LOOK_SECONDS
    while start < at if not forward else at < end:
        low, high = (at, min(end, at + stretch)) if forward else (max(start, at - stretch), at)
        found = _first_match(place, where, low, high, forward=forward)
        if found is not None:
            return {"offset": found}
        at = high if forward else low
        if time.monotonic() > until:
            return {"offset": None, "at": at}
        stretch = min(2 * stretch, _MOST_STRETCH)
    return {"offset": None}


def _first_match(place: Any, where: str, low: int, high: int, *, forward: bool) -> int | None:
    last = None
    with contextlib.closing(place[low:high].where(where).batches()) as batches:
        for batch in batches:
            if batch.num_rows:
                last = int(batch.column(0)[0 if forward else batch.num_rows - 1].as_py())
                if forward:
                    return last
    return last


async def latest(request: Request) -> Response:
    """The newest row of each key: the table that a topic with keys is."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    where = request.query_params.get("where") or ""
    return answer(await console.hub.work(_latest, console, name, where))


def _latest(console: Console, name: str, where: str) -> dict[str, Any]:
    begun = time.monotonic()
    topic = console.log.topic(name)
    if where:
        parse_filter(where).check(stamped(topic))
    inner = newest_query(topic)
    found = console.log.sql(
        f"select *, count(*) over () as _keys from ({inner}) {f'where {where}' if where else ''} "
        f"order by _timestamp desc, _offset desc limit {LATEST_ROWS}"
    ).to_arrow()
    count = found.column("_keys")[0].as_py() if found.num_rows else 0
    shown = found.drop_columns(["_keys"])
    return {
        "columns": columns_of(shown.schema),
        "rows": [row for batch in shown.to_batches() for row in rows_of_batch(batch)],
        "count": count,
        "seconds": time.monotonic() - begun,
    }
