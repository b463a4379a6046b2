"""The chain of a partition as the pages draw it: segments and headers, without reading any rows.

Only where the log's files are: a console over a broker says so, and the broker's own console has them.
A chain of millions of blocks is drawn by groups, of which only the first header is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from virta.errors import NotFound, UnavailableError
from virta.memory.partition import Partition as StoredPartition
from virta.storage import chain
from virta.storage.chain import HEADER_SIZE

MOST_CELLS = 1200
CONTROL, REWRITTEN = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Some blocks that are drawn as one: their numbers, offsets and bytes."""

    first: int
    blocks: int
    base: int
    end: int
    bytes: int
    kind: int = 0


def stored_of(place: Any) -> Any:
    """What is stored of a partition, where it is stored here."""
    stored = place.stored
    if not isinstance(stored, StoredPartition):
        raise UnavailableError(
            "the chain is drawn where the log's files are",
            hint="open the console of the broker itself, or virta console on its machine",
        )
    stored.dump()  # what is only in memory stands in no chain file
    return stored


def segments_of(place: Any) -> list[dict[str, Any]]:
    """The segments, oldest first."""
    with stored_of(place).view() as view:
        return [_segment(view, index) for index in range(len(view.manifest.segments))]


def _segment(view: Any, index: int) -> dict[str, Any]:
    entry, blocks = view.manifest.segments[index], view.blocks_in(index)
    found = {
        "base": entry.base,
        "active": entry.is_active,
        "generation": entry.generation,
        "blocks": blocks,
        "schema_version": entry.schema_version,
        "end": entry.end,
        "rows": entry.rows,
        "bytes": entry.data_length,
        "oldest": entry.min_timestamp,
        "newest": entry.max_timestamp,
        "hash": entry.last_hash.hex(),
    }
    if entry.is_active:
        found |= {"end": view.next_offset, "rows": view.next_offset - entry.base, "bytes": 0}
        found |= {"oldest": 0, "newest": 0, "hash": entry.previous_hash.hex()}
        if blocks:
            segment = view.segment(index)
            first = chain.unpack_header(segment.read_chain(0, HEADER_SIZE))
            last = chain.unpack_header(segment.read_chain((blocks - 1) * HEADER_SIZE, HEADER_SIZE))
            found |= {"bytes": last.end_position, "newest": last.max_timestamp, "hash": last.hash.hex()}
            found |= {"oldest": first.min_timestamp}
    return found


def cells_of(place: Any, most: int = MOST_CELLS) -> tuple[list[Cell], int]:
    """The chain as at most so many cells (and one a segment more), and how many blocks there are."""
    with stored_of(place).view() as view:
        counts = [view.blocks_in(index) for index in range(len(view.manifest.segments))]
        total = sum(counts)
        size = max(1, -(-total // most))
        cells: list[Cell] = []
        before = 0
        for index, count in enumerate(counts):
            cells += _cells(view, index, count, size, before)
            before += count
    return cells, total


def _cells(view: Any, index: int, count: int, size: int, before: int) -> Iterator[Cell]:
    if not count:
        return
    segment = view.segment(index)
    last = chain.unpack_header(segment.read_chain((count - 1) * HEADER_SIZE, HEADER_SIZE))
    if size == 1:
        for at, header in enumerate(chain.unpack_headers(segment.read_chain(0, count * HEADER_SIZE))):
            kind = CONTROL if header.is_control else REWRITTEN if header.is_rewritten else 0
            yield Cell(
                first=before + at,
                blocks=1,
                base=header.base_offset,
                end=header.end_offset,
                bytes=header.length,
                kind=kind,
            )
        return
    heads = [
        chain.unpack_header(segment.read_chain(at * HEADER_SIZE, HEADER_SIZE)) for at in range(0, count, size)
    ]
    for at, head in enumerate(heads):
        is_last = at + 1 == len(heads)
        end = last.end_offset if is_last else heads[at + 1].base_offset
        position = last.end_position if is_last else heads[at + 1].position
        yield Cell(
            first=before + at * size,
            blocks=min(size, count - at * size),
            base=head.base_offset,
            end=end,
            bytes=position - head.position,
        )


def header_at(place: Any, number: int) -> tuple[chain.Header, bytes, bytes]:
    """The block with this number from the oldest kept: its header, the hash before it, its raw record."""
    with stored_of(place).view() as view:
        for index in range(len(view.manifest.segments)):
            count = view.blocks_in(index)
            if number < count:
                segment = view.segment(index)
                raw = bytes(segment.read_chain(number * HEADER_SIZE, HEADER_SIZE))
                return chain.unpack_header(raw), bytes(segment.hash_before(number)), raw
            number -= count
    raise NotFound("there is no block of this number")


def headers_from(place: Any, offset: int, most: int) -> tuple[bytes, bytes]:
    """The hash before the block that holds the offset, and the headers from it to the newest."""
    with stored_of(place).view() as view:
        before = b""
        pieces: list[bytes] = []
        for index in range(len(view.manifest.segments)):
            entry, count = view.manifest.segments[index], view.blocks_in(index)
            if not count or (not entry.is_active and entry.end <= offset):
                continue
            segment = view.segment(index)
            first = 0 if pieces else segment.headers(count).first_ending_after(offset)
            if first >= count:
                continue
            if not pieces:
                before = bytes(segment.hash_before(first))
            pieces.append(bytes(segment.read_chain(first * HEADER_SIZE, (count - first) * HEADER_SIZE)))
            if sum(map(len, pieces)) > most * HEADER_SIZE:
                raise UnavailableError(
                    f"more than {most:,} blocks follow this row, too many for a proof to hold",
                    hint="take the proof of a newer row, or note the head now and then",
                )
    if not pieces:
        raise NotFound(f"there is no row at offset {offset}")
    return before, b"".join(pieces)
