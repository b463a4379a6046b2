"""A partition on disk for tests: made, appended to, rolled, opened again and verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.storage import block, encode
from virta.storage.commit import Append, Committer
from virta.storage.create import create_partition
from virta.storage.files import Files, OperatingSystemFiles
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry
from virta.storage.segment import StoredBlock
from virta.storage.verify import verify_partition
from virta.storage.view import Identity, View
from virta.types import VerifyReport

USER = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("user", pa.string())])
IDENTITY = Identity(log_id=b"L" * 16, topic_id=b"T" * 16, topic="orders", number=0)


class SteppingClock:
    """Moves on by one second a look."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self.now = now_us

    def now_us(self) -> int:
        self.now += 1_000_000
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e6


def full_schema(user: pa.Schema = USER) -> pa.Schema:
    return pa.schema([*block.leading_fields(), *user])


class Stored:
    """One partition and one process's writing side of it."""

    def __init__(
        self,
        root: Path,
        *,
        files: Files | None = None,
        segment_bytes: int = 1 << 30,
        user: pa.Schema = USER,
    ) -> None:
        self.files: Files = files or OperatingSystemFiles()
        self.paths = PartitionPaths(root=root / "p0000")
        self.clock = SteppingClock()
        self.schemas = {1: full_schema(user)}
        self.segment_bytes = segment_bytes
        create_partition(self.files, self.paths, IDENTITY, self.schemas[1], self.clock)
        self.open()

    def open(self) -> None:
        self.view = self.new_view(write=True)
        self.committer = Committer(self.view, self.clock, segment_bytes=self.segment_bytes)

    def new_view(self, *, write: bool = False) -> View:
        return View(self.files, self.paths, IDENTITY, self.schemas.__getitem__, write=write)

    def close(self) -> None:
        self.committer.close()
        self.view.close()

    def reopen(self) -> None:
        """As another process would after this one ended."""
        self.close()
        self.open()

    def append(self, rows: int = 3, *, width: int = 8) -> StoredBlock:
        self.view.refresh()
        start = self.view.next_offset
        batch = pa.record_batch(
            [pa.array(range(start, start + rows)), pa.array([f"user {n:0{width}}" for n in range(rows)])],
            schema=USER,
        )
        append = Append(encode.prepare(batch), 1)
        self.committer.commit([append])
        if append.error is not None:
            raise append.error
        assert append.block is not None
        return append.block

    def sync(self) -> None:
        covered = self.committer.position()
        self.committer.sync_data(covered[0])
        self.committer.mark_synced(covered)

    def locked(self, act: Callable[[Committer], Any]) -> Any:
        self.committer.acquire()
        try:
            return act(self.committer)
        finally:
            self.committer.release()

    def roll(self) -> None:
        self.locked(lambda committer: committer.roll())

    def fill(self, segments: int = 3, blocks: int = 4) -> Stored:
        """So many segments of so many blocks; the last one is active."""
        for number in range(segments):
            if number:
                self.roll()
            for _ in range(blocks):
                self.append()
        self.sync()
        return self

    def verify(self, **options: Any) -> VerifyReport:
        return verify_partition(self.files, self.paths, IDENTITY, self.schemas.__getitem__, **options)

    def ids(self) -> list[int]:
        """All rows, read through a view of their own."""
        view = self.new_view()
        found: list[int] = []
        offset = view.start_offset
        while blocks := view.read(offset, max_bytes=1 << 20):
            for one in blocks:
                found += one.decode().column("id").to_pylist()
            offset = blocks[-1].header.end_offset
        view.close()
        return found

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self.view.manifest.segments

    def data(self, index: int) -> Path:
        entry = self.entries[index]
        return self.paths.data(entry.base, entry.generation)

    def chain(self, index: int) -> Path:
        entry = self.entries[index]
        return self.paths.chain(entry.base, entry.generation)


def flip(path: Path, at: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def cut(path: Path, length: int) -> None:
    """Shorten the file to the length, or by it when it is negative."""
    data = path.read_bytes()
    path.write_bytes(data[:length])
