"""Erasure with tasks: each segment is looked through, and written anew where it holds such rows, by one.

It is the eraser of `topics.erase`: what it seals, in which order rewrites take effect, the receipts
and what is cleared away in the end are its own. Only the walks over segments go to the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten
from virta.pipelines.upkeep.pieces import SegmentPiece, all_segments
from virta.pipelines.upkeep.rewriting import plan, rewrite_all, rewriter
from virta.pipelines.upkeep.tasks import Run
from virta.storage.rewrite import Keep, rewritable
from virta.storage.segment import Segment
from virta.topics.erase import REASON, Eraser, Match, flags_kept, keep_but, matches
from virta.types import TopicConfig


class TaskEraser(Eraser):
    """Erases matching rows of one partition."""

    def __init__(
        self,
        partition: Partition,
        config: TopicConfig,
        schema: pa.Schema,
        match: Match,
        advance: Callable[[int], None],
        *,
        run: Run,
    ) -> None:
        super().__init__(partition, config, schema, match, advance)
        self._run = run

    def count(self) -> tuple[int, int]:
        schema, match = self._schema, self._match

        def count(piece: SegmentPiece) -> int:
            found = matches(piece.open(), piece.blocks, schema, match)
            return sum(int(mask.sum()) for _, _, mask in found)

        rows = list(self._run(count, all_segments(self._partition)))
        return sum(rows), sum(map(bool, rows))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Of the rows that match, the keys: more is not asked for."""
        schema, match, keys = self._schema, self._match, list(self._config.keys)

        def gather(piece: SegmentPiece) -> list[pa.RecordBatch]:
            found = matches(piece.open(), piece.blocks, schema, match)
            return [batch.select(keys).filter(pa.array(mask)) for _, batch, mask in found]

        for batches in self._run(gather, all_segments(self._partition)):
            yield from batches

    def _rewrite_all(self, end: int) -> Iterator[Rewritten]:
        segments = all_segments(self._partition)
        last = len(rewritable([segment.entry for segment in segments]))
        groups = [
            ([segment], None, flags_kept(segment.entry))
            for segment in segments[:last]
            if segment.entry.base < end
        ]
        write = rewriter(_choice(self._schema, self._match), compression=self._config.compression, join=False)
        yield from rewrite_all(
            self._partition, self._run, plan(self._partition, groups), write, REASON, self._advance
        )


def _choice(schema: pa.Schema, match: Match) -> Callable[[Any, Sequence[Segment]], Keep | None]:
    def choose(_: Any, segments: Sequence[Segment]) -> Keep | None:
        (segment,) = segments
        found = matches(segment, segment.entry.blocks, schema, match)
        masks = {index: mask for index, _, mask in found}
        return keep_but(masks) if masks else None

    return choose
