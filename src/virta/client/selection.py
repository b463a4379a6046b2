"""Rows of a partition at a broker, not read yet.

All rows of a range come as blocks, as they lie on disk, and are checked and decoded here.
Where columns are chosen, rows filtered or their number limited, the broker does that and
sends what is left as Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from virta.client.partition import WINDOW_BYTES
from virta.client.rows import RowStream
from virta.client.wire import Lost
from virta.metadata.schemas import unify
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.topics.read import Selection

OFFSET = "_offset"


class RemoteSelection(Selection):
    """Some rows of partitions at a broker."""

    def _streamed(self, wanted: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        names = self._limits.columns
        if names is None or self._limits.schema_version is not None:  # the broker knows the newest names
            yield from super()._streamed(wanted)
            return
        left = self._limits.limit
        for each in wanted:
            schema = pa.schema([each.schema.field(name) for name in names], metadata=each.schema.metadata)
            for batch in self._asked(each, names, left):
                chosen = batch.select(list(names))
                same = chosen.schema.equals(schema, check_metadata=True)
                yield chosen if same else unify(chosen, schema)
                if left is not None:
                    left -= batch.num_rows
            if left == 0:
                return

    def _whole_batches(self, wanted: Any) -> Iterator[pa.RecordBatch]:
        limits = self._limits
        if limits.schema_version is not None or (limits.filter is None and limits.limit is None):
            yield from super()._whole_batches(wanted)
            return
        for batch in self._asked(wanted, None, self._limits.limit):
            same = batch.schema.equals(wanted.schema, check_metadata=True)
            yield batch if same else unify(batch, wanted.schema)

    def _asked(self, wanted: Any, names: Sequence[str] | None, left: int | None) -> Iterator[pa.RecordBatch]:
        """The broker's answer; over a lost connection it goes on behind the last row that came."""
        start = wanted.start
        while start < wanted.end and left != 0:
            header = self._header(wanted, start, names, left)
            try:
                for batch in RowStream(wanted.stored.wire, FrameType.SELECT, header):
                    start = batch.column(OFFSET)[-1].as_py() + 1
                    if left is not None:
                        left -= batch.num_rows
                    yield batch
                return
            except Lost:
                continue

    def _header(self, wanted: Any, start: int, names: Sequence[str] | None, left: int | None) -> Any:
        identity = wanted.stored.identity
        header = message("Select")(
            topic=identity.topic,
            partition=identity.number,
            topic_id=identity.topic_id,
            start=start,
            end=wanted.end,
            credit=WINDOW_BYTES,
        )
        if wanted.since_us is not None:
            header.since_us = wanted.since_us
        if wanted.until_us is not None:
            header.until_us = wanted.until_us
        if self._limits.filter is not None:
            header.filter = str(self._limits.filter)
        if names is not None:
            header.columns.extend(names if OFFSET in names else (*names, OFFSET))
        if left is not None:
            header.limit = left
        return header

    def _count_one(self, wanted: Any) -> int:
        if self._limits.filter is None and wanted.since_us is None and wanted.until_us is None:
            return int(wanted.stored.count(wanted.start, wanted.end))
        header = self._header(wanted, wanted.start, None, None)
        header.count = True
        return int(wanted.stored.wire.call(FrameType.SELECT, header)[1].rows)
