"""Where rows go. A sink takes batches by number, each exactly once.

`commit` of a batch that is there already changes nothing. A sink keeps the newest number it
has taken from a flow, and the source's position, in its own transaction record, so that
the two can never disagree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from virta.errors import UsageError

APPEND, UPSERT = "append", "upsert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The newest batch a sink has of a flow."""

    number: int
    position: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows that are to be taken under a number. `rows()` gives a fresh stream each time."""

    flow: str
    number: int
    position: Mapping[str, Any]
    schema: pa.Schema | None
    rows: Callable[[], Iterator[pa.RecordBatch]]
    count: int
    sink: Mapping[str, Any]

    def table(self) -> pa.Table:
        assert self.schema is not None
        return pa.Table.from_batches(self.rows(), schema=self.schema)

    def reader(self) -> pa.RecordBatchReader:
        assert self.schema is not None
        return pa.RecordBatchReader.from_batches(self.schema, self.rows())


class Sink(ABC):
    """One target of rows."""

    provenance = False  # whether it wants to know where rows were

    @abstractmethod
    def describe(self) -> str:
        """What it is, in a few words."""

    @abstractmethod
    def check(self, schema: pa.Schema | None, keys: tuple[str, ...]) -> None:
        """Refuse, before anything is read, what it could not take."""

    def prepare(self, schema: pa.Schema) -> None:  # noqa: B027 (tables are made by their first rows)
        """Make it, where it is to be there although no row comes."""

    @abstractmethod
    def committed(self, flow: str) -> Committed | None:
        """The newest batch it has of this flow; None where it has none, or cannot tell."""

    def holds(self, flow: str) -> int:  # noqa: ARG002 (tables tell by `committed`)
        """So many rows of the flow are there, in a sink that cannot tell of which batch."""
        return 0

    def begin(self, flow: str) -> Mapping[str, Any]:  # noqa: ARG002
        """What has to be remembered with a batch so that it can be taken again."""
        return {}

    @abstractmethod
    def commit(self, batch: Batch) -> None:
        """Take the batch, unless it is there."""

    def deletes(self) -> bool:
        """Whether it is a table, from which rows can be deleted by their key."""
        return False

    def head(self) -> Any:
        """What names all that is in it now."""
        return None

    def close(self) -> None:  # noqa: B027 (most have nothing to let go of)
        """Let go of what was opened."""


def check_mode(mode: str, keys: tuple[str, ...], what: str) -> None:
    if mode not in (APPEND, UPSERT):
        raise UsageError(f"a sink is written by {APPEND} or {UPSERT}, not by {mode!r}")
    if mode == UPSERT and not keys:
        raise UsageError(f"upsert into {what} needs keys", hint='name them: keys = ["id"]')


def newest_by_key(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The last row of each key, in the order the rows came."""
    numbered = table.select(list(keys)).append_column("", pa.array(range(table.num_rows), pa.int64()))
    newest = numbered.group_by(list(keys)).aggregate([("", "max")]).column("_max")
    return table.take(newest.combine_chunks().sort())
