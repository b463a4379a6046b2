"""Rows that people type, paste or have made up, on their way into a topic."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console.access import WRITE, check
from virta.console.requests import answer, body_of, console_of, text_of
from virta.console.state import Console
from virta.console.values import CELL_LIMIT, columns_of, encode_column
from virta.errors import TooLarge, UsageError
from virta.exchange.input import Builder, Source
from virta.exchange.load import load

# Pasted rows go in at once, so that all are there or none.
_PASTED_ROWS = 100_000
PREVIEW_ROWS = 20
_FILE_BYTES = 64 * 1024**3


def routes() -> list[Route]:
    return [
        Route("/api/append", append, methods=["POST"]),
        Route("/api/delete", delete, methods=["POST"]),
        Route("/api/import", import_file, methods=["POST"]),
    ]


async def append(request: Request) -> Response:
    """Append rows: `rows` as JSON objects, or `text` with its `form`; with `dry_run` only read them."""
    console = console_of(request)
    body = await body_of(request)
    name = str(body.get("topic"))
    check(console.access, request, WRITE, name)
    return answer(await console.hub.work(_append, console, name, body))


def _append(console: Console, name: str, body: dict[str, Any]) -> dict[str, Any]:
    topic = console.log.topic(name)
    batch = rows_of(topic.schema, body)
    if body.get("dry_run"):
        return {"rows": batch.num_rows, "preview": preview(batch)}
    expected = body.get("if_next_offset")
    ack = topic.append(batch, **({} if expected is None else {"if_next_offset": int(expected)}))
    return acknowledged(ack, batch.num_rows)


def acknowledged(ack: Any, rows: int) -> dict[str, Any]:
    """What an append was told; over several partitions there is no single offset."""
    parts = getattr(ack, "parts", None)
    one = ack if not parts else parts[0] if len(parts) == 1 else None
    return {
        "rows": rows,
        "partition": None if one is None else one.partition,
        "first": None if one is None else one.first_offset,
        "last": None if one is None else one.last_offset,
        "durability": str(ack.durability),
    }


def rows_of(schema: pa.Schema, body: dict[str, Any]) -> pa.RecordBatch:
    """What was typed or pasted, as rows of the topic's columns."""
    if "rows" in body:
        rows = body["rows"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UsageError("rows are a list of objects")
        if not rows:
            raise UsageError("there are no rows")
        return Builder(schema, "form").from_rows(rows, range(1, len(rows) + 1), 0).rows
    text = str(body.get("text", ""))
    if not text.strip():
        raise UsageError("there are no rows in it")
    form = body.get("form")
    with tempfile.TemporaryDirectory(prefix="virta-console-") as folder:
        path = Path(folder) / "pasted"
        path.write_text(text, encoding="utf-8")
        return _joined(list(_pieces(path, form, schema)), schema)


def _pieces(path: Path, form: str | None, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    source = Source(str(path), form)
    source.name = "pasted"
    count = 0
    for chunk in source.chunks(schema, _PASTED_ROWS):
        count += chunk.rows.num_rows
        if count > _PASTED_ROWS:
            raise TooLarge(f"these are more than {_PASTED_ROWS:,} rows", hint="import them as a file")
        yield chunk.rows


def _joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not batches:
        raise UsageError("there are no rows in it")
    if len(batches) == 1:
        return batches[0]
    names = dict.fromkeys(name for batch in batches for name in batch.schema.names)
    whole = pa.schema([schema.field(name) for name in names])
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(tables, promote_options="default").cast(whole).combine_chunks().to_batches()[0]


def preview(batch: pa.RecordBatch) -> dict[str, Any]:
    """The first rows, as a table of the browser."""
    head = batch.slice(0, PREVIEW_ROWS)
    values = [encode_column(column, CELL_LIMIT) for column in head.columns]
    return {
        "columns": columns_of(batch.schema),
        "rows": [list(row) for row in zip(*values, strict=True)],
    }


async def delete(request: Request) -> Response:
    """Delete a key of an update topic: a tombstone."""
    console = console_of(request)
    body = await body_of(request)
    name = str(body.get("topic"))
    check(console.access, request, WRITE, name)
    return answer(await console.hub.work(_delete, console, name, body.get("key")))


def _delete(console: Console, name: str, key: Any) -> dict[str, Any]:
    topic = console.log.topic(name)
    if not isinstance(key, dict):
        raise UsageError("a key is an object of the key columns")
    keys = pa.schema([topic.schema.field(column) for column in topic.config.keys])
    batch = Builder(keys, "form").from_rows([key], [1], 0).rows
    return acknowledged(topic.delete(batch.to_pylist()[0]), 1)


async def import_file(request: Request) -> Response:
    """The posted bytes as a file: appended row by row exactly once, also when it is sent again."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, WRITE, name)
    file_name = Path(text_of(request, "name")).name or "file"
    form = request.query_params.get("form") or None
    with tempfile.TemporaryDirectory(prefix="virta-console-") as folder:
        path = Path(folder) / file_name
        size = 0
        with contextlib.closing(path.open("wb")) as file:
            async for piece in request.stream():
                size += len(piece)
                if size > _FILE_BYTES:
                    raise TooLarge("this file is too large for the console", hint="virta import takes any")
                await console.hub.work(file.write, piece)
        topic = await console.hub.work(console.log.topic, name)
        report = await console.hub.work(load, topic, [path], form=form)
    return answer({"rows": report.rows, "known": report.known, "bytes": size})
