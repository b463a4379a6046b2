"""The tail buffer: a partition's newest blocks, so that readers near the end touch no file.

Blocks are immutable; only references come and go. `oldest` and `newest` move together,
in one step, under one short lock, at every insert and every eating. Blocks at `os` and
`disk` enter once their header is written; at `memory` they enter when stamped and are
held until they are on disk.
"""

from __future__ import annotations

import bisect
import threading

from virta.storage.segment import StoredBlock

# What a block costs beside its bytes: header, hashes and the objects that hold them.
_OVERHEAD_BYTES = 1024
# Eaten references are dropped from the list's front when so many have gathered.
_COMPACT_AT = 1024


class Budget:
    """Bounds the bytes of all tail buffers of a log; the buffer that grows eats first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._lock = threading.Lock()

    def change(self, delta: int) -> int:
        """Account for bytes gained or let go; how many are over the limit."""
        with self._lock:
            self.used_bytes += delta
            return self.used_bytes - self.limit_bytes


class TailBuffer:
    def __init__(self, limit_bytes: int, budget: Budget) -> None:
        self._limit_bytes = limit_bytes
        self._budget = budget
        self._lock = threading.Lock()
        self._blocks: list[StoredBlock] = []
        self._first = 0  # blocks before it are eaten
        self._bytes = 0
        self._undumped_from: int | None = None  # first offset that is not on disk yet
        self.end_offset = -1  # after the newest row; -1 when empty

    def offer(self, blocks: list[StoredBlock], *, on_disk: bool = True) -> None:
        """Take in newer blocks. If they do not follow what is here, only they remain."""
        with self._lock:
            held = self._blocks
            if self._first < len(held):
                newest = held[-1].header
                while (
                    blocks and blocks[0].previous != newest.hash and _is_before(blocks[0], newest.end_offset)
                ):
                    blocks = blocks[1:]
                if not blocks:
                    return
                if blocks[0].previous != newest.hash:
                    self._clear()
            self._blocks += blocks
            if not on_disk and self._undumped_from is None:
                self._undumped_from = blocks[0].header.base_offset
            added = sum(block.header.length + _OVERHEAD_BYTES for block in blocks)
            self._bytes += added
            self.end_offset = self._blocks[-1].header.end_offset
            over = max(self._budget.change(added), self._bytes - self._limit_bytes)
            if over > 0:
                self._eat(over)

    def _eat(self, over: int) -> None:
        """Let go of the oldest blocks, but never the newest, nor one that is not on disk."""
        freed = 0
        first = self._first
        last = len(self._blocks) - 1
        while freed < over and first < last:
            header = self._blocks[first].header
            if self._undumped_from is not None and header.end_offset >= self._undumped_from:
                break
            freed += header.length + _OVERHEAD_BYTES
            first += 1
        self._first = first
        self._bytes -= freed
        self._budget.change(-freed)
        if first >= _COMPACT_AT and first * 2 >= len(self._blocks):
            del self._blocks[:first]
            self._first = 0
        elif first > 0 and freed:
            for index in range(first - 1, -1, -1):
                if self._blocks[index] is _EATEN:
                    break
                self._blocks[index] = _EATEN

    def dumped(self) -> None:
        """All that is here is on disk now."""
        with self._lock:
            self._undumped_from = None
            over = max(self._budget.used_bytes - self._budget.limit_bytes, self._bytes - self._limit_bytes)
            if over > 0:
                self._eat(over)

    def read(self, offset: int, *, max_bytes: int) -> list[StoredBlock]:
        """Blocks from the one that holds the offset on; none when it is not here."""
        with self._lock:
            blocks = self._blocks
            first = self._first
            if first >= len(blocks) or offset >= self.end_offset:
                return []
            if offset < blocks[first].header.base_offset:
                return []
            at = bisect.bisect_right(blocks, offset, lo=first, key=_end_offset)
            found = []
            size = 0
            for index in range(at, len(blocks)):
                size += blocks[index].header.length
                if found and size > max_bytes:
                    break
                found.append(blocks[index])
            return found

    def bounds(self) -> tuple[int, int, int] | None:
        """Oldest offset, offset after the newest, and bytes held: of one moment."""
        with self._lock:
            if self._first >= len(self._blocks):
                return None
            return self._blocks[self._first].header.base_offset, self.end_offset, self._bytes

    def newest(self) -> StoredBlock | None:
        with self._lock:
            return self._blocks[-1] if self._first < len(self._blocks) else None

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._budget.change(-self._bytes)
        self._blocks = []
        self._first = 0
        self._bytes = 0
        self._undumped_from = None
        self.end_offset = -1


def _end_offset(block: StoredBlock) -> int:
    return block.header.end_offset


def _is_before(block: StoredBlock, end_offset: int) -> bool:
    return block.header.end_offset <= end_offset


class _Eaten(StoredBlock):
    """Stands where a block was, so that its bytes can go before the list is shortened."""

    __slots__ = ()

    def __init__(self) -> None:
        pass


_EATEN = _Eaten()
