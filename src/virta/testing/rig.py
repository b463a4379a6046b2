"""One partition without topics above it: what the fault campaigns write to and read back.

Row n carries n and a text made from n, so a row says of itself whether it is right and
where it belongs. `read_out` reads everything there is through the real reading code and
checks every block, link and offset on the way.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from virta.clock import Clock, SystemClock
from virta.errors import Corrupt
from virta.memory.dumper import Dumper
from virta.memory.partition import Partition
from virta.memory.tail import Budget
from virta.settings import Settings
from virta.storage import block, chain, encode
from virta.storage.commit import Append
from virta.storage.create import create_partition
from virta.storage.files import Files
from virta.storage.layout import PartitionPaths
from virta.storage.view import Identity
from virta.types import Durability

USER_SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string())])
SCHEMA = pa.schema([*block.leading_fields(), *USER_SCHEMA])
QUIET = Settings(sync_interval_seconds=3600.0)


def text_of(number: int) -> str:
    return f"row {number} " + "x" * (number * 7 % 50)


def batch_of(numbers: Iterable[int]) -> pa.RecordBatch:
    wanted = list(numbers)
    return pa.RecordBatch.from_pydict(
        {"n": wanted, "text": [text_of(number) for number in wanted]}, schema=USER_SCHEMA
    )


class NoBackground(Dumper):
    """Writes and syncs nothing by itself: what happens is what the campaign does."""

    def expect(self, partition: Partition) -> None:
        pass

    def hurry(self) -> None:
        pass


class Rig:
    """A partition in a directory, opened as one process would."""

    def __init__(
        self,
        root: Path,
        files: Files,
        *,
        segment_bytes: int = 1 << 30,
        clock: Clock | None = None,
        settings: Settings = QUIET,
        partition: int = 0,
    ) -> None:
        self.files = files
        self.paths = PartitionPaths(root=root)
        self.identity = Identity(
            log_id=b"l" * 16, topic_id=struct.pack("<16s", b"topic"), topic="t", number=partition
        )
        self.segment_bytes = segment_bytes
        self.clock = clock or SystemClock()
        self.settings = settings
        self._partition: Partition | None = None

    def create(self) -> Rig:
        create_partition(self.files, self.paths, self.identity, SCHEMA, self.clock)
        return self

    @property
    def partition(self) -> Partition:
        if self._partition is None:
            self._partition = Partition(
                self.files,
                self.paths,
                self.identity,
                lambda _: SCHEMA,
                clock=self.clock,
                settings=self.settings,
                budget=Budget(1 << 30),
                dumper=NoBackground(self.settings.dump_interval_ms),
                segment_bytes=self.segment_bytes,
            )
        return self._partition

    def append(
        self,
        numbers: Iterable[int],
        durability: Durability = Durability.OS,
        *,
        producer: tuple[int, int, int] | None = None,
        expected_offset: int | None = None,
    ) -> Append:
        """Append rows with these numbers as one block. `producer`: id, epoch, sequence."""
        identity, epoch, sequence = producer or (0, 0, 0)
        append = Append(
            encode.prepare(batch_of(numbers)),
            1,
            producer=identity,
            producer_epoch=epoch,
            sequence=sequence,
            expected_offset=expected_offset,
        )
        self.partition.append([append], durability)
        return append

    def claim(self, name: str) -> tuple[int, int, int]:
        with self.partition.writing() as committer:
            return committer.claim_producer(name)

    def read_out(self, *, max_bytes: int = 4096) -> ReadOut:
        return read_out(self.partition, max_bytes=max_bytes)

    def close(self) -> None:
        if self._partition is not None:
            found, self._partition = self._partition, None
            found.close()

    def abandon(self) -> None:
        """Let go of every file as a killed process would: nothing is written or synced."""
        if self._partition is not None:
            found, self._partition = self._partition, None
            found._let_go("abandoned")


@dataclass(frozen=True, slots=True)
class ReadOut:
    """Everything a reader saw."""

    start: int
    numbers: tuple[int, ...]
    timestamps: tuple[int, ...]
    head: bytes


def stored_blocks(partition: Partition, *, max_bytes: int = 4096) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Base offset and rows of every block, in order; each checked against its header."""
    offset = partition.start_offset
    while True:
        blocks = partition.read(offset, max_bytes=max_bytes)
        moved = offset
        for stored in blocks:
            stored.check()
            moved = stored.header.end_offset
            if stored.header.rows:
                yield stored.header.base_offset, stored.decode()
        if moved == offset:
            return
        offset = moved


def read_out(partition: Partition, *, max_bytes: int = 4096) -> ReadOut:
    """Read all rows and check what they say of themselves. Corrupt when something does not fit."""
    start = offset = partition.start_offset
    least = partition.next_offset  # more may come meanwhile
    numbers: list[int] = []
    timestamps: list[int] = []
    for base, batch in stored_blocks(partition, max_bytes=max_bytes):
        if base != offset:
            raise Corrupt(f"after offset {offset} comes a block with base offset {base}")
        batch.validate(full=True)
        if batch["_offset"].to_pylist() != list(range(base, base + batch.num_rows)):
            raise Corrupt("the column _offset is not what the header says", offset=base)
        these = batch["n"].to_pylist()
        if batch["text"].to_pylist() != [text_of(number) for number in these]:
            raise Corrupt("a row's text is not what its number says", offset=base)
        numbers += these
        timestamps += batch["_timestamp"].cast(pa.int64()).to_pylist()
        offset += batch.num_rows
    if timestamps != sorted(timestamps):
        raise Corrupt("timestamps go back")
    if offset < least:
        raise Corrupt(f"rows end at {offset}, but the next offset was {least}")
    return ReadOut(start, tuple(numbers), tuple(timestamps), partition.head)


def check_chain(partition: Partition) -> int:
    """Follow every link of every segment from the first hash on; how many blocks there are."""
    count = 0
    with partition.view() as view:
        previous = view.manifest.segments[0].previous_hash
        if view.manifest.segments[0].base == 0 and previous != view.identity.genesis():
            raise Corrupt("the first hash is not the genesis")
        for index, entry in enumerate(view.manifest.segments):
            segment, blocks = view.segment(index), view.blocks_in(index)
            position = len(block.schema_message(segment.schema))
            offset = entry.base
            for at in range(blocks):
                stored = segment.read_blocks(at, at + 1, max_bytes=1)[0]
                chain.check_follows(stored.header, next_offset=offset, position=position)
                if stored.previous != previous:
                    raise Corrupt("a block does not follow from the one before")
                offset, position = stored.header.end_offset, stored.header.end_position
                previous = stored.header.hash
                count += 1
            if not entry.is_active and (entry.end != offset or entry.last_hash != previous):
                raise Corrupt("a sealed segment does not end where the manifest says")
        if previous != view.head:
            raise Corrupt("the head is not the last block's hash")
    return count
