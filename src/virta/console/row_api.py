"""One row, whole: typed fields, the block it lies in, its neighbours, and its values in full."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console import payloads
from virta.console.access import READ, check
from virta.console.requests import answer, console_of, number_of, text_of
from virta.console.rows_of import LEADING, read_row
from virta.console.state import Console
from virta.console.values import VALUE_LIMIT, columns_of, encode_column, is_binary
from virta.errors import NotFound
from virta.metadata.schemas import DELETED

# A value that is shown whole: beyond it the browser would be busy with nothing else.
_SHOWN_BYTES = 4 * 1024 * 1024
_HEX_BYTES = 64 * 1024


def routes() -> list[Route]:
    return [Route("/api/row", row), Route("/api/value", value), Route("/api/raw", raw)]


async def row(request: Request) -> Response:
    """A row: every field with its type, cut to four kilobytes."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    place = number_of(request, "partition", 0), number_of(request, "offset")
    return answer(await console.hub.work(_row, console, name, *place))


def _row(console: Console, name: str, partition: int, offset: int) -> dict[str, Any]:
    topic, batch = read_row(console, name, partition, offset)
    place = topic.partition(partition)
    block = place.fetch(place.token(offset))
    keys = list(topic.config.keys)
    deleted = batch.schema.get_field_index(DELETED)
    return {
        "offset": offset,
        "timestamp": batch.column(1).cast(pa.int64())[0].as_py(),
        "keys": keys,
        "update": deleted >= 0,
        "deletes": deleted >= 0 and batch.column(deleted)[0].as_py(),
        "fields": [
            _field(batch.schema.field(at), batch.column(at), keys)
            for at in range(batch.num_columns)
            if batch.schema.names[at] not in LEADING
        ],
        "block": _block(block),
        "previous": offset - 1 if offset > place.start_offset else None,
        "next": offset + 1 if offset + 1 < place.next_offset else None,
    }


def _field(field: pa.Field, column: pa.Array, keys: list[str]) -> dict[str, Any]:
    shown = encode_column(column, VALUE_LIMIT)[0]
    data = bytes_of(column)
    found: dict[str, Any] = {
        **columns_of(pa.schema([field]))[0],
        "key": field.name in keys,
        "value": shown,
        "size": None if data is None else len(data),
        "shown": VALUE_LIMIT // 2 if isinstance(shown, dict) and "$hex" in shown else VALUE_LIMIT,
        "hex": isinstance(shown, dict) and "$hex" in shown,
    }
    if data:
        found["recognised"] = payloads.recognise(data, is_text=not is_binary(column.type))
    return found


def bytes_of(column: pa.Array) -> bytes | None:
    """The bytes of the only value of a text or binary column; None for all others."""
    value = column[0].as_py() if _has_bytes(column.type) else None
    return value.encode() if isinstance(value, str) else value


def _has_bytes(kind: pa.DataType) -> bool:
    return is_binary(kind) or bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _block(block: Any) -> dict[str, Any]:
    header = block.header
    return {
        "first": block.base_offset,
        "last": block.last_offset,
        "rows": block.rows,
        "bytes": header.length,
        "hash": block.hash,
        "previous": block.previous_hash,
        "producer": f"{header.producer:016x}" if header.producer else None,
        "sequence": header.sequence if header.producer else None,
        "epoch": header.epoch,
        "schema_version": header.schema_version,
    }


async def value(request: Request) -> Response:
    """One value in full; with form=hex its bytes."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    place = number_of(request, "partition", 0), number_of(request, "offset")
    column = await console.hub.work(_column, console, name, *place, text_of(request, "column"))
    if request.query_params.get("form") == "hex":
        data = bytes_of(column) or b""
        return answer({"hex": data[:_HEX_BYTES].hex(), "size": len(data)})
    return answer({"value": encode_column(column, _SHOWN_BYTES)[0]})


def _column(console: Console, name: str, partition: int, offset: int, column: str) -> pa.Array:
    _, batch = read_row(console, name, partition, offset)
    at = batch.schema.get_field_index(column)
    if at < 0:
        raise NotFound(f"topic {name!r} has no column {column!r}")
    return batch.column(at)


async def raw(request: Request) -> Response:
    """The bytes of a value, to keep."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    place = number_of(request, "partition", 0), number_of(request, "offset")
    column = await console.hub.work(_column, console, name, *place, text_of(request, "column"))
    return Response(
        bytes_of(column) or b"",
        media_type="application/octet-stream",
        headers={"content-disposition": "attachment"},
    )
