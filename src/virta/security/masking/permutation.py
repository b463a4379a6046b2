"""A keyed permutation of the numbers below a size: a pseudonym that stays in its space.

Two different numbers never get the same pseudonym, which hashes into a small space
cannot promise. It is a Feistel network over the next power of two, with keyed BLAKE3
as its round function; a result beyond the size goes through again until it is inside
(cycle walking). The size takes part in the round function, so spaces of different sizes
have unrelated permutations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from virta.security.masking.blake3_blocks import BLOCK_BYTES, digests

# Ten rounds, as NIST's FF1 has.
_ROUNDS = 10
# Above it a hash does as well: a million values collide with a chance of one in ten million.
LARGEST = 1 << 62

Numbers = NDArray[np.uint64]


def permuted(key: bytes, values: NDArray[Any], sizes: NDArray[Any]) -> Numbers:
    """Each value below its size, as another (or, by chance, the same) below that size."""
    result = values.astype(np.uint64)
    limits = sizes.astype(np.uint64)
    if result.size and int((result >= limits).sum()):
        raise ValueError("a value is outside of its space")
    pending = np.arange(len(result))
    while pending.size:
        result[pending] = _network(key, result[pending], limits[pending])
        pending = pending[result[pending] >= limits[pending]]
    return result


def _network(key: bytes, values: Numbers, sizes: Numbers) -> Numbers:
    """One pass over the next power of two: the halves change in turn, by a hash of the other."""
    bits = np.maximum(2, _bits(sizes - np.uint64(1)))
    low_bits = (bits // 2).astype(np.uint64)
    low_mask = (np.uint64(1) << low_bits) - np.uint64(1)
    high_mask = (np.uint64(1) << (bits.astype(np.uint64) - low_bits)) - np.uint64(1)
    low, high = values & low_mask, values >> low_bits
    block = np.zeros((len(values), BLOCK_BYTES), np.uint8)
    words = block.view("<u8")
    words[:, 0] = sizes
    lengths = np.full(len(values), 24)
    for number in range(_ROUNDS):
        words[:, 1] = number
        words[:, 2] = high if number % 2 == 0 else low
        change: Numbers = np.ascontiguousarray(digests(key, block, lengths)[:, :8]).view("<u8").reshape(-1)
        if number % 2 == 0:
            low ^= change & low_mask
        else:
            high ^= change & high_mask
    joined: Numbers = (high << low_bits) | low
    return joined


def _bits(values: Numbers) -> NDArray[Any]:
    """How many bits each number has."""
    count = np.zeros(len(values), np.int64)
    rest = values.copy()
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >= np.uint64(1 << step)
        count[large] += step
        rest[large] >>= np.uint64(step)
    return count + (rest > 0)
