"""Whether a block's columns should be compressed: size and time, by codec and by what is in them.

    python -m bench.experiments.compression [--rounds N]

A block is 1,000 rows of 100-byte values with offset, time and key, as one Arrow record
batch, its buffers stored plainly or by LZ4 or Zstandard (Arrow's own buffer
compression, so any Arrow reader opens it). Values are random bytes, which nothing can
make smaller, or small JSON documents, which is what event logs mostly hold. Decoding
includes reading every byte of the values once, for a plain block is not read at all
until then.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bench.peers.store import REPLAY_SCHEMA
from bench.rows import BATCH_ROWS, VALUE_BYTES

CODECS = (None, "lz4", "zstd")
CITIES = ("Helsinki", "Turku", "Oulu", "Tampere", "Rovaniemi", "Vaasa")


def random_values(generator: random.Random) -> list[bytes]:
    return [generator.randbytes(VALUE_BYTES) for _ in range(BATCH_ROWS)]


def json_values(generator: random.Random) -> list[bytes]:
    """JSON text of exactly 100 bytes."""
    values = []
    for number in range(BATCH_ROWS):
        text = json.dumps(
            {
                "id": 1_000_000 + number,
                "city": generator.choice(CITIES),
                "amount": round(generator.uniform(1, 900), 2),
                "paid": generator.random() < 0.5,
                "session": f"{generator.getrandbits(28):07x}",
                "t": "",
            }
        )
        values.append(text[:-2].ljust(VALUE_BYTES - 2, "-").encode() + b'"}')
    return values


def batch(values: list[bytes], generator: random.Random) -> pa.RecordBatch:
    keys = [b"customer-%d" % generator.randrange(1_000_000) for _ in range(BATCH_ROWS)]
    now = np.full(BATCH_ROWS, np.datetime64("2026-11-18T10:00:00", "us"))
    arrays = [
        pa.array(np.arange(BATCH_ROWS)),
        pa.array(now).cast(REPLAY_SCHEMA.field("_timestamp").type),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    return pa.record_batch(arrays, schema=REPLAY_SCHEMA)


def encode(rows: pa.RecordBatch, codec: str | None) -> pa.Buffer:
    """A stream of this one block; the schema before it is the same few bytes for all codecs."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def decode(block: pa.Buffer) -> int:
    options = pa.ipc.IpcReadOptions(use_threads=False)
    values = pa.ipc.open_stream(block, options=options).read_next_batch().column(3).buffers()[2]
    return int(np.frombuffer(values, np.uint64, count=values.size // 8).sum())


def best_microseconds(work: Callable[[], object], rounds: int) -> float:
    """The best of several rounds of twenty calls."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(20):
            work()
        found.append((time.perf_counter() - start) / 20 * 1e6)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    generator = random.Random(5)
    for what, values in (("random bytes", random_values(generator)), ("JSON", json_values(generator))):
        rows = batch(values, generator)
        plain = len(encode(rows, None))
        print(f"{what}\n  {'':6} {'bytes':>8} {'share':>6} {'encode µs':>10} {'decode µs':>10}")
        for codec in CODECS:
            block = encode(rows, codec)
            encoding = best_microseconds(functools.partial(encode, rows, codec), rounds)
            decoding = best_microseconds(functools.partial(decode, block), rounds)
            share = len(block) / plain
            print(f"  {codec or 'none':6} {len(block):8,} {share:6.0%} {encoding:10.1f} {decoding:10.1f}")


if __name__ == "__main__":
    main()
