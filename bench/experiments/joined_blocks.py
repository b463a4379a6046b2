"""Rows that several threads append at once: one block each in one commit, or one block for all?

    python -m bench.experiments.joined_blocks

One block means fewer bytes and fewer hashes, but the rows have to be encoded again
while the lock is held and everybody waits. Virta keeps the blocks apart: they share
the lock and the two writes, and the steward joins them later.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial

import pyarrow as pa

from bench.experiments.timing import best_us
from virta.storage import block, chain, encode
from virta.topics.single import SingleRow

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
ROW = {"key": b"key-1", "value": b"v" * 100}


def apart(prepared: list[block.Prepared], previous: bytes, descriptor: int) -> None:
    """What is done under the lock for blocks that were prepared before it."""
    stamped = []
    for number, each in enumerate(prepared):
        stamped.append(block.stamp(each, number, 1, previous, 4096, 1, 0))
        previous = stamped[-1].header.hash
    os.pwritev(descriptor, [part for each in stamped for part in each.parts], 0)
    os.pwrite(descriptor, b"".join(each.record for each in stamped), 1 << 20)


def joined(batches: list[pa.RecordBatch], encoder: encode.Encoder, previous: bytes, descriptor: int) -> None:
    """The rows put into one batch and encoded, all of it under the lock."""
    whole = encoder.prepare(pa.concat_batches(batches))
    stamped = block.stamp(whole, 0, 1, previous, 4096, 1, 0)
    os.pwritev(descriptor, stamped.parts, 0)
    os.pwrite(descriptor, stamped.record, 1 << 20)


def main() -> None:
    previous = chain.genesis(bytes(16), bytes(16), 0)
    encoder, single = encode.Encoder(SCHEMA), SingleRow(SCHEMA, (), row_limit_bytes=1 << 20)
    print(
        f"{'rows':>6}  {'apart':>9}  {'joined':>9}   µs under the lock   {'apart':>7}  {'joined':>7}   bytes"
    )
    with tempfile.TemporaryFile() as file:
        for count in (1, 2, 8, 32):
            batches = [pa.RecordBatch.from_pylist([ROW], schema=SCHEMA)] * count
            prepared = [single.prepare(ROW) for _ in range(count)]
            whole = [each for each in prepared if each is not None]
            first = best_us(partial(apart, whole, previous, file.fileno()))
            second = best_us(partial(joined, batches, encoder, previous, file.fileno()))
            sizes = sum(each.size for each in whole), encoder.prepare(pa.concat_batches(batches)).size
            print(f"{count:6}  {first:9.2f}  {second:9.2f}   {'':18}{sizes[0]:7}  {sizes[1]:7}")


if __name__ == "__main__":
    main()
