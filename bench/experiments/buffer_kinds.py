"""A block's parts: hashed and written from where they lie, or joined in one buffer first?

    python -m bench.experiments.buffer_kinds

Joining copies every byte once. But BLAKE3 takes one piece nearly twice as fast as
several, a single write is a little cheaper than a gathering one, and the tail buffer
then holds one object instead of four.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial

from blake3 import blake3

from bench.experiments.timing import best_us


def apart(parts: list[bytes], descriptor: int) -> None:
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    hasher.digest()
    os.pwritev(descriptor, parts, 0)


def joined(parts: list[bytes], descriptor: int) -> None:
    whole = bytearray().join(parts)
    blake3(whole).digest()
    os.pwrite(descriptor, whole, 0)


def main() -> None:
    print(f"{'body':>10}  {'apart':>9}  {'joined':>9}   µs to hash and write")
    with tempfile.TemporaryFile() as file:
        for size in (1_000, 16_000, 124_000, 1_000_000, 4_000_000):
            parts = [os.urandom(832), os.urandom(size // 8), os.urandom(size)]
            first = best_us(partial(apart, parts, file.fileno()))
            second = best_us(partial(joined, parts, file.fileno()))
            print(f"{size:10,}  {first:9.2f}  {second:9.2f}")


if __name__ == "__main__":
    main()
