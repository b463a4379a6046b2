"""The rows that every contender writes: the same keys and the same values.

A value is exactly 100 bytes, a key 8 to 16. Values are plain ASCII text, because one
peer (honker) stores text; for the others they are bytes like any.
"""

from __future__ import annotations

import functools
import itertools
import random
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

VALUE_BYTES = 100
BATCH_ROWS = 1000
UNTYPED = pa.schema([("key", pa.binary()), ("value", pa.binary())])
TYPED = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("user", pa.string()), ("amount", pa.float64())]
)

Row = dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A thousand rows, as columns; each contender makes its own form of them."""

    keys: Sequence[bytes]
    values: Sequence[bytes]

    def rows(self) -> list[Row]:
        pairs = zip(self.keys, self.values, strict=True)
        return [{"key": key, "value": value} for key, value in pairs]

    def arrow(self) -> pa.RecordBatch:
        arrays = [pa.array(self.keys, pa.binary()), pa.array(self.values, pa.binary())]
        return pa.record_batch(arrays, schema=UNTYPED)


@functools.cache
def batches(count: int, seed: int = 7) -> tuple[Batch, ...]:
    """`count` batches of a thousand rows; the same for everybody."""
    generator = random.Random(seed)
    text = "".join(generator.choices(string.ascii_letters, k=1 << 20)).encode()
    return tuple(_batch(generator, text) for _ in range(count))


def _batch(generator: random.Random, text: bytes) -> Batch:
    starts = [generator.randrange(len(text) - VALUE_BYTES) for _ in range(BATCH_ROWS)]
    return Batch(
        keys=[b"customer-%d" % generator.randrange(1_000_000) for _ in range(BATCH_ROWS)],
        values=[text[start : start + VALUE_BYTES] for start in starts],
    )


def flat(count: int) -> list[Row]:
    """`count` batches as one list of rows."""
    return [row for batch in batches(count) for row in batch.rows()]


def batched(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Rows in lists of `size`; the last may be shorter."""
    source = iter(rows)
    while some := list(itertools.islice(source, size)):
        yield some


def typed_rows(count: int) -> list[dict[str, object]]:
    """Rows of three typed columns: id int, user str, amount float."""
    return [
        {"id": number, "user": f"user-{number % 1000}", "amount": number * 0.25} for number in range(count)
    ]
