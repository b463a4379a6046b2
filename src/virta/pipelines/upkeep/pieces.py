"""What a worker needs to know of a segment to open it: a piece of work that travels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from virta.errors import NotFound
from virta.memory.partition import Partition
from virta.storage.files import OperatingSystemFiles
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry
from virta.storage.segment import Segment


class SegmentGone(Exception):
    """The segment was removed or rewritten since the work was planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPiece:
    """One segment, by its place. `blocks` of it are looked at: of the active one, those there were."""

    root: Path
    entry: Entry
    schema: pa.Schema
    blocks: int

    def paths(self) -> PartitionPaths:
        if not self.root.is_dir():
            raise NotFound(
                f"the log is not there on this worker: {self.root}",
                hint="Spark's workers read the log's own directory: mount it on all of them at this path",
            )
        return PartitionPaths(root=self.root)

    def open(self) -> Segment:
        paths = self.paths()
        try:
            return Segment(OperatingSystemFiles(), paths, self.entry, self.schema)
        except FileNotFoundError:
            raise SegmentGone from None


def all_segments(partition: Partition) -> list[SegmentPiece]:
    """Every segment of the partition, the active one last; rows that were only in memory included."""
    partition.dump()
    with partition.view() as view:
        return [
            SegmentPiece(
                root=partition.paths.root,
                entry=entry,
                schema=view.schema_of(entry.schema_version),
                blocks=view.blocks_in(index),
            )
            for index, entry in enumerate(view.manifest.segments)
        ]
