"""A message laid out by hand and patched, or built anew by pyarrow for every block?

    python -m bench.experiments.message_template

Virta lets pyarrow encode the user's columns, and lays out the message around them
itself, since offset, time, salt and digest are only known under the lock. The other way
is to hand pyarrow all columns and the metadata and let it write the block. A row that
comes alone is put together without Arrow's builders at all.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from bench.experiments.timing import best_us
from virta.storage import block, chain, encode
from virta.topics.single import SingleRow

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
FULL = pa.schema([*block.leading_fields(), *SCHEMA])


def rows(count: int) -> list[dict[str, bytes]]:
    return [{"key": b"key-%d" % number, "value": b"v" * 100} for number in range(count)]


def patched(encoder: encode.Encoder, batch: pa.RecordBatch, previous: bytes) -> None:
    block.stamp(encoder.prepare(batch), 0, 1, previous, 4096, 1, 0)


def single(encoder: SingleRow, row: dict[str, bytes], previous: bytes) -> None:
    prepared = encoder.prepare(row)
    assert prepared is not None
    block.stamp(prepared, 0, 1, previous, 4096, 1, 0)


def rebuilt(batch: pa.RecordBatch) -> None:
    """What pyarrow does for one block; the digest in the metadata would need a second pass over it."""
    count = batch.num_rows
    leading = [pa.array(range(count), pa.int64()), pa.array([1] * count, pa.timestamp("us", tz="UTC"))]
    whole = pa.RecordBatch.from_arrays([*leading, *batch.columns], schema=FULL)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, FULL) as writer:
        writer.write_batch(whole, custom_metadata={"virta": "0" * block.FIELDS_DIGITS})
    sink.getvalue()


def main() -> None:
    previous = chain.genesis(bytes(16), bytes(16), 0)
    print(
        f"{'rows':>6}  {'patched':>9}  {'rebuilt':>9}  {'by hand':>9}   µs a block; all but rebuilt hash it"
    )
    for count in (1, 100, 1000):
        batch = pa.RecordBatch.from_pylist(rows(count), schema=SCHEMA)
        encoder = encode.Encoder(SCHEMA)
        figures = [best_us(partial(patched, encoder, batch, previous)), best_us(partial(rebuilt, batch))]
        text = "  ".join(f"{figure:9.2f}" for figure in figures)
        if count == 1:
            alone, row = SingleRow(SCHEMA, (), row_limit_bytes=1 << 20), rows(1)[0]
            text += f"  {best_us(partial(single, alone, row, previous)):9.2f}"
        print(f"{count:6}  {text}")


if __name__ == "__main__":
    main()
