"""Verification, each sealed segment a task; the report is the one that `topic.verify` gives.

A walk over a sealed segment depends on its files and on where it begins: the offset, hash,
time and epoch that the history before it ends in. The manifest and the last header of each
chain file say that without a look at any data, so all segments can be walked at once. Then the
verification goes over the partition as ever, from genesis to the newest row, and takes what a
worker found where its walk began at the very place that history has led to. Where it does not,
or where the segment was rewritten meanwhile, it walks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from virta.errors import Corrupt, DamageError, NotFound
from virta.memory.partition import Partition
from virta.pipelines.upkeep.pieces import SegmentPiece, all_segments
from virta.pipelines.upkeep.tasks import Run
from virta.storage import chain
from virta.storage.chain import HEADER_SIZE
from virta.storage.files import Files, OperatingSystemFiles, read_fully
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry
from virta.storage.state import State
from virta.storage.verify import Walk, after, combine, parse_head, verify_partition
from virta.storage.verify_segment import Context, Found, Place, Progress, SegmentWalk, file_key
from virta.storage.view import Identity
from virta.topics.verify import Against, heads_by_partition
from virta.types import VerifyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkPiece:
    """A segment to walk, and where its walk begins."""

    segment: SegmentPiece
    identity: Identity
    start: Place
    wanted: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """What a walk found."""

    entry: Entry
    start: Place
    end: Place
    found: Found
    heads: frozenset[bytes]  # those of the wanted ones that are in it


def walk(piece: WalkPiece) -> Walked:
    """On a worker."""
    segment = piece.segment
    context = Context(
        OperatingSystemFiles(),
        segment.paths(),
        piece.identity,
        lambda _: segment.schema,
        set(piece.wanted),
        None,
    )
    walking = SegmentWalk(context, segment.entry, piece.start, State())
    walking.run()
    return Walked(
        entry=segment.entry,
        start=piece.start,
        end=walking.place,
        found=walking.found,
        heads=piece.wanted - context.wanted,
    )


def verify(
    partitions: Sequence[Partition],
    run: Run,
    *,
    against: Against = None,
    progress: Callable[[Progress], None] | None = None,
) -> VerifyReport:
    """Check every byte of a topic."""
    heads = heads_by_partition(against, len(partitions))
    pieces = [
        piece
        for number, partition in enumerate(partitions)
        for piece in _pieces(partition, frozenset(map(parse_head, heads.get(number, ()))))
    ]
    walked = list(_told(run(walk, pieces), pieces, progress))
    reports = []
    for number, partition in enumerate(partitions):
        own = {
            file_key(each.entry): each
            for piece, each in zip(pieces, walked, strict=True)
            if piece.segment.root == partition.paths.root
        }
        reports.append(
            verify_partition(
                partition.files,
                partition.paths,
                partition.identity,
                _schemas(partition),
                heads=heads.get(number, ()),
                walk=_Walks(own),
            )
        )
    return combine(reports)


def _pieces(partition: Partition, wanted: frozenset[bytes]) -> Iterator[WalkPiece]:
    """The sealed segments, each with the place that the one before it ends in."""
    place: Place | None = None
    for segment in _sealed(partition):
        entry = segment.entry
        place = place or Place(offset=entry.base, head=entry.previous_hash)
        yield WalkPiece(segment=segment, identity=partition.identity, start=place, wanted=wanted)
        epoch = _last_epoch(partition.files, partition.paths, entry)
        place = after(entry, replace(place, epoch=max(place.epoch, epoch)))


def _sealed(partition: Partition) -> list[SegmentPiece]:
    """None where a schema cannot be read: the walks that are taken here tell of that."""
    try:
        return all_segments(partition)[:-1]
    except (DamageError, NotFound, OSError):
        return []


def _last_epoch(files: Files, paths: PartitionPaths, entry: Entry) -> int:
    """Of the last block of a segment; 0 where its header cannot be read, which the walk will tell."""
    if not entry.blocks:
        return 0
    try:
        descriptor = files.open(paths.chain(*file_key(entry)))
    except OSError:
        return 0
    try:
        record = read_fully(files, descriptor, HEADER_SIZE, (entry.blocks - 1) * HEADER_SIZE)
        return chain.unpack_header(record).epoch if len(record) == HEADER_SIZE else 0
    except (OSError, Corrupt):
        return 0
    finally:
        files.close(descriptor)


def _schemas(partition: Partition) -> Callable[[int], pa.Schema]:
    with partition.view() as view:
        return view.schema_of


def _told(
    walked: Iterator[Walked], pieces: Sequence[WalkPiece], progress: Callable[[Progress], None] | None
) -> Iterator[Walked]:
    total = sum(piece.segment.entry.data_length for piece in pieces)
    blocks = size = 0
    for piece, each in zip(pieces, walked, strict=True):
        blocks, size = blocks + each.found.blocks, size + piece.segment.entry.data_length
        if progress is not None:
            number = piece.identity.number
            progress(Progress(partition=number, blocks=blocks, bytes=size, total_bytes=total))
        yield each


class _Walks:
    """Walks that were taken elsewhere, each handed out once; whoever looks again looks for himself."""

    def __init__(self, done: Mapping[tuple[int, int], Walked]) -> None:
        self._done = dict(done)

    def __call__(self, context: Context, entry: Entry, place: Place, known: State) -> Walk:
        done = self._done.pop(file_key(entry), None)
        if done is None or done.entry != entry or done.start != place:
            return SegmentWalk(context, entry, place, known)
        return _Done(context, done)


class _Done:
    """A walk that was taken elsewhere."""

    def __init__(self, context: Context, walked: Walked) -> None:
        self._context = context
        self._walked = walked
        self.found = walked.found
        self.place = walked.end

    def run(self) -> None:
        self._context.wanted -= self._walked.heads
        self._context.count(self.found.bytes)
