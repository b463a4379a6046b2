"""Appending staged rows to a topic so that each is there once, however often it is tried.

Each write has a producer's name. Its sequence counts the rows the write has put into a
partition; a commit record says at which one its rows begin. The name is claimed once, and
its epoch used by every commit after it: two that finish the same record at the same
time send the same rows under the same sequences, and the second finds them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from virta.errors import DamageError, NotFound
from virta.memory.partition import Partition
from virta.spark.logs import files_of
from virta.spark.staging import Record, Staging
from virta.storage.producers import producer_id
from virta.topics.append import Appender

# An append is one block: larger ones make fewer headers, and are what readers hold at once.
_BLOCK_ROWS = 64 * 1024


class Outlet:
    """One write's way into a topic."""

    def __init__(self, topic: Any, producer: str) -> None:
        self._topic = topic
        self._name = producer
        self._number = producer_id(producer)

    def sequence(self, partition: int) -> int:
        """How many rows this write has put into the partition."""
        stored = files_of(self._topic.partition(partition))
        if stored is None:
            with self._writer(partition) as writer:
                return int(writer.last_sequence) + 1
        return self._known(stored)[1]

    def _writer(self, partition: int) -> Any:
        """A broker's way in: whoever holds the name there fences who held it before."""
        return self._topic.writer(producer=self._name, partition=partition, linger=0)

    def _known(self, stored: Partition) -> tuple[int, int]:
        """Epoch and sequence; a name that is new is claimed."""
        with stored.writing() as committer:
            known = committer.producers.get(self._number)
            if known.epoch:
                return known.epoch, known.count
            _, epoch, count = committer.claim_producer(self._name)
            return epoch, count

    def is_done(self, record: Record) -> bool:
        return all(
            self.sequence(partition) >= record.sequence.get(partition, 0) + record.rows(partition)
            for partition in record.partitions
        )

    def finish(self, staging: Staging, batch: int, record: Record) -> None:
        """Append what the record names and is not there yet; durable when it returns."""
        for partition in record.partitions:
            try:
                self._append(staging, batch, record, partition)
            except NotFound:
                if not self.is_done(record):  # else another finished it and took the files away
                    raise
        for partition in record.partitions:
            self._topic.partition(partition).stored.sync()

    def _append(self, staging: Staging, batch: int, record: Record, partition: int) -> None:
        stored = files_of(self._topic.partition(partition))
        rows = self._rows(staging, batch, record, partition)
        if stored is None:
            with self._writer(partition) as writer:
                skip = self._done(staging, batch, record, partition, int(writer.last_sequence) + 1)
                for more in _after(skip, rows):
                    writer.send_batch(more)
            return
        epoch, sequence = self._known(stored)
        skip = self._done(staging, batch, record, partition, sequence)
        appender = Appender(stored, self._topic._schemas)
        for more in _after(skip, rows):
            form, parts = appender.convert(more)
            for part in parts:
                appender.append_batch(
                    form, part, producer=self._number, producer_epoch=epoch, sequence=sequence
                )
                sequence += part.num_rows

    def _done(self, staging: Staging, batch: int, record: Record, partition: int, there: int) -> int:
        """How many of the record's rows are there already."""
        start = record.sequence.get(partition, 0)
        if there < start:
            raise DamageError(
                f"the producer {self._name!r} was forgotten: it stands at {there}, and the commit "
                f"record of batch {batch} begins at {start}",
                topic=self._topic.name,
                partition=partition,
                file=str(staging.record_path(batch)),
                hint="look which of its rows are there, then remove the record to go on",
            )
        return there - start

    def _rows(self, staging: Staging, batch: int, record: Record, partition: int) -> Iterator[pa.RecordBatch]:
        for file in record.files:
            if file.partition == partition and file.rows:
                yield from staging.batches(batch, file)


def _after(skip: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows behind the first `skip`."""
    for batch in batches:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        yield batch.slice(skip)
        skip = 0
