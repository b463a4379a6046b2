"""What chain files know without any data being read: how many rows there are, and the blocks.

A DataFrame without columns needs only its number of rows, and `kind` `blocks` is a table
with a row for each block: its offsets, times, rows, bytes and hash. With verification each
header is held against the hash before it; the blocks' own bytes are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from virta.errors import Corrupt, UsageError
from virta.spark.logs import files_of
from virta.spark.plan import Span
from virta.storage import chain
from virta.storage.chain import HEADER_SIZE
from virta.storage.view import Stretch

# The columns of `kind` `blocks`, the partition aside, in their order.
BLOCKS = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in {
            "base_offset": pa.int64(),
            "end_offset": pa.int64(),  # behind its last row
            "rows": pa.int64(),
            "bytes": pa.int64(),
            "min_timestamp": pa.timestamp("us", "UTC"),
            "max_timestamp": pa.timestamp("us", "UTC"),
            "schema_version": pa.int32(),
            "epoch": pa.int64(),
            "hash": pa.string(),
        }.items()
    ]
)
# Rows without columns are only a number to Spark.
_COUNTED_ROWS = 1 << 20


def counted(stored: Any, span: Span, *, verify: bool) -> Iterator[pa.RecordBatch] | None:
    """Batches of no columns with as many rows as the span has; None where a block would have to be read."""
    rows = 0
    for headers in _headers(stored, span, verify=verify):
        base, spans = headers["base_offset"].astype("int64"), headers["span"].astype("int64")
        inside = np.minimum(base + spans, span.end) - np.maximum(base, span.start)
        is_cut = inside < spans
        if np.any(is_cut & (headers["rows"] != spans)):
            return None  # offsets are missing in a block of which a part is wanted
        rows += int(np.where(is_cut, inside, headers["rows"]).sum())
    return _empty(rows)


def _empty(rows: int) -> Iterator[pa.RecordBatch]:
    offsets = pa.array(np.zeros(min(rows, _COUNTED_ROWS), "int8"))
    nothing = pa.RecordBatch.from_arrays([offsets], ["_"]).select([])
    for start in range(0, rows, _COUNTED_ROWS):
        yield nothing.slice(0, min(_COUNTED_ROWS, rows - start))


def blocks(partition: Any, span: Span, *, verify: bool) -> Iterator[pa.RecordBatch]:
    """The blocks that hold rows of the span."""
    stored = files_of(partition)
    if stored is None:
        raise UsageError(
            "the table of blocks is made from chain files, and this log is behind an address",
            hint="read where its files are, or its rows",
        )
    for headers in _headers(stored, span, verify=verify):
        base = headers["base_offset"].astype("int64")
        columns = {
            "base_offset": base,
            "end_offset": base + headers["span"],
            "rows": headers["rows"].astype("int64"),
            "bytes": headers["length"].astype("int64"),
            "min_timestamp": _times(headers["min_timestamp"]),
            "max_timestamp": _times(headers["max_timestamp"]),
            "schema_version": headers["schema_version"].astype("int32"),
            "epoch": headers["epoch"].astype("int64"),
            "hash": [each.tobytes().hex() for each in headers["hash"]],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in BLOCKS]
        yield pa.RecordBatch.from_arrays(arrays, schema=BLOCKS)


def _times(microseconds: Any) -> pa.Array:
    return pa.array(microseconds.astype("int64")).cast(pa.timestamp("us", "UTC"))


def _headers(stored: Any, span: Span, *, verify: bool) -> Iterator[Any]:
    """The headers of blocks with rows, by segment."""
    for stretch in stored.plan(span.start, span.end):
        raw = stretch.segment.read_chain(
            stretch.start * HEADER_SIZE, (stretch.stop - stretch.start) * HEADER_SIZE
        )
        if verify:
            _check(stored, stretch, raw)
        headers = chain.as_array(raw)
        yield headers[headers["span"] > 0]


def _check(stored: Any, stretch: Stretch, raw: bytes) -> None:
    good = chain.check_links(raw, stretch.segment.hash_before(stretch.start))
    if good < stretch.stop - stretch.start:
        raise Corrupt(
            f"header {stretch.start + good} does not follow from the one before it",
            topic=stored.identity.topic,
            partition=stored.identity.number,
            file=str(stretch.segment.chain_path),
            position=(stretch.start + good) * HEADER_SIZE,
        )
