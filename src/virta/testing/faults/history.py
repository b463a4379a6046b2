"""What clients asked and were told, and what must be true of a log after that."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import virta
from virta.types import Token


class Acknowledged(NamedTuple):
    """An append that was acknowledged: rows n, n + 1, … of a producer, from an offset on."""

    producer: str
    n: int
    rows: int
    partition: int
    offset: int  # -1: the acknowledgement came again, without the place


class Seen(NamedTuple):
    """A row that a consumer was given."""

    consumer: str
    partition: int
    offset: int
    producer: str
    n: int


class Held(NamedTuple):
    """Rows that a member of a group was given, under an epoch of its assignment."""

    member: str
    partition: int
    epoch: int
    first: int
    last: int


@dataclass(slots=True)
class History:
    """The notes of all clients. Each list is only appended to, each entry written by one client."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    tried: dict[str, int] = field(default_factory=dict)  # rows of a producer that may be there
    flushed: dict[str, int] = field(default_factory=dict)  # rows of a producer that must be there
    named: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    # where consumers stand, for their next life
    tokens: dict[str, Token] = field(default_factory=dict)
    places: dict[str, dict[int, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_of(self, producer: str) -> int:
        """Rows that were tried are not tried again by another life: nobody knows of them."""
        return self.tried.get(producer, 0)

    def group_covers(self, ends: Mapping[int, int]) -> bool:
        return not list(_left_out(self, ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The rows of a log: by partition and offset, producer and number."""

    rows: Mapping[tuple[int, int], tuple[str, int]]
    ends: Mapping[int, int]


def check(path: Path, history: History, *, group: bool = False) -> list[str]:
    """What is wrong with the directory, or with what clients were told; nothing of it may be."""
    with virta.open(path) as log:
        orders = log.topic("orders")
        complaints = [str(problem) for problem in orders.verify().problems]
        rows = {}
        for number in range(orders.config.partitions):
            chosen = orders.partition(number)[:].columns("_offset", "producer", "n").to_arrow()
            for offset, producer, n in zip(*(column.to_pylist() for column in chosen.columns), strict=True):
                rows[number, offset] = producer, n
        stored = Stored(rows=rows, ends=dict(orders.next_offsets))
    complaints += _offsets(stored)
    complaints += _acknowledged(stored, history)
    complaints += _once_and_in_order(stored, history)
    complaints += _seen(stored, history)
    complaints += _two_members(history)
    if group:
        complaints += _left_out(history, stored.ends)
    return complaints


def _offsets(stored: Stored) -> Iterator[str]:
    for number, end in stored.ends.items():
        there = [offset for partition, offset in stored.rows if partition == number]
        if there != list(range(end)):
            yield f"partition {number} does not hold the offsets 0 to {end}, each once"


def _acknowledged(stored: Stored, history: History) -> Iterator[str]:
    count = Counter(stored.rows.values())
    for each in list(history.acknowledged):
        for at in range(each.rows):
            row = each.producer, each.n + at
            if not count[row]:
                yield f"row {row[1]} of {row[0]} was acknowledged and is lost"
            elif each.offset >= 0 and stored.rows.get((each.partition, each.offset + at)) != row:
                yield f"row {row[1]} of {row[0]} was acknowledged at {each.offset + at} and is not there"
    for producer, rows in history.flushed.items():
        lost = [n for n in range(rows) if not count[producer, n]]
        # a writer whose flush failed begins its next life behind the rows it had tried
        if producer in history.named and lost:
            yield f"{producer} was told that {rows} rows are there, and {len(lost)} are lost: {lost[:5]}"


def _once_and_in_order(stored: Stored, history: History) -> Iterator[str]:
    for (producer, n), count in Counter(stored.rows.values()).items():
        if count > 1:
            yield f"row {n} of {producer} is there {count} times"
        if n >= history.tried.get(producer, 0):
            yield f"row {n} of {producer} is there and was never sent"
    newest: dict[tuple[int, str], int] = {}
    for (partition, offset), (producer, n) in sorted(stored.rows.items()):
        before = newest.get((partition, producer), -1)
        if n <= before:
            yield f"row {n} of {producer} stands at offset {offset}, behind row {before}"
        if producer in history.named and n != before + 1:
            yield f"rows {before + 1} to {n} of {producer} are left out at offset {offset}"
        newest[partition, producer] = n


def _seen(stored: Stored, history: History) -> Iterator[str]:
    following: dict[tuple[str, int], int] = {}
    for each in list(history.seen):
        place = each.consumer, each.partition
        expected = following.get(place, 0)
        if each.offset != expected:
            yield f"{each.consumer} was given offset {each.offset} of {each.partition} and not {expected}"
        following[place] = each.offset + 1
        if stored.rows.get((each.partition, each.offset)) != (each.producer, each.n):
            yield f"{each.consumer} was given row {each.n} of {each.producer}, which is not at {each.offset}"
    for (consumer, partition), end in following.items():
        if end != stored.ends[partition]:
            yield f"{consumer} ended at offset {end} of {partition}, which goes to {stored.ends[partition]}"


def _two_members(history: History) -> Iterator[str]:
    holders: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    for each in list(history.held):
        holders[each.partition, each.epoch].add(each.member)
    for (partition, epoch), members in holders.items():
        if len(members) > 1:
            yield f"partition {partition} was held by {sorted(members)} in epoch {epoch}"


def _left_out(history: History, ends: Mapping[int, int]) -> Iterator[str]:
    for partition, end in ends.items():
        at = 0
        given = [(held.first, held.last) for held in list(history.held) if held.partition == partition]
        for first, last in sorted(given):
            if first > at:
                break
            at = max(at, last + 1)
        if at < end:
            yield f"the group was never given offset {at} of {partition}"
