"""Rewriting segments of a partition that this process has open, while it is appended to and read.

Reading and writing take no lock; only the change itself does, for milliseconds. Whoever reads
the old files has them open and reads on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from virta.memory.partition import Partition
from virta.storage import manifest
from virta.storage.chain import HEADER_SIZE
from virta.storage.manifest import Entry
from virta.storage.rewrite import Amounts, Keep, Rewriter, SourcesChanged, Written, install
from virta.storage.segment import Segment
from virta.types import Compression, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What became of some neighbouring segments."""

    reason: str
    from_offset: int
    to_offset: int
    before: Amounts
    after: Amounts
    hash_before: bytes = b""
    hash_after: bytes = b""

    @property
    def rows_removed(self) -> int:
        return self.before.rows - self.after.rows

    @property
    def bytes_freed(self) -> int:
        return self.before.bytes - self.after.bytes


def event_of(partition: Partition, kind: str, done: Rewritten, *, topic_version: int) -> Event:
    """The row of `__events` that tells of a rewrite; its receipt is in the chain in any case."""
    return Event(
        kind=kind,
        topic=partition.identity.topic,
        topic_id=partition.identity.topic_id.hex(),
        version=topic_version,
        partition=partition.identity.number,
        from_offset=done.from_offset,
        to_offset=done.to_offset,
        hash_before=done.hash_before.hex(),
        hash_after=done.hash_after.hex(),
        details={
            "rows": done.rows_removed,
            "bytes": done.bytes_freed,
            "segments": done.before.segments,
            "blocks_before": done.before.blocks,
            "blocks": done.after.blocks,
        },
    )


def open_segments(partition: Partition, entries: Sequence[Entry]) -> list[Segment]:
    """These sealed segments, open; SourcesChanged when they are not in force any more."""
    with partition.view() as view:
        places = {entry: index for index, entry in enumerate(view.manifest.segments)}
        if any(entry not in places for entry in entries):
            raise SourcesChanged
        generation = view.manifest.generation
        found = view.settled(lambda: [view.segment(places[entry]) for entry in entries])
        if view.manifest.generation != generation:
            raise SourcesChanged
        return found


def rewrite(
    partition: Partition,
    sources: Sequence[Segment],
    keep: Keep,
    reason: str,
    *,
    compression: Compression,
    join: bool = True,
    flags: int = 0,
    advance: Callable[[int], None] = lambda _: None,
    details: Mapping[str, Any] | None = None,
) -> Rewritten:
    """Write these neighbouring segments anew and put the result in force."""
    rewriter = Rewriter(
        partition.files,
        partition.paths,
        sources,
        keep,
        compression=compression,
        join=join,
        flags=flags,
        advance=advance,
        is_outdated=outdated_but_for(set(seals(partition).values())),
    )
    return take(partition, rewriter.write(), reason, details)


def outdated_but_for(in_force: Container[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Which receipts nobody needs any more: of rewrites that are not in force; erasures are told for ever."""

    def is_outdated(event: Mapping[str, Any]) -> bool:
        return event.get("reason") != "erased" and event.get("seal") not in in_force

    return is_outdated


def take(
    partition: Partition, written: Written, reason: str, details: Mapping[str, Any] | None = None
) -> Rewritten:
    """Put in force what was written, here or by another process."""
    put_in_force(partition, written, reason, details or {})
    return Rewritten(
        reason=reason,
        from_offset=written.entry.base,
        to_offset=written.entry.end,
        before=written.before,
        after=written.after,
        hash_before=written.entry.previous_hash,
        hash_after=written.entry.last_hash,
    )


def put_in_force(partition: Partition, written: Written, reason: str, details: Mapping[str, Any]) -> None:
    try:
        with partition.writing() as committer:
            install(committer, written, reason, **details)
            # what went is gone for this process's readers too
            partition.tail.forget_before(committer.view.manifest.active.base)
    except BaseException:
        written.discard(partition.files)
        raise


def seals(partition: Partition) -> dict[Entry, str]:
    """What receipts call the rewritten segments that are in force."""
    found: dict[Entry, str] = {}
    with partition.view() as view:

        def look() -> None:
            found.clear()
            for index, entry in enumerate(view.manifest.segments):
                if entry.flags & manifest.REWRITTEN:
                    data = view.segment(index).read_chain(0, entry.blocks * HEADER_SIZE)
                    found[entry] = blake3(data).hexdigest()

        view.settled(look)
    return found
