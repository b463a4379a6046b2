"""Rows made up by a template or from a topic's columns: at once, or so many a second until stopped."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from starlette.websockets import WebSocket

from virta.console.access import WRITE, check
from virta.console.live import Messages
from virta.console.state import Console
from virta.console.writing import preview
from virta.errors import UsageError
from virta.exchange.input import Builder
from virta.exchange.templates import BUILT_IN, Maker, maker_of_schema, read_template

_BATCH_ROWS = 5_000
_TICKS_PER_SECOND = 10
# Whoever wants more uses `virta gen`, which is not slowed down by a browser that watches.
_MOST_RATE = 100_000.0


async def generate(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """Make rows up and append them; says how many after each batch."""
    name = str(request.get("topic"))
    check(console.access, socket, WRITE, name)
    work = console.hub.work
    topic = await work(console.log.topic, name)
    schema = await work(lambda: topic.schema)
    make = _maker(schema, request.get("template"))
    seed = request.get("seed")
    chance = random.Random(int(seed) if seed not in (None, "") else None)
    builder = Builder(schema, "template")
    if request.get("dry_run"):
        yield {"preview": preview(await work(_made, builder, make, chance, 0, 20))}
        return
    count, rate = _wanted(request)
    begun, done = time.monotonic(), 0
    while count is None or done < count:
        size = _BATCH_ROWS if rate is None else max(1, min(_BATCH_ROWS, int(rate / _TICKS_PER_SECOND)))
        size = size if count is None else min(size, count - done)
        batch = await work(_made, builder, make, chance, done, size)
        await work(topic.append, batch)
        done += size
        yield {"done": done, "count": count, "seconds": time.monotonic() - begun}
        if rate is not None:
            await asyncio.sleep(max(0.0, begun + done / rate - time.monotonic()))


def _maker(schema: pa.Schema, template: Any) -> Maker:
    text = str(template or "").strip()
    if not text:
        return maker_of_schema(schema)
    if text.startswith("@"):
        raise UsageError("the console reads no files as templates", hint="paste the template itself")
    return read_template(text)[0]


def _made(builder: Builder, make: Maker, chance: random.Random, first: int, size: int) -> pa.RecordBatch:
    rows = [make(chance, first + row) for row in range(size)]
    return builder.from_rows(rows, range(first + 1, first + size + 1), 0).rows


def _wanted(request: Mapping[str, Any]) -> tuple[int | None, float | None]:
    try:
        count = int(request["count"]) if request.get("count") not in (None, "") else None
        rate = float(request["rate"]) if request.get("rate") not in (None, "") else None
    except (TypeError, ValueError):
        raise UsageError("count and rate are numbers") from None
    if (count is not None and count < 0) or (rate is not None and not 0 < rate <= _MOST_RATE):
        raise UsageError(f"a rate is more than nothing and at most {_MOST_RATE:,.0f} rows a second")
    if count is None and rate is None:
        count = 100
    return count, rate


def templates_for(schema: pa.Schema) -> dict[str, str]:
    """The built-in templates whose columns the topic has, as JSON."""
    return {
        name: json.dumps(rows, indent=2)
        for name, (_, rows) in BUILT_IN.items()
        if set(rows) <= set(schema.names)
    }
