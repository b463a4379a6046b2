"""Room behind a data file's last block, made before it is needed, since making it grow is slow.

 - Rows that are written only: the file system is asked to set blocks aside. The file's
   length does not change; a write into such room costs a third less.
 - Small blocks that are synced one by one: zeros are written ahead. A sync of bytes in
   the middle of a file needs no change of its length, which would be synced with it.

So an active data file may end in zeros. They are no part of the log: the committed
length is what the chain names, Arrow readers take zeros for the stream's end, and a
block that was torn begins with other bytes. Room goes back when the segment is sealed
or the partition closed. Making room is a wish: where it fails, appends go on without.
"""

from __future__ import annotations

import contextlib

from virta.storage.files import Files, read_fully
from virta.storage.view import View

# Set aside: nothing for small files, then as much again as there is, at most this.
_FROM_BYTES = 1024 * 1024
_MOST_BYTES = 64 * 1024 * 1024
# Zeros: worth it for blocks up to this size, for some hundreds of them at a time.
_SMALL_BLOCK_BYTES = 16 * 1024
_ZEROS = bytes(256 * 1024)
# A block begins with ff ff ff ff and the length of its metadata.
_BEGINNING = bytes(8)
_PIECE_BYTES = 1024 * 1024
_ZERO_PIECE = bytes(_PIECE_BYTES)


class Room:
    """The room that one process has made in a partition's active data file."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.until = 0  # more is made when the data reaches this position
        self._synced_singly = False

    def expect_syncs(self) -> None:
        """From now on blocks are synced one by one."""
        if not self._synced_singly:
            self._synced_singly = True
            self.until = 0

    def make(self, view: View, last_block_bytes: int, segment_bytes: int) -> None:
        """Make room behind the data. The lock is held and nothing waits."""
        end = view.data_end
        if self._synced_singly and last_block_bytes <= _SMALL_BLOCK_BYTES:
            self.until = end + len(_ZEROS) - _SMALL_BLOCK_BYTES
            with contextlib.suppress(OSError):
                self._files.pwrite(view.active.data_descriptor, _ZEROS, end)
            return
        ahead = min(end, _MOST_BYTES, max(0, segment_bytes - end))
        self.until = end + max(ahead, _FROM_BYTES) // 2
        if end >= _FROM_BYTES and ahead:
            self._files.reserve(view.active.data_descriptor, end, ahead)

    def give_back(self, view: View) -> None:
        """Cut the data file to its committed length. The lock is held and the view is up to date."""
        descriptor = view.active.data_descriptor
        if self.until or self._files.size(descriptor) != view.data_end:
            self._files.truncate(descriptor, view.data_end)
        self.until = 0


def ends(files: Files, descriptor: int, end: int) -> bool:
    """Whether the data ends here: with the file, or with room behind it."""
    size = files.size(descriptor)
    return size == end or (size > end and not any(files.pread(descriptor, len(_BEGINNING), end)))


def bytes_behind(files: Files, descriptor: int, end: int) -> int:
    """How many bytes lie behind the data, room left out: what was begun and not finished."""
    at = files.size(descriptor)
    while at > end:
        start = max(end, at - _PIECE_BYTES)
        piece = read_fully(files, descriptor, at - start, start)
        if piece != _ZERO_PIECE[: len(piece)]:  # a comparison of bytes costs far less than stripping them
            return start + len(piece.rstrip(b"\0")) - end
        at = start
    return 0
