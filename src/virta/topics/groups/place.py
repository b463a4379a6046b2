"""Where a reader of a group stands in one partition: what it read ahead, handed out, and finished."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa

from virta.topics.block import Block
from virta.types import Token

if TYPE_CHECKING:
    from virta.topics.partition import Partition


class _Piece:
    """A stretch of a block's rows that was handed out."""

    __slots__ = ("batch", "block", "ends")

    def __init__(self, block: Block, batch: pa.RecordBatch, ends: bool) -> None:
        self.block = block
        self.batch = batch
        self.ends = ends  # with the block's last row

    def after(self, rows: int, partition: int) -> Token:
        """The token behind its first so many rows."""
        if rows == self.batch.num_rows and self.ends:
            return Token(
                partition=partition, offset=self.block.last_offset + 1, hash=bytes.fromhex(self.block.hash)
            )
        last = self.batch.column(0)[rows - 1].as_py()
        return Token(partition=partition, offset=last + 1, hash=bytes.fromhex(self.block.previous_hash))


class Place:
    """One partition in the hands of one reader."""

    def __init__(self, partition: Partition, epoch: int, token: Token, attempts: int = 0) -> None:
        self.partition = partition
        self.epoch = epoch
        self.committed = token
        self.done = token  # rows before it are finished
        self.token = token  # rows before it were handed out
        self._ahead: deque[Block] = deque()
        self._following = token  # behind what was read ahead
        self._pieces: list[_Piece] = []  # handed out last, not finished
        self.attempts = attempts  # how often the rows from `failing_at` on have failed
        self.failing_at = token.offset
        self.not_before = 0.0  # monotonic seconds: they rest until then
        self._alone_until = 0  # rows before this offset come one by one
        self.cuts: list[int] = []  # no batch reaches over these offsets

    @property
    def number(self) -> int:
        return self.partition.number

    def next(self, max_rows: int) -> pa.RecordBatch | None:
        """Up to so many rows, if there are any now."""
        if self.token.offset < self._alone_until:
            max_rows = 1
        while not self._ahead:
            blocks, following = self.partition.poll(self.token)
            if following == self.token:
                return None
            self._ahead.extend(blocks)
            self._following = following
            if not blocks:
                # control blocks only: there is nothing to finish before them
                if self.done == self.token:
                    self.done = following
                self.token = following
        return self._take(max_rows)

    def _take(self, max_rows: int) -> pa.RecordBatch:
        self._pieces = []
        left = max_rows
        while self._ahead and left:
            block = self._ahead[0]
            batch = _from(block, self.token.offset)
            most = left if not self.cuts else self._until_cut(batch, left)
            if not most and batch.num_rows:
                break
            piece = _Piece(block, batch.slice(0, most), ends=batch.num_rows <= most)
            left -= piece.batch.num_rows
            self._pieces.append(piece)
            self.token = (
                piece.after(piece.batch.num_rows, self.number) if piece.batch.num_rows else self.token
            )
            if piece.ends:
                self._ahead.popleft()
        if not self._ahead:
            self.token = self._following
        pieces = [piece.batch for piece in self._pieces]
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _until_cut(self, batch: pa.RecordBatch, most: int) -> int:
        """How many of these rows come before the next cut; a cut that was come to is over."""
        while self.cuts and self.cuts[0] <= self.token.offset:
            if self._pieces:
                return 0
            self.cuts.pop(0)
        if not self.cuts:
            return most
        return min(most, int(batch.column(0).to_numpy().searchsorted(self.cuts[0])))

    def finish(self, rows: int | None = None) -> None:
        """What was handed out last is done with: all of it, or its first so many rows."""
        if rows is None:
            self.done = self.token
            self._pieces = []
            return
        left = rows
        for piece in self._pieces:
            if left <= piece.batch.num_rows:
                if left:
                    self.done = piece.after(left, self.number)
                return
            left -= piece.batch.num_rows

    # -- rows that fail -----------------------------------------------------------------------

    @property
    def failing(self) -> tuple[int, int]:
        """Of what was handed out and is not finished: its first offset, and how many rows."""
        offsets = [piece.batch.column(0) for piece in self._pieces]
        left = [n.as_py() for column in offsets for n in column if n.as_py() >= self.done.offset]
        return left[0], len(left)

    def fail(self) -> int:
        """What was handed out and is not finished failed: it comes again. How often by now."""
        at = self.done.offset
        self.attempts = self.attempts + 1 if self.failing_at == at else 1
        self.failing_at = at
        self._go_back()
        return self.attempts

    def go_to(self, token: Token) -> None:
        """Rows before the token are finished; it is not committed yet."""
        self.done = token
        self._go_back()

    def _go_back(self) -> None:
        self.token = self._following = self.done
        self._ahead.clear()
        self._pieces = []

    def one_by_one(self) -> None:
        """Hand out what failed together row by row, to find out which of them it is."""
        self._alone_until = self._pieces[-1].batch.column(0)[-1].as_py() + 1

    def pass_over(self, rows: int) -> None:
        """The first of the rows that are not finished is done with otherwise."""
        self.finish(rows)
        self.attempts = 0
        self._go_back()

    @property
    def oldest_us(self) -> int | None:
        """When the next row to hand out was appended; None when there is none."""
        blocks = list(self._ahead) or self.partition.poll(self.token, max_bytes=1)[0]
        return blocks[0].header.min_timestamp if blocks else None


def _from(block: Block, offset: int) -> pa.RecordBatch:
    """The rows of a block from an offset on."""
    batch = block.to_arrow()
    if block.base_offset >= offset or not batch.num_rows:
        return batch
    return batch.slice(int(batch.column(0).to_numpy().searchsorted(offset)))
