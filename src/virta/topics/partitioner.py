"""Which partition a row goes to, when nobody says: a pure function, the same in every language.

- A topic with keys: hash of the row's key (`keys`) modulo the number of partitions. So the rows
  of one key stay in order, whoever appends them.
- Without keys: rows that are appended together stay together. What a producer sends goes by
  the producer's number and its rows' sequence, in stretches of `STRETCH_ROWS`; what has no
  producer goes to the partitions in turn.

A partition that is named in the call always wins. The number of partitions never changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from virta.topics.keys import hash_rows

STRETCH_ROWS = 1024


def partition_of_hash(hash_: int, partitions: int) -> int:
    """Where the rows of a key go, from the key's 64-bit hash."""
    return hash_ % partitions


def partition_of_sequence(producer: int, sequence: int, partitions: int) -> int:
    """Where a row without a key goes that a producer sends as its `sequence`-th."""
    return (producer + sequence // STRETCH_ROWS) % partitions


def split_by_key(
    batch: pa.RecordBatch, keys: Sequence[str], partitions: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of a batch by partition, each part in the order it had."""
    places = hash_rows(batch, keys) % np.uint64(partitions)
    first = int(places[0]) if len(places) else 0
    if bool((places == first).all()):
        yield first, batch
        return
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(partitions, dtype=np.uint64), side="right")
    start = 0
    for number, end in enumerate(ends.tolist()):
        if end > start:
            yield number, batch.take(pa.array(order[start:end]))
        start = end
