"""The live rows of an update topic, held still: what `table()` and queries read.

As `topics.snapshot`, but for each segment a mask says which rows are live. Blocks without
any are not read, nor are columns that nobody asked for.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa

from virta.metadata.schemas import DELETED, unify
from virta.topics.keys import Mask
from virta.topics.live import LiveRows, row_starts
from virta.topics.snapshot import ALL, Range, Run, TopicSnapshot, blocks_of, joined, reading

_LEADING = (0, 1)
# Batches are put together before they are filtered, until they are so many rows or so large: as much
# as stays in the processor's cache.
_GATHERED_ROWS = 8 * 1024
_WORTH_ROWS = 2048  # a batch of fewer rows costs whoever reads it more than putting it together
_GATHERED_BYTES = 16 * 1024 * 1024
# Threads that filter ahead, and how many pieces of a segment are done before any is asked to.
_THREADS = min(4, os.cpu_count() or 1)
_ALONE = 4


class TableSnapshot(TopicSnapshot):
    """All partitions of an update topic: the newest row of each key."""

    def __init__(self, name: str, parts: Sequence[LiveRows], stored_schema: pa.Schema) -> None:
        self.name = name
        self._live = list(parts)
        self._stored_schema = stored_schema
        kept = [field for field in stored_schema if field.name != DELETED]
        self.schema = pa.schema(kept, metadata=stored_schema.metadata)
        self._places = [stored_schema.get_field_index(field.name) for field in kept]

    @property
    def offsets(self) -> int:
        """How many rows there are."""
        return sum(part.count for part in self._live)

    def batches(self, columns: Sequence[int] | None = None, wanted: Range = ALL) -> Iterator[pa.RecordBatch]:
        """Columns by their place in the schema; all of them when none are named."""
        chosen = [self._places[at] for at in (range(len(self.schema)) if columns is None else columns)]
        for part in self._live:
            yield from joined(self._of_part(part, chosen, wanted))

    def _of_part(self, part: LiveRows, chosen: Sequence[int], wanted: Range) -> Iterator[pa.RecordBatch]:
        extra = [] if wanted.is_all else [at for at in _LEADING if at not in chosen]
        # a range is cut by the leading columns, so they come first then
        read = chosen if wanted.is_all else [*_LEADING, *(at for at in chosen if at not in _LEADING)]
        places = None if not extra and list(read) == list(chosen) else [read.index(at) for at in chosen]
        for runs, mask in part.segments:
            for batch in self._of_segment(part, runs, mask, read):
                yield _chosen(batch, wanted, places)
        at = 0
        for stored in part.snapshot.tail:
            if stored.header.rows:
                batch = unify(stored.decode(), self._stored_schema)
                live = part.in_memory[at : at + batch.num_rows]
                at += batch.num_rows
                yield _chosen(_living(batch, live).select(read), wanted, places)

    def _of_segment(
        self, part: LiveRows, runs: Sequence[Run], mask: Mask, read: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        starts = row_starts(runs)
        with reading(part.snapshot, runs[0].segment):
            for run in runs:
                for piece in _living_runs(run, starts, mask):
                    at = int(starts[piece.start])
                    batches = blocks_of(piece, self._stored_schema, read)
                    yield from in_order(_filters(batches, mask[at:]))


def _living_runs(run: Run, starts: np.ndarray, mask: Mask) -> Iterator[Run]:
    """The stretches of a run whose blocks have a live row."""
    if run.start >= run.stop:
        return
    edges = np.append(starts[run.start : run.stop], starts[run.stop] if run.stop < len(starts) else len(mask))
    counted = np.concatenate(([0], np.cumsum(mask[edges[0] : edges[-1]])))
    alive = np.diff(counted[edges - edges[0]]) > 0
    changes = np.flatnonzero(np.diff(np.concatenate(([False], alive, [False])).astype(np.int8)))
    for start, stop in changes.reshape(-1, 2).tolist():
        yield run.part(run.start + start, run.start + stop)


Work = Callable[[], pa.RecordBatch]


def _filters(batches: Iterator[pa.RecordBatch], mask: Mask) -> Iterator[Work]:
    """What gives the live rows of batches that follow each other, whose rows the mask begins with.

    Filtering costs by the call more than by the row, so small batches are put together first.
    """
    held: list[pa.RecordBatch] = []
    first = at = size = 0
    for batch in batches:
        rows = batch.num_rows
        is_whole = rows >= _WORTH_ROWS and bool(mask[at : at + rows].all())
        if held and (is_whole or rows >= _GATHERED_ROWS):
            yield partial(_living_together, held, mask[first:at])
            held, first, size = [], at, 0
        if is_whole:  # as compaction leaves them: handed on without a copy
            yield partial(_same, batch)
            first = at = at + rows
            continue
        held.append(batch)
        at += rows
        size += batch.nbytes
        if at - first >= _GATHERED_ROWS or size >= _GATHERED_BYTES:
            yield partial(_living_together, held, mask[first:at])
            held, first, size = [], at, 0
    if held:
        yield partial(_living_together, held, mask[first:at])


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _living_together(batches: Sequence[pa.RecordBatch], mask: Mask) -> pa.RecordBatch:
    return _living(batches[0] if len(batches) == 1 else pa.concat_batches(batches), mask)


def in_order(work: Iterator[Work]) -> Iterator[pa.RecordBatch]:
    """The results of pieces of work, in their order, a few of them done ahead by other threads.

    Arrow does not hold the interpreter while it computes. A read that is over soon has no threads.
    """
    for piece in itertools.islice(work, _ALONE):
        yield piece()
    first = next(work, None)
    if first is None:
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="virta-table") as pool:
        waiting = deque([pool.submit(first)])
        for piece in work:
            waiting.append(pool.submit(piece))
            if len(waiting) > 2 * _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _living(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    return batch if mask.all() else batch.filter(pa.array(mask))


def _chosen(batch: pa.RecordBatch, wanted: Range, places: Sequence[int] | None) -> pa.RecordBatch:
    if not wanted.is_all:
        batch = wanted.cut(batch)
    return batch if places is None else batch.select(list(places))
