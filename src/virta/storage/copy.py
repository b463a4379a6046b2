"""Copying a partition into another directory, block by block, while writers go on.

A copy is an ordinary partition. Every block is checked as it is copied: its header
against the hash before it, its bytes against the digest. What is there already stays:

 1. a sealed segment that both manifests call by the same last hash is not looked at;
 2. of the active one, and of what an interrupted copy left, the blocks that verify and
    are those of the source are kept, and the copy goes on after them;
 3. a target that holds blocks the source does not have is no copy of it any more: it is
    refused, because going on would destroy them.

First come blocks, each before its header, then a sync of both files, then the state
record and, last, the manifest. So a copy that is cut short at any point opens as the one
before it, or with some newer rows at its end. Nobody else may write to the target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virta.errors import Corrupt, UsageError
from virta.storage import block, manifest, state
from virta.storage.chain import HEADER_SIZE
from virta.storage.files import (
    Files,
    read_file,
    read_fully,
    replace_file,
    sync_directory,
    sync_file,
    write_fully,
)
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import ACTIVE_END, Entry, Manifest
from virta.storage.replace import segment_files
from virta.storage.segment import Segment
from virta.storage.state import State

# Blocks read, checked and written together: large enough for the disk, small enough to hold.
_PIECE_BYTES = 8 * 1024 * 1024

OpenSegment = Callable[[Entry], Segment]
Advance = Callable[[int], None]  # told how many bytes were copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A partition as it stood at one moment."""

    manifest: Manifest
    active: Segment
    blocks: int
    next_offset: int
    head: bytes
    data_end: int
    state: State

    def blocks_in(self, entry: Entry) -> int:
        return self.blocks if entry.is_active else entry.blocks

    def end_of(self, entry: Entry) -> int:
        return self.data_end if entry.is_active else entry.data_length


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Blocks `start` to `stop` of one segment, which lie in its data file from `position` on."""

    entry: Entry
    start: int
    stop: int
    position: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be copied of a partition, and how many segments are there already."""

    pieces: tuple[Piece, ...]
    kept: int

    @property
    def blocks(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)


# -- planning -----------------------------------------------------------------------------------


def make_plan(files: Files, paths: PartitionPaths, source: Position, open_segment: OpenSegment) -> Plan:
    """What the target at `paths` lacks. Changes nothing."""
    known = _known(files, paths)
    if known is not None and known.active.base > source.manifest.active.base:
        raise _differs(paths)
    entries = {} if known is None else {(entry.base, entry.generation): entry for entry in known.segments}
    pieces = []
    kept = 0
    for entry in source.manifest.segments:
        there = entries.get((entry.base, entry.generation))
        if there is not None and _is_same(files, paths, entry, there):
            kept += 1
            continue
        piece = _piece(files, paths, source, entry, there, open_segment(entry))
        if piece.bytes:
            pieces.append(piece)
        else:
            kept += 1
    return Plan(pieces=tuple(pieces), kept=kept)


def _known(files: Files, paths: PartitionPaths) -> Manifest | None:
    try:
        return manifest.load(files, paths.manifest)
    except FileNotFoundError:
        return None


def _is_same(files: Files, paths: PartitionPaths, entry: Entry, there: Entry) -> bool:
    """Whether a sealed segment is in the target, as its manifest says; a missing file is copied again."""
    if there.is_active:
        return False
    if entry.is_active or entry.last_hash != there.last_hash:
        raise _differs(paths)
    key = entry.base, entry.generation
    lengths = ((paths.data(*key), there.data_length), (paths.chain(*key), there.blocks * HEADER_SIZE))
    for path, length in lengths:
        if files.identity(path) is None:
            return False
        descriptor = files.open(path)
        try:
            if files.size(descriptor) < length:
                return False
        finally:
            files.close(descriptor)
    return True


def _piece(
    files: Files,
    paths: PartitionPaths,
    source: Position,
    entry: Entry,
    there: Entry | None,
    segment: Segment,
) -> Piece:
    """The blocks of a segment that come after those that are there and verify."""
    stop = source.blocks_in(entry)
    known = _state_of(files, paths) if there is not None else State()
    start, head = _good_blocks(files, paths, entry, segment, known)
    is_other = start > stop or segment.hash_before(start) != head
    if is_other and there is not None:
        raise _differs(paths)
    if is_other:
        start = 0  # left by an interrupted copy, and never part of one
    position = segment.headers(stop).header(start - 1).end_position if start else 0
    return Piece(entry=entry, start=start, stop=stop, position=position, end=source.end_of(entry))


def _state_of(files: Files, paths: PartitionPaths) -> State:
    """The target's state record."""
    try:
        descriptor = files.open(paths.lock)
    except FileNotFoundError:
        return State()
    try:
        return state.parse(read_fully(files, descriptor, state.READ_SIZE, 0)) or State()
    finally:
        files.close(descriptor)


