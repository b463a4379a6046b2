"""The changes of an update topic at a broker, which knows what was true before each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from virta.client.partition import WINDOW_BYTES
from virta.client.rows import RowStream
from virta.client.wire import Lost
from virta.metadata.schemas import OFFSET
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.topics.changes import Changes
from virta.topics.idle import Idle
from virta.topics.snapshot import Range


class RemoteChanges(Changes):
    """What happened to a table, asked piece by piece."""

    def _steps(self, stored: Any) -> Iterator[pa.RecordBatch | Idle]:
        place = self._start(stored)
        handle = 0
        while True:
            rows = RowStream(stored.wire, FrameType.SELECT, self._header(stored, place, handle))
            try:
                for batch in rows:
                    # over a lost connection it goes on behind the last row that came
                    place = Range(end=batch.column(batch.schema.get_field_index(OFFSET))[-1].as_py() + 1)
                    yield batch
            except Lost:
                handle = 0
                continue
            handle, place = rows.ending.handle, Range(end=rows.ending.next_offset)
            yield Idle(places=((stored, place.end),))

    @staticmethod
    def _header(stored: Any, place: Range, handle: int) -> Any:
        identity = stored.identity
        header = message("Select")(
            topic=identity.topic,
            partition=identity.number,
            topic_id=identity.topic_id,
            changes=True,
            credit=WINDOW_BYTES,
        )
        if place.until_us is None:
            header.start = place.end
        else:
            header.since_us = place.until_us
        if handle:
            header.handle = handle
        return header
