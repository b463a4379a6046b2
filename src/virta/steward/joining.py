"""Which segments are worth being joined: pure decisions over what the manifest says.

Rows that were appended one at a time are blocks of their own, with a head of some 600 bytes
each. Segments of which most is heads are rewritten with large blocks. Segments that stayed
small (a schema changed, or every row was over age) become one with their neighbours. What was
joined once is left alone, unless it is small and has neighbours that are.
"""

from __future__ import annotations

from collections.abc import Sequence

from virta.storage import manifest
from virta.storage.manifest import Entry
from virta.storage.rewrite import JOINED_BYTES, are_neighbours, rewritable

# A block smaller than this costs a reader about as much as one of this size.
_SMALL_BLOCK_BYTES = 32 * 1024
# Fewer blocks than this are not worth a rewrite.
_LEAST_BLOCKS = 64
# A segment with less than this part of the configured size is small; so many of them become one.
_SMALL_SEGMENT_PART = 8
_LEAST_SEGMENTS = 8


def plan_joins(segments: Sequence[Entry], *, segment_bytes: int, force: bool = False) -> list[list[Entry]]:
    """Groups of neighbouring segments, each to become one; oldest first."""
    return [
        run
        for run in _runs(segments, segment_bytes)
        if _is_worth_it(run, segment_bytes) or (force and sum(entry.blocks for entry in run) > len(run) + 1)
    ]


def _runs(segments: Sequence[Entry], segment_bytes: int) -> list[list[Entry]]:
    """Neighbours that fit one segment, in runs of either what has small blocks or is small itself."""
    runs: list[list[Entry]] = []
    for entry in rewritable(segments):
        if not _has_small_blocks(entry) and not _is_small(entry, segment_bytes):
            runs.append([])
            continue
        run = runs[-1] if runs else []
        fits = sum(each.data_length for each in run) + entry.data_length <= segment_bytes
        if run and fits and are_neighbours(run[-1], entry):
            run.append(entry)
        else:
            runs.append([entry])
    return [run for run in runs if run]


def _has_small_blocks(entry: Entry) -> bool:
    is_joined = entry.flags & (manifest.JOINED | manifest.COMPACTED)
    return not is_joined and entry.data_length < entry.blocks * _SMALL_BLOCK_BYTES


def _is_small(entry: Entry, segment_bytes: int) -> bool:
    return entry.data_length * _SMALL_SEGMENT_PART < segment_bytes


def _is_worth_it(run: Sequence[Entry], segment_bytes: int) -> bool:
    small = [entry for entry in run if _has_small_blocks(entry)]
    blocks = sum(entry.blocks for entry in small)
    left = sum(entry.data_length for entry in small) // JOINED_BYTES + len(run)
    if blocks >= _LEAST_BLOCKS and blocks > 4 * left:
        return True
    return len([entry for entry in run if _is_small(entry, segment_bytes)]) >= _LEAST_SEGMENTS
