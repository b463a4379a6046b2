"""Cells on a plane: any update topic whose keys are the whole numbers x and y, as it is and as it changes.

Made for a Game of Life; a heat map or a board of any kind is the same. What a cell shows is the
topic's first other column: a truth, or a number. A cell that was deleted shows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from starlette.websockets import WebSocket

from virta.console.access import READ, check
from virta.console.live import Messages
from virta.console.state import Console
from virta.errors import TooLarge, UsageError
from virta.metadata.schemas import DELETED
from virta.types import Kind

# As often as a tail is looked at by half: a plane is drawn whole.
_LOOK_SECONDS = 0.1
MOST_CELLS = 250_000
# Of more changes than that the whole plane is told again.
_MOST_CHANGES = 20_000


def has_cells(topic: Any) -> bool:
    """Whether a topic can be drawn so."""
    schema = topic.schema
    return (
        topic.kind == Kind.UPDATE
        and sorted(topic.config.keys) == ["x", "y"]
        and all(pa.types.is_integer(schema.field(name).type) for name in ("x", "y"))
    )


def _shown_column(schema: pa.Schema) -> str | None:
    names = [each.name for each in schema if each.name not in ("x", "y")]
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return str(name)
    return None


async def cells(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """All cells that show something, then those that change."""
    name = str(request.get("topic"))
    check(console.access, socket, READ, name)
    work = console.hub.work
    plane = await work(_Plane, console, name)
    while True:
        message = await work(plane.look)
        if message is not None:
            yield message
        await asyncio.sleep(_LOOK_SECONDS)


class _Plane:
    """One topic's cells, for one who looks."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._next: dict[int, int] | None = None

    def look(self) -> dict[str, Any] | None:
        """What is to be told; None when nothing changed. Runs in a thread."""
        topic = self._console.log.topic(self._name)
        if not has_cells(topic):
            raise UsageError(
                f"topic {self._name!r} has no cells",
                hint="an update topic has them whose keys are x and y, both int",
            )
        ends = dict(topic.next_offsets)
        seen = self._next
        if seen == ends:
            return None
        self._next = ends
        if seen is None or sum(ends.values()) - sum(seen.values()) > _MOST_CHANGES:
            return self._whole(topic)
        changes: list[list[Any]] = []
        for number, end in ends.items():
            table = self._console.hub.windows.read(topic, number, seen.get(number, 0), end)
            if table is not None:
                changes += _triples(table, _shown_column(topic.schema))
        return {"cells": changes, "rows": sum(ends.values())}

    def _whole(self, topic: Any) -> dict[str, Any]:
        table = topic.table().limit(MOST_CELLS + 1).to_arrow()
        if table.num_rows > MOST_CELLS:
            raise TooLarge(f"there are more than {MOST_CELLS:,} cells, too many to draw")
        found = _triples(table, _shown_column(topic.schema))
        return {"all": True, "cells": found, "rows": sum(topic.next_offsets.values())}


def _triples(table: pa.Table, shown: str | None) -> list[list[Any]]:
    """`[x, y, what it shows]`; 0 is nothing."""
    size = table.num_rows
    value = pa.chunked_array([pa.array([1] * size)]) if shown is None else table.column(shown)
    if pa.types.is_boolean(value.type):
        value = value.cast(pa.int8())
    value = pc.fill_null(value, 0)
    if DELETED in table.column_names:
        value = pc.if_else(table.column(DELETED), pa.scalar(0, value.type), value)
    columns = [table.column("x").to_pylist(), table.column("y").to_pylist(), value.to_pylist()]
    return [list(row) for row in zip(*columns, strict=True)]
