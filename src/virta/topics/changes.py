"""What happened to a table: a stream of rows inserted, updated (before and after) and deleted.

The rows of an update topic say what is true from then on; what was true before is found in
the rows before them. A tombstone of a key that is not there changes nothing, and is left
out. Where the steward has taken away older rows of a key, the oldest that is left counts as
inserted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from virta.errors import UsageError
from virta.memory.partition import Partition as StoredPartition
from virta.memory.waiting import wait_for_any
from virta.metadata.schemas import user_schema
from virta.requests import parse_moment
from virta.topics.idle import Idle
from virta.topics.read import Moment, html_table
from virta.topics.schema import SchemaSource
from virta.topics.snapshot import Range
from virta.topics.table_state import TableState, change_schema
from virta.types import Token

ChangesFrom = int | Token | Mapping[int, int] | Moment

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row inserted, updated or deleted."""

    kind: str  # "insert", "update" or "delete"
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    # the row that did it; a difference between two tables has none
    partition: int | None = None
    offset: int | None = None
    timestamp: datetime | None = None


class Changes:
    """The changes of an update topic from a place on, not read yet."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[StoredPartition],
        schemas: SchemaSource,
        now_us: Callable[[], int],
        from_: ChangesFrom | None,
    ) -> None:
        self._name = name
        self._partitions = partitions
        self._schemas = schemas
        self._now_us = now_us
        self._from = from_

    # -- where it begins ------------------------------------------------------------------------

    def _start(self, stored: StoredPartition) -> Range:
        """All that came before the first change."""
        place = self._from
        if place is None:
            return Range(end=stored.start_offset)
        if isinstance(place, Token):
            stored.check_token(place)
            place = {place.partition: place.offset}
        if isinstance(place, int) and not isinstance(place, bool):
            if len(self._partitions) != 1:
                raise UsageError(
                    f"an offset is a matter of one partition, and topic {self._name!r} has "
                    f"{len(self._partitions)}",
                    hint="give one for each, as topic.next_offsets does, or a time",
                )
            place = {0: place if place >= 0 else max(0, stored.next_offset + place)}
        if isinstance(place, Mapping):
            number = stored.identity.number
            if number not in place:
                raise UsageError(f"changes() names no offset of partition {number}")
            return Range(end=place[number])
        return Range(until_us=parse_moment(place, self._now_us()))

    # -- reading ----------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """`_change`, `_partition`, `_offset`, `_timestamp`, and the row `before` and `after`."""
        self._partitions[-1].refresh()
        self._schemas.follow(self._partitions[-1].topic_version)
        return change_schema(user_schema(self._schemas.newest()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """What is there, as Arrow record batches."""
        for stored in self._partitions:
            for step in self._steps(stored):
                if isinstance(step, Idle):
                    break
                yield step

    def __iter__(self) -> Iterator[Change]:
        for batch in self.batches():
            yield from changes_of(batch)

    def to_arrow(self) -> pa.Table:
        batches = list(self.batches())
        return pa.Table.from_batches(batches, schema=batches[-1].schema if batches else self.schema)

    def to_pylist(self) -> list[Change]:
        return list(self)

    def tail(self, *, stop_when_idle: float | None = None) -> Iterator[Change]:
        """What is there, then what comes; ends after so many idle seconds, or never."""
        for batch in self.tail_batches(stop_when_idle=stop_when_idle):
            yield from changes_of(batch)

    def tail_batches(self, *, stop_when_idle: float | None = None) -> Iterator[pa.RecordBatch]:
        """As `tail`, by batches."""
        for step in self.batch_steps():
            if not isinstance(step, Idle):
                yield step
            elif not wait_for_any(step.places, stop_when_idle):
                return

    def steps(self) -> Iterator[Change | Idle]:
        """What `tail` reads, with the places where it waits."""
        for step in self.batch_steps():
            if isinstance(step, Idle):
                yield step
            else:
                yield from changes_of(step)

    def batch_steps(self) -> Iterator[pa.RecordBatch | Idle]:
        """What `tail_batches` reads, with the places where it waits."""
        turns = [self._steps(stored) for stored in self._partitions]
        while True:
            idle: list[Any] = []
            for turn in turns:
                for step in turn:
                    if isinstance(step, Idle):
                        idle += step.places
                        break
                    yield step
            yield Idle(places=tuple(idle))

    def _steps(self, stored: StoredPartition) -> Iterator[pa.RecordBatch | Idle]:
        start = self._start(stored)
        state = TableState(stored, self._schemas, start)
        while True:
            yield from state.advance()
            yield Idle(places=((stored, state.offset),))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        return f"Changes({self._name!r}{'' if self._from is None else f', from_={self._from}'})"

    def _repr_html_(self) -> str:
        return html_table(pa.Table.from_batches(list(itertools.islice(self.batches(), 1)), self.schema)[:20])


def changes_of(batch: pa.RecordBatch) -> Iterator[Change]:
    kinds, partitions, offsets, stamps = (
        batch.column(0).to_pylist(),
        batch.column(1).to_pylist(),
        batch.column(2).to_pylist(),
        batch.column(3).view(pa.int64()).to_pylist(),
    )
    before, after = (plain_rows(batch.column(at)) for at in (4, 5))
    for kind, partition, offset, stamp, old, new in zip(
        kinds, partitions, offsets, stamps, before, after, strict=True
    ):
        moment = _EPOCH + timedelta(microseconds=stamp)
        yield Change(kind=kind, partition=partition, offset=offset, timestamp=moment, before=old, after=new)


def plain_rows(column: pa.Array) -> list[dict[str, Any] | None]:
    try:
        found: list[dict[str, Any] | None] = column.to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, KeyError, ValueError):
        found = column.to_pylist()
    return found
