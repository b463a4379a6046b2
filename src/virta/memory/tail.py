"""The tail buffer: a partition's newest blocks, so that readers near the end touch no file.

Blocks are immutable; only references come and go. `oldest` and `newest` move together,
in one step, under one short lock, at every insert and every eating. Blocks at `os` and
`disk` enter once their header is written; at `memory` they enter when stamped and are
held until they are on disk.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from itertools import islice

from virta.storage.segment import StoredBlock

# What a block costs beside its bytes: header, hashes and the objects that hold them.
_OVERHEAD_BYTES = 1024
# Buffers tell the log's budget of their growth in steps of this size, not for every block.
_BUDGET_STEP_BYTES = 256 * 1024
# Over a bound, so much more is let go of, so that the next blocks find room without looking again.
_EATEN_AHEAD_BYTES = 16 * 1024
# Readers this many rows from the end are served by walking back; others by bisection.
_NEAR_ROWS = 64


class Budget:
    """Bounds the bytes of all tail buffers of a log; the buffer that grows eats first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._lock = threading.Lock()

    def change(self, delta: int) -> None:
        with self._lock:
            self.used_bytes += delta

    @property
    def over_bytes(self) -> int:
        return self.used_bytes - self.limit_bytes


class TailBuffer:
    def __init__(self, limit_bytes: int, budget: Budget) -> None:
        self._limit_bytes = limit_bytes
        self._budget = budget
        self._lock = threading.Lock()
        self._blocks: deque[StoredBlock] = deque()
        self._bytes = 0
        self._told_bytes = 0  # what the budget knows of
        self._undumped_from: int | None = None  # first offset that is not on disk yet
        self.end_offset = -1  # after the newest row; -1 when empty

    def offer(self, blocks: list[StoredBlock], *, on_disk: bool = True) -> None:
        """Take in newer blocks. If they do not follow what is here, only they remain."""
        with self._lock:
            held = self._blocks
            if held:
                newest = held[-1].header
                blocks = _without_known(blocks, newest.hash, newest.end_offset)
                if not blocks:
                    return
                if blocks[0].previous != newest.hash:
                    self._clear()
            held.extend(blocks)
            if not on_disk and self._undumped_from is None:
                self._undumped_from = blocks[0].header.base_offset
            for block in blocks:
                self._bytes += block.header.length + _OVERHEAD_BYTES
            self.end_offset = blocks[-1].header.end_offset
            self._stay_within()

    def offer_one(self, block: StoredBlock) -> None:
        """As `offer`, for the one block that was just written."""
        held = self._blocks
        with self._lock:
            if held and held[-1].header.hash == block.previous:
                held.append(block)
                header = block.header
                self._bytes += header.length + _OVERHEAD_BYTES
                self.end_offset = header.base_offset + header.span
                if self._bytes > self._limit_bytes or self._bytes > self._told_bytes + _BUDGET_STEP_BYTES:
                    self._stay_within()
                return
        self.offer([block])

    def _stay_within(self) -> None:
        """Let go of the oldest blocks while over a bound, but never the newest, nor one not on disk."""
        if abs(self._bytes - self._told_bytes) >= _BUDGET_STEP_BYTES:
            self._tell()
        over = max(self._budget.over_bytes, self._bytes - self._limit_bytes)
        if over > 0:
            over += min(_EATEN_AHEAD_BYTES, self._limit_bytes // 16)
        held = self._blocks
        while over > 0 and len(held) > 1:
            header = held[0].header
            if self._undumped_from is not None and header.end_offset >= self._undumped_from:
                return
            held.popleft()
            size = header.length + _OVERHEAD_BYTES
            self._bytes -= size
            over -= size

    def _tell(self) -> None:
        self._budget.change(self._bytes - self._told_bytes)
        self._told_bytes = self._bytes

    def dumped(self) -> None:
        """All that is here is on disk now."""
        with self._lock:
            self._undumped_from = None
            self._stay_within()

    def read(self, offset: int, *, max_bytes: int) -> list[StoredBlock]:
        """Blocks from the one that holds the offset on; none when it is not here."""
        with self._lock:
            held = self._blocks
            if not held or offset >= self.end_offset or offset < held[0].header.base_offset:
                return []
            if self.end_offset - offset <= _NEAR_ROWS:
                at = len(held)
                for block in reversed(held):
                    if block.header.end_offset <= offset:
                        break
                    at -= 1
            else:
                at = bisect.bisect_right(held, offset, key=_end_offset)
            found: list[StoredBlock] = []
            size = 0
            for block in islice(held, at, None):
                size += block.header.length
                if found and size > max_bytes:
                    break
                found.append(block)
            return found

    def bounds(self) -> tuple[int, int, int] | None:
        """Oldest offset, offset after the newest, and bytes held: of one moment."""
        with self._lock:
            if not self._blocks:
                return None
            return self._blocks[0].header.base_offset, self.end_offset, self._bytes

    def newest(self) -> StoredBlock | None:
        with self._lock:
            return self._blocks[-1] if self._blocks else None

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def forget_before(self, offset: int) -> None:
        """Let go of the blocks before an offset, which are all on disk."""
        with self._lock:
            held = self._blocks
            while held and held[0].header.end_offset <= offset:
                if self._undumped_from is not None and held[0].header.end_offset > self._undumped_from:
                    return
                self._bytes -= held.popleft().header.length + _OVERHEAD_BYTES
            if not held:
                self._clear()

    def _clear(self) -> None:
        self._blocks.clear()
        self._bytes = 0
        self._tell()
        self._undumped_from = None
        self.end_offset = -1


def _end_offset(block: StoredBlock) -> int:
    return block.header.end_offset


def _without_known(blocks: list[StoredBlock], hash_: bytes, end_offset: int) -> list[StoredBlock]:
    """The blocks without those that stand before the newest one that is held."""
    for index, block in enumerate(blocks):
        if block.previous == hash_ or block.header.end_offset > end_offset:
            return blocks[index:]
    return []
