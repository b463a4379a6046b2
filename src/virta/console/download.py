"""Rows as a file to download, written while they are read: nothing is held but a batch."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from virta.console.access import READ, check
from virta.console.requests import console_of, number_of, text_of
from virta.console.rows_of import stamped
from virta.console.state import Console
from virta.console.topic_api import find_range
from virta.errors import UsageError
from virta.exchange.files import for_parquet, parquet_schema
from virta.exchange.json_values import json_columns
from virta.exchange.sinks import ArrowSink, Csv, JsonArray, JsonLines, TextSink, Tsv
from virta.topics.filters import parse_filter

FORMS = {
    "jsonl": "application/x-ndjson",
    "json": "application/json",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}
_TEXT: dict[str, type[TextSink]] = {"jsonl": JsonLines, "json": JsonArray, "csv": Csv, "tsv": Tsv}


def routes() -> list[Route]:
    return [Route("/api/export", export)]


async def export(request: Request) -> Response:
    """The rows of a range that match, whole."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    form = text_of(request, "form", "jsonl")
    if form not in FORMS:
        raise UsageError(f"rows are exported as {', '.join(FORMS)}")
    rows = await console.hub.work(
        Selected,
        console,
        name,
        number_of(request, "partition", 0),
        request.query_params.get("at") or "",
        request.query_params.get("where") or "",
    )
    return streamed(console, rows.schema, rows.batches, form, name)


class Selected:
    """The rows of one partition that a range and a filter mean, fixed to offsets."""

    def __init__(self, console: Console, name: str, partition: int, at: str, where: str) -> None:
        self.topic = console.log.topic(name)
        self._partition = partition
        self._where = where.strip()
        place = self.topic.partition(partition)
        self.start, self.stop = place.start_offset, place.next_offset
        if at.strip():
            found = find_range(console, name, partition, at.strip())
            self.start = found["start"]
            if found["stop"] is not None:
                self.stop = found["stop"]
            elif found["point"]:
                self.stop = min(self.stop, self.start + 1) if at.strip().isdigit() else self.stop
        self.schema = stamped(self.topic)
        if self._where:
            parse_filter(self._where).check(self.schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self.topic.partition(self._partition)[self.start : self.stop]
        yield from (rows.where(self._where) if self._where else rows).batches()


def streamed(
    console: Console,
    schema: pa.Schema,
    batches: Callable[[], Iterator[pa.RecordBatch]],
    form: str,
    name: str,
) -> Response:
    """A response that goes on as long as there are rows."""

    async def pieces() -> AsyncIterator[bytes]:
        source = _encoded(schema, batches(), form)
        try:
            while True:
                piece = await console.hub.work(next, source, None)
                if piece is None:
                    return
                if piece:
                    yield piece
        finally:
            await console.hub.work(source.close)

    file = quote(f"{name}.{form}", safe="")
    return StreamingResponse(
        pieces(),
        media_type=FORMS[form],
        headers={"content-disposition": f"attachment; filename*=utf-8''{file}"},
    )


def _encoded(schema: pa.Schema, batches: Iterator[pa.RecordBatch], form: str) -> Any:
    """The file, piece by piece."""
    file = io.BytesIO()

    def taken() -> bytes:
        piece = file.getvalue()
        file.seek(0)
        file.truncate()
        return piece

    if form in _TEXT:
        text = _TEXT[form](file, header=True)
        text.begin(schema.names)
        for batch in batches:
            text.write(json_columns(batch))
            yield taken()
        text.end()
    else:
        relaxed = parquet_schema(schema) if form == "parquet" else schema
        whole = ArrowSink(file, form)
        whole.begin(relaxed)
        for batch in batches:
            whole.write(for_parquet(batch, relaxed) if form == "parquet" else batch)
            yield taken()
        whole.end()
    yield taken()
