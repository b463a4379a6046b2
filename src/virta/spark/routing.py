"""Which partition of the topic a row goes to, decided where the row is staged.

By its key, as everywhere in Virta, so a key's rows stay in order in one partition; batches
without keys take turns, and tasks begin at different partitions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from virta.topics.partitioner import split_by_key


class Router:
    def __init__(self, topic: Any, *, first: int = 0) -> None:
        self._count = len(topic.partitions)
        self._keys = topic.config.keys
        self._turns = itertools.count(first)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's rows by partition."""
        if self._count == 1:
            yield 0, batch
        elif self._keys:
            yield from split_by_key(batch, self._keys, self._count)
        else:
            yield next(self._turns) % self._count, batch
