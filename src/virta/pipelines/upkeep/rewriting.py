"""Segments written anew by tasks, put in force here, oldest first, one wave after the other.

A task writes its new files beside the partition, synced, as the steward does (`storage.rewrite`);
they count for nothing until they are in force. A task that ran twice leaves files behind, and so
does one whose worker died: they go at the end, or with the steward's next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten, outdated_but_for, seals, take
from virta.pipelines.upkeep.pieces import SegmentGone, SegmentPiece
from virta.pipelines.upkeep.tasks import Run
from virta.storage.files import OperatingSystemFiles
from virta.storage.rewrite import Keep, Rewriter, SourcesChanged, Written
from virta.storage.segment import Segment
from virta.types import Compression

# Which rows stay, once the segments are open; None: the segments have nothing to lose after all.
Choice = Callable[[Any, "Sequence[Segment]"], "Keep | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePiece:
    """Neighbouring segments that become one, and what a choice has to know of them."""

    segments: tuple[SegmentPiece, ...]
    known: Any
    flags: int
    in_force: frozenset[str]  # seals of the rewritten segments, as they will be when it is this one's turn


def plan(
    partition: Partition, groups: Sequence[tuple[Sequence[SegmentPiece], Any, int]]
) -> list[RewritePiece]:
    """The pieces for some groups, each with what it knows and its flags; oldest first."""
    in_force = seals(partition)
    pieces = []
    for segments, known, flags in groups:
        pieces.append(
            RewritePiece(
                segments=tuple(segments), known=known, flags=flags, in_force=frozenset(in_force.values())
            )
        )
        for segment in segments:
            in_force.pop(segment.entry, None)
    return pieces


def rewriter(choice: Choice, *, compression: Compression, join: bool) -> Callable[[RewritePiece], Any]:
    """What a worker does with a piece: new files, None where nothing goes, or that the segments are gone."""

    def write(piece: RewritePiece) -> Written | SegmentGone | None:
        try:
            segments = [segment.open() for segment in piece.segments]
            keep = choice(piece.known, segments)
            if keep is None:
                return None
            return Rewriter(
                OperatingSystemFiles(),
                piece.segments[0].paths(),
                segments,
                keep,
                compression=compression,
                join=join,
                flags=piece.flags,
                is_outdated=outdated_but_for(piece.in_force),
            ).write()
        except SegmentGone as gone:
            return gone

    return write


def rewrite_all(
    partition: Partition,
    run: Run,
    pieces: Sequence[RewritePiece],
    write: Callable[[RewritePiece], Any],
    reason: str,
    advance: Callable[[int], None],
) -> Iterator[Rewritten]:
    """Each rewrite is in force when it is told. SourcesChanged where somebody else was faster."""
    for piece, written in zip(pieces, run(write, pieces), strict=True):
        if isinstance(written, SegmentGone):
            raise SourcesChanged
        advance(sum(segment.entry.data_length for segment in piece.segments))
        if written is not None:
            yield take(partition, written, reason)
