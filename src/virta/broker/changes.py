"""What happens to the table of an update topic, for a client that comes back for more.

A client asks for the changes up to now, and later for those after them. What is known of
the table in between stays with its connection; a client that comes to another one, or too
late, says from which offset on, and the table up to there is counted anew.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pyarrow as pa

from virta.broker.desk import Desk
from virta.errors import UsageError
from virta.metadata.schemas import user_schema
from virta.topics.snapshot import Range
from virta.topics.table_state import TableState, change_schema
from virta.types import Kind


class Following:
    """The table of one partition, as far as somebody has heard of it."""

    def __init__(self, desk: Desk, header: Any) -> None:
        """In a thread."""
        topic = desk.topic
        if topic.schemas.record.config.kind is not Kind.UPDATE:
            raise UsageError(f"topic {topic.topic.name!r} is no table: only those of kind 'update' are")
        desk.stored.refresh()
        topic.schemas.follow(desk.stored.topic_version)
        before = Range(end=header.start)
        if header.HasField("since_us"):
            before = Range(until_us=header.since_us)
        self._schemas = topic.schemas
        self._state = TableState(desk.stored, topic.schemas, before)

    @property
    def offset(self) -> int:
        return self._state.offset

    @property
    def schema(self) -> pa.Schema:
        return change_schema(user_schema(self._schemas.newest()))

    def batches(self) -> Generator[pa.RecordBatch]:
        """The changes since the last time."""
        yield from self._state.advance()

    def ending(self, *, handle: int) -> dict[str, Any]:
        """What the last word of an answer says."""
        return {"handle": handle, "next_offset": self.offset}
