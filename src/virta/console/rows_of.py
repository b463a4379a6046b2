"""What all who show rows share: a topic's rows as they are stored, and one of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from virta.console.state import Console
from virta.console.values import columns_of
from virta.errors import NotFound
from virta.metadata.schemas import DELETED, OFFSET, TIMESTAMP
from virta.types import Kind

LEADING = (OFFSET, TIMESTAMP, DELETED)


def _own(topic: Any) -> list[pa.Field]:
    """The columns behind offset and time: an update topic says of each row whether it deletes its key."""
    deleted = [pa.field(DELETED, pa.bool_(), nullable=False)] if topic.kind == Kind.UPDATE else []
    return [*deleted, *topic.schema]


def stamped(topic: Any) -> pa.Schema:
    """A topic's columns with those that every row has."""
    return pa.schema(
        [
            pa.field(OFFSET, pa.int64(), nullable=False),
            pa.field(TIMESTAMP, pa.timestamp("us", tz="UTC"), nullable=False),
            *_own(topic),
        ]
    )


def row_columns(topic: Any) -> list[dict[str, Any]]:
    """The columns of rows as tables show them, behind offset and time."""
    return columns_of(pa.schema(_own(topic)))


def read_row(console: Console, name: str, partition: int, offset: int) -> tuple[Any, pa.RecordBatch]:
    """The topic and the row as a batch of one."""
    topic = console.log.topic(name)
    table = console.hub.windows.read(topic, partition, offset, offset + 1)
    if table is None or not table.num_rows:
        raise NotFound(
            f"topic {name!r} has no row at offset {offset}",
            hint="it may have been compacted or retained away",
        )
    return topic, table.combine_chunks().to_batches()[0]
