"""Appending to a topic of several partitions: rows are told apart, then appended to each.

All rows are converted before the first is appended, so rows that do not fit leave nothing
behind. From there on it is atomic per partition only: when one partition cannot take its
rows, those before it have theirs, and the error says which.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from virta.errors import UsageError, VirtaError
from virta.topics.acks import SpreadAck
from virta.topics.append import Appender
from virta.topics.partitioner import split_by_key
from virta.types import Ack


class Spread:
    """Appends to all partitions of one topic."""

    def __init__(self, appender: Callable[[int], Appender], partitions: int) -> None:
        self._appender = appender
        self._partitions = partitions
        # processes begin at different partitions, so that many short ones do not all fill the first
        self._turns = itertools.count(os.getpid())

    @property
    def topic(self) -> str:
        return self._appender(0).topic

    def append(self, rows: Any, *, expected_offset: int | None = None) -> Ack:
        if expected_offset is not None:
            raise UsageError(
                f"if_next_offset is a matter of one partition, and the topic has {self._partitions}",
                hint="name one: append(rows, partition=n, if_next_offset=…)",
            )
        form, batches = self._appender(0).convert(rows)
        keys = form.record.config.keys
        if not batches:
            return self._appender(0).append([])
        if not keys:
            turn = next(self._turns) % self._partitions
            return self._appender(turn).append(pa.Table.from_batches(batches))
        parts: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            for number, part in split_by_key(batch, keys, self._partitions):
                parts.setdefault(number, []).append(part)
        return self._append_parts(parts)

    def _append_parts(self, parts: dict[int, list[pa.RecordBatch]]) -> Ack:
        acks: list[Ack] = []
        for number in sorted(parts):
            try:
                acks.append(self._appender(number).append(pa.Table.from_batches(parts[number])))
            except VirtaError as error:
                if acks:
                    done = ", ".join(f"{ack.rows} rows to partition {ack.partition}" for ack in acks)
                    error.add_note(f"appended before: {done}")
                raise
        return acks[0] if len(acks) == 1 else SpreadAck.of(acks)
