"""Diff: one topic at two moments, or the topic of two logs, held against each other by key."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import virta
from virta import requests as ranges
from virta.console.access import ALTER, READ, check
from virta.console.newest import newest_query
from virta.console.requests import answer, body_of, console_of
from virta.console.sql_api import rows_of_batch
from virta.console.state import Console
from virta.console.values import columns_of
from virta.errors import TooLarge, UsageError
from virta.topics.difference import Difference

SHOWN_ROWS = 500
# Both sides are held in memory while they are compared.
_MOST_ROWS = 5_000_000


def routes() -> list[Route]:
    return [Route("/api/diff", diff, methods=["POST"])]


async def diff(request: Request) -> Response:
    """Rows to insert, update and delete to come from the one side to the other: how many, and the first.

    `before` and `after` are places (an offset, a time; empty: now), `other` is another log's address.
    """
    console = console_of(request)
    body = await body_of(request)
    check(console.access, request, READ, str(body.get("topic")))
    second = str(body.get("other_topic") or "").strip()
    if str(body.get("other") or "").strip():
        check(console.access, request, ALTER, None)  # it opens whatever the server can reach
    elif second:
        check(console.access, request, READ, second)
    return answer(await console.hub.work(_diff, console, body))


def _diff(console: Console, body: dict[str, Any]) -> dict[str, Any]:
    name = str(body.get("topic"))
    other, second = str(body.get("other") or "").strip(), str(body.get("other_topic") or "").strip()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(virta.open(other, create=False)) if other else console.log
        old, new = console.log.topic(name), log.topic(second or name)
        keys = [each.strip() for each in str(body.get("keys") or "").split(",") if each.strip()]
        keys = keys or list(old.config.keys)
        if not keys:
            raise UsageError(f"topic {name!r} has no keys to go by", hint="name the columns to compare by")
        before = _table(console.log, old, keys, str(body.get("before") or ""), console.now_us())
        after = _table(log, new, keys, str(body.get("after") or ""), console.now_us())
        found = Difference((name, second or name), keys, lambda: (before, after))
        return {
            "keys": keys,
            "inserted": found.inserted,
            "updated": found.updated,
            "deleted": found.deleted,
            "rows": [before.num_rows, after.num_rows],
            **_shown(found.to_arrow()),
        }


def _table(log: Any, topic: Any, keys: list[str], place: str, now_us: int) -> pa.Table:
    """The newest row of each key as of a place."""
    if topic.stats().rows > _MOST_ROWS:
        raise TooLarge(
            f"topic {topic.name!r} has more than {_MOST_ROWS:,} rows, too many to compare here",
            hint="in Python: log.diff(…), or compare ranges with SQL",
        )
    return log.sql(newest_query(topic, _condition(topic, place.strip(), now_us), keys)).to_arrow()


def _condition(topic: Any, place: str, now_us: int) -> str:
    """As SQL: the rows that were there at a place."""
    if not place:
        return ""
    bound = ranges.parse_bound(place, now_us)
    if isinstance(bound, ranges.Moment):
        return f"_timestamp <= make_timestamptz({bound.us})"
    if isinstance(bound, ranges.End):
        return ""
    if len(topic.next_offsets) != 1:
        raise UsageError(
            "an offset is a matter of one partition", hint="give a time: -15m, or 2026-11-18T10:00Z"
        )
    part = topic.partition(0)
    match bound:
        case ranges.Offset(offset=offset):
            return f"_offset < {offset}"
        case ranges.FromEnd(rows=count):
            return f"_offset < {part.next_offset - count}"
        case ranges.HashBound(hex=digits):
            return f"_offset <= {part.find(digits).last_offset}"
    raise UsageError(f"{place!r} is no offset and no time")


def _shown(found: pa.Table) -> dict[str, Any]:
    head = found.slice(0, SHOWN_ROWS)
    columns = list(found.schema.field("before").type)
    return {
        "columns": columns_of(pa.schema(columns)),
        "changes": [
            [kind, old, new]
            for batch in head.to_batches()
            for kind, old, new in zip(
                batch.column(0).to_pylist(),
                _values(batch.column(1)),
                _values(batch.column(2)),
                strict=True,
            )
        ],
        "more": found.num_rows > SHOWN_ROWS,
    }


def _values(column: pa.StructArray) -> list[list[Any] | None]:
    """The rows of one side; None where it has none."""
    batch = pa.RecordBatch.from_arrays(column.flatten(), names=[each.name for each in column.type])
    there = column.is_valid().to_pylist()
    return [row if is_there else None for row, is_there in zip(rows_of_batch(batch), there, strict=True)]
