"""What a contender is to the workloads: a log in a directory of its own.

A store keeps what a log keeps: a rising offset, a time, the key and the value. It
takes rows in three forms, so that each form can be compared with its like:

* ready: a batch already in the contender's own best form (an Arrow batch, a list of
  parameters, a list of encoded pairs). Making it is not timed.
* objects: one Python dict per row. Everything from there on is timed.
* one: a single dict, committed on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

from bench.rows import Batch, Row

Level = Literal["os", "disk"]

# What a replay gives back: the names and types of DESIGN section 2.
REPLAY_SCHEMA = pa.schema(
    [
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


class Store(Protocol):
    """One contender's open log."""

    def ready(self, batches: Sequence[Batch], /) -> Sequence[Any]:
        """Batches in this contender's own best form, to be appended in this order."""
        ...

    def append_ready(self, batch: Any, /) -> None: ...

    def append_rows(self, rows: list[Row], /) -> None: ...

    def append_one(self, row: Row, /) -> None: ...

    def send_all(self, rows: Iterable[Row], /) -> None:
        """One call per row, and a commit whenever the contender's writer makes one."""
        ...

    def session(self) -> Store:
        """What one of several threads appends through; may be the store itself."""
        ...

    def count(self) -> int:
        """How many rows it holds, asked of the store and not of our own counter."""
        ...

    def to_arrow(self) -> pa.Table:
        """Everything, as Arrow columns."""
        ...

    def replay(self) -> tuple[int, int]:
        """Everything as Python objects, row by row: rows seen, and bytes of values seen."""
        ...

    def close(self) -> None: ...


Opener = Callable[[Path], Store]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A contender: its name in the tables, and how it is opened at each durability."""

    name: str
    levels: Mapping[Level, Opener]
