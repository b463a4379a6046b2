"""Topics and rows for the browser: what a topic is, windows of its rows, and places in it."""

from __future__ import annotations

import dataclasses
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta import requests as ranges
from virta.console.access import ALTER, DELETE, READ, WRITE, check
from virta.console.cells import has_cells
from virta.console.generating import templates_for
from virta.console.reading import WINDOW_ROWS, offset_at
from virta.console.requests import answer, console_of, number_of, text_of
from virta.console.rows_of import row_columns
from virta.console.state import Console
from virta.console.topic_changes import words_of
from virta.console.values import columns_of, dump, encode_rows
from virta.errors import UsageError


def routes() -> list[Route]:
    return [
        Route("/api/topics", topics),
        Route("/api/topic", topic),
        Route("/api/rows", rows),
        Route("/api/seek", seek),
    ]


async def topics(request: Request) -> Response:
    """The names of all topics one may read."""
    console = console_of(request)
    visitor = check(console.access, request, READ, None)
    names = await console.hub.work(console.log.topics)
    return answer({"topics": [name for name in names if console.access.allows(visitor, READ, name)]})


async def topic(request: Request) -> Response:
    """What a topic is and where it stands."""
    console, name = console_of(request), text_of(request, "topic")
    visitor = check(console.access, request, READ, name)
    found = await console.hub.work(describe, console, name)
    found["may"] = {
        right: console.access.allows(visitor, right, name) for right in (READ, WRITE, ALTER, DELETE)
    }
    return answer(found)


def describe(console: Console, name: str) -> dict[str, Any]:
    found = console.log.topic(name)
    config = dataclasses.asdict(found.config)
    stats = found.stats()
    return {
        "name": name,
        "id": found.id,
        "version": found.version,
        "kind": str(found.kind),
        "keys": list(config["keys"]),
        "config": {option: _plain(value) for option, value in config.items()},
        "columns": columns_of(found.schema),
        "row_columns": row_columns(found),
        "words": words_of(found.schema),
        "templates": templates_for(found.schema),
        "stats": {
            "rows": stats.rows,
            "bytes": stats.bytes,
            "blocks": stats.blocks,
            "segments": stats.segments,
        },
        "cells": has_cells(found),
        "partitions": [_where(found, number) for number in found.next_offsets],
    }


def _where(topic: Any, number: int) -> dict[str, Any]:
    place = topic.partition(number)
    return {
        "number": number,
        "start": place.start_offset,
        "next": place.next_offset,
        "durable": place.durable_offset,
        "head": place.head,
    }


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else list(value)


async def rows(request: Request) -> Response:
    """A window of rows, values cut."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    partition = number_of(request, "partition", 0)
    start = number_of(request, "start")
    stop = min(number_of(request, "stop"), start + WINDOW_ROWS)
    texts, where, version = await console.hub.work(_window, console, name, partition, start, stop)
    body = f'{{"rows":[{",".join(texts)}],"start":{where[0]},"next":{where[1]},"version":{version}}}'
    return Response(body, media_type="application/json")


def _window(
    console: Console, name: str, partition: int, start: int, stop: int
) -> tuple[list[str], tuple[int, int], int]:
    topic = console.log.topic(name)
    place = topic.partition(partition)
    table = console.hub.windows.read(topic, partition, start, stop)
    batches = [] if table is None else table.to_batches()
    texts = [dump(row) for batch in batches for row in encode_rows(batch)]
    return texts, (place.start_offset, place.next_offset), topic.version


async def seek(request: Request) -> Response:
    """What a position or a range means: 17, -100, -15m, 2026-11-18T10:00Z, #3f9c1a, 10:20, -1h:end."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    partition, text = number_of(request, "partition", 0), text_of(request, "at")
    return answer(await console.hub.work(find_range, console, name, partition, text))


def find_range(console: Console, name: str, partition: int, text: str) -> dict[str, Any]:
    """The offsets that a person means, held to the rows that are there; a point has no end."""
    topic = console.log.topic(name)
    place = topic.partition(partition)
    asked = ranges.parse_range(f"x@{text}", console.now_us())
    first, last = place.start_offset, place.next_offset

    def offset(bound: ranges.Bound | None, otherwise: int, *, is_end: bool) -> int:
        return int(max(first, min(_offset(topic, place, bound, otherwise, is_end=is_end), last)))

    start = offset(asked.start, first, is_end=False)
    if asked.is_point:
        return {"point": True, "start": min(start, max(first, last - 1)), "stop": None}
    stop = None if asked.end is None else offset(asked.end, last, is_end=True)
    return {"point": False, "start": start, "stop": stop}


def _offset(topic: Any, place: Any, bound: ranges.Bound | None, otherwise: int, *, is_end: bool) -> int:
    match bound:
        case ranges.Offset(offset=offset):
            return int(offset)
        case ranges.FromEnd(rows=count):
            return int(place.next_offset) - count
        case ranges.Moment(us=moment):
            return offset_at(topic, place.number, moment)
        case ranges.HashBound(hex=digits):
            block = place.find(digits)
            return int(block.last_offset + 1 if is_end else block.base_offset)
        case ranges.TokenBound(token=token):
            if token.partition != place.number:
                raise UsageError(f"the token is of partition {token.partition}")
            return int(token.offset)
        case ranges.End():
            return int(place.next_offset)
    return otherwise