def _good_blocks(
    files: Files, paths: PartitionPaths, entry: Entry, source: Segment, known: State
) -> tuple[int, bytes]:
    """How many blocks of the target's segment are whole, and the hash of the last.

    Up to the watermark they were synced, and are believed; the rest is hashed.
    """
    try:
        opened = Segment(files, paths, entry._replace(end=ACTIVE_END), source.schema)
    except FileNotFoundError:
        return 0, entry.previous_hash
    with contextlib.closing(opened) as there:
        count = files.size(there.chain_descriptor) // HEADER_SIZE
        good, head = 0, entry.previous_hash
        if known.is_of(entry) and 0 < known.synced_blocks <= count:
            good, head = known.synced_blocks, known.synced_hash
            if there.hash_before(good) != head:
                good, head = 0, entry.previous_hash
        with contextlib.suppress(Corrupt):
            while good < count:
                blocks = there.read_blocks(good, count, max_bytes=_PIECE_BYTES)
                good += len(blocks)
                head = blocks[-1].header.hash
        return good, head


def _differs(paths: PartitionPaths) -> UsageError:
    return UsageError(
        f"{paths.root} holds rows that are not in the source: it was written to, or the source lost rows",
        hint="keep it, and copy to another place",
    )


# -- copying ------------------------------------------------------------------------------------


def copy_piece(
    files: Files, paths: PartitionPaths, piece: Piece, source: Segment, advance: Advance | None = None
) -> None:
    """Copy the blocks of one segment, checked, and sync them. What lies behind is cut off before."""
    key = piece.entry.base, piece.entry.generation
    with (
        _opened(files, paths.data(*key)) as data,
        _opened(files, paths.chain(*key)) as chain_file,
    ):
        files.truncate(chain_file, piece.start * HEADER_SIZE)
        files.truncate(data, piece.position)
        end = piece.position or _copy_schema(files, data, source)
        at = piece.start
        while at < piece.stop:
            blocks = source.read_blocks(at, piece.stop, max_bytes=_PIECE_BYTES)
            if blocks[0].header.position != end:
                raise _not_whole(source, blocks[0].header.position)
            written = b"".join(each.data for each in blocks)
            write_fully(files, data, written, end)
            write_fully(
                files, chain_file, b"".join(each.header.to_bytes() for each in blocks), at * HEADER_SIZE
            )
            end += len(written)
            at += len(blocks)
            if advance is not None:
                advance(len(written))
        if end != piece.end or not _ends_as_named(piece, source):
            raise _not_whole(source, end)
        sync_file(files, data)
        sync_file(files, chain_file)


@contextlib.contextmanager
def _opened(files: Files, path: Path) -> Iterator[int]:
    descriptor = files.open(path, write=True, create=True)
    try:
        yield descriptor
    finally:
        files.close(descriptor)


def _copy_schema(files: Files, descriptor: int, source: Segment) -> int:
    """The schema message at the front of a data file; how long it is."""
    expected = block.schema_message(source.schema)
    if bytes(source.read_data(0, len(expected))) != bytes(expected):
        raise Corrupt("the data file does not begin with its schema", file=str(source.data_path), position=0)
    write_fully(files, descriptor, expected, 0)
    return len(expected)


def _ends_as_named(piece: Piece, source: Segment) -> bool:
    return piece.entry.is_active or source.hash_before(piece.stop) == piece.entry.last_hash


def _not_whole(source: Segment, position: int) -> Corrupt:
    return Corrupt(
        "the blocks do not lie as the manifest and their headers say",
        file=str(source.data_path),
        position=position,
    )


def copy_statistics(files: Files, source: PartitionPaths, target: PartitionPaths, entry: Entry) -> None:
    """A sealed segment's statistics, where it has some: derived, so they are only bytes here."""
    key = entry.base, entry.generation
    with contextlib.suppress(FileNotFoundError):
        replace_file(files, target.stats(*key), read_file(files, source.stats(*key)))


# -- putting it in force ------------------------------------------------------------------------


def put_in_force(files: Files, paths: PartitionPaths, source: Position) -> None:
    """State record, then manifest; then what the source has let go of is unlinked."""
    sync_directory(files, paths.root)
    known = _known(files, paths)
    _write_state(files, paths, source)
    if known != source.manifest:
        manifest.save(files, paths.manifest, source.manifest)
    if known is None:
        sync_directory(files, paths.root)
        return
    kept = {path for entry in source.manifest.segments for path in segment_files(paths, entry)}
    for entry in known.segments:
        for path in segment_files(paths, entry):
            if path not in kept:
                files.unlink(path)


def _write_state(files: Files, paths: PartitionPaths, source: Position) -> None:
    entry = source.manifest.active
    files.close(files.open(paths.turnstile, write=True, create=True))
    descriptor = files.open(paths.lock, write=True, create=True)
    try:
        before = state.parse(read_fully(files, descriptor, state.READ_SIZE, 0)) or State()
        following = State(
            counter=before.counter,
            generation=source.manifest.generation,
            topic_version=source.state.topic_version,
            flags=source.state.flags & state.LOCKED,  # a failed sync is the source's own
            epoch=max(source.state.epoch, before.epoch),
            segment_generation=entry.generation,
            segment_base=entry.base,
            synced_offset=source.next_offset,
            synced_blocks=source.blocks,
            synced_length=source.data_end,
            synced_hash=source.head,
            boot_id=files.boot_id(),
        )
        state.write(files, descriptor, following)
        sync_file(files, descriptor)
    finally:
        files.close(descriptor)
