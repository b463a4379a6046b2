"""A block as readers see it: where it stands in history, and its rows as Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from virta.errors import Corrupt
from virta.metadata.schemas import unify
from virta.storage import block as block_format
from virta.storage.segment import StoredBlock


class Block:
    """One block of a partition. Cheap until its rows are asked for."""

    __slots__ = ("_schema", "_stored", "partition", "topic")

    def __init__(self, stored: StoredBlock, schema: pa.Schema, *, topic: str, partition: int) -> None:
        self._stored = stored
        self._schema = schema
        self.topic = topic
        self.partition = partition

    @property
    def base_offset(self) -> int:
        return self._stored.header.base_offset

    @property
    def last_offset(self) -> int:
        return self._stored.header.end_offset - 1

    @property
    def rows(self) -> int:
        return self._stored.header.rows

    @property
    def hash(self) -> str:
        """Names this block and all history before it."""
        return self._stored.header.hash.hex()

    @property
    def previous_hash(self) -> str:
        return self._stored.previous.hex()

    @property
    def header(self) -> Any:
        """All fields of the 128-byte header."""
        return self._stored.header

    @property
    def is_control(self) -> bool:
        return self._stored.header.is_control

    @property
    def event(self) -> dict[str, Any] | None:
        """What a control block says; None for a block of rows."""
        return block_format.event_of(self._stored.data) if self.is_control else None

    @property
    def bytes(self) -> memoryview:
        """The block as it lies on disk."""
        return memoryview(self._stored.data)

    def to_arrow(self) -> pa.RecordBatch:
        """The rows, with `_offset` and `_timestamp`, in the topic's newest schema."""
        batch = self._stored.decode()
        return batch if batch.schema is self._schema else unify(batch, self._schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def verify(self) -> None:
        """Hash the bytes again and follow the link from the block before; raises Corrupt."""
        try:
            self._stored.check()
        except Corrupt as error:
            error.topic, error.partition = self.topic, self.partition
            error.offset = self.base_offset
            raise

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        batch = self.to_arrow()
        reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        what = "control block" if self.is_control else f"{self.rows} rows from {self.base_offset}"
        return f"Block({self.topic!r}/{self.partition}, {what}, {self.hash[:8]})"
