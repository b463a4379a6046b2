"""What a partition knows of named producers: epoch and how many rows each has sent.

Headers carry producer, epoch and the low 32 bits of the sequence of their first row.
A claim is a control block with the producer's fields: it raises the epoch and so
fences an older holder. A snapshot of all producers opens every segment, so the state
survives retention and is found by reading one segment.

Epoch 0 is for producers without a name: clients of a broker draw a number at random, so
that rows sent again after a lost connection are known. They are forgotten sooner.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from virta.errors import Fenced, UsageError
from virta.storage.chain import Header

_SEQUENCE_MASK = (1 << 32) - 1
EPOCH_LIMIT = (1 << 16) - 1
# A producer not heard of for so long is forgotten at the next sealing.
EXPIRY_US = 30 * 24 * 3600 * 1_000_000
# One without a name sends its rows again within minutes or never.
UNNAMED_EXPIRY_US = 3600 * 1_000_000
# Bounds the snapshot at some 400 KiB; beyond it the longest silent are forgotten first.
SNAPSHOT_LIMIT = 10_000


def producer_id(name: str) -> int:
    """The number a producer's name stands for in headers; never zero."""
    digest = blake3(b"virta producer\0" + name.encode("utf-8", "surrogatepass")).digest()
    return int(struct.unpack_from("<Q", digest)[0]) or 1


@dataclass(slots=True)
class Producer:
    epoch: int
    count: int  # rows sent; the next sequence
    seen_us: int


class Producers:
    def __init__(self) -> None:
        self._known: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, number: int) -> Producer:
        return self._known.get(number) or Producer(0, 0, 0)

    def follow(self, header: Header) -> None:
        """Take in a header of a claim or of rows."""
        if header.producer:
            self.record(
                header.producer,
                header.producer_epoch,
                header.sequence,
                header.rows,
                header.max_timestamp,
            )

    def record(self, number: int, epoch: int, sequence: int, rows: int, timestamp: int) -> None:
        old = self.get(number)
        start = old.count + ((sequence - old.count) & _SEQUENCE_MASK)
        self._known[number] = Producer(max(epoch, old.epoch), start + rows, timestamp)

    def snapshot(self, now_us: int) -> list[list[Any]]:
        alive: list[list[Any]] = [
            [f"{number:016x}", state.epoch, state.count, state.seen_us]
            for number, state in self._known.items()
            if now_us - state.seen_us < (EXPIRY_US if state.epoch else UNNAMED_EXPIRY_US)
        ]
        # those without a name never push out one that has a name
        alive.sort(key=lambda row: (row[1] == 0, -row[3]))
        return alive[:SNAPSHOT_LIMIT]

    def load(self, snapshot: Iterable[Iterable[Any]]) -> None:
        for number, epoch, count, seen in snapshot:
            self._known[int(number, 16)] = Producer(int(epoch), int(count), int(seen))


def judge(producer: Producer, *, epoch: int, sequence: int, rows: int) -> int:
    """How many of these rows are already there; raises for a fenced holder or a gap."""
    if epoch < producer.epoch:
        raise Fenced(
            "another writer took over this producer name",
            hint="only one writer at a time may use a name; open a new one to go on",
        )
    if sequence > producer.count:
        raise UsageError(
            f"the producer's next sequence is {producer.count}, but {sequence} was sent",
            hint="send the rows in order, without leaving any out",
        )
    return min(producer.count - sequence, rows)
