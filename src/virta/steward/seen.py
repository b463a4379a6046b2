"""The keys that were seen already, in little memory: what compaction asks of each older row.

A key is remembered by its 64-bit hash, in sorted arrays: eight bytes. Where the hash is not exact
(texts, several columns) a mark of 64 bits goes with it. The mark is a multilinear hash under
coefficients drawn for this one run: for any two keys, whoever chose them, it is the same with a
probability of 2^-64. Two keys are taken for one only where hash and mark agree.

A key whose hash another one has already is not remembered: its rows are kept, which costs room
and nothing else.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from blake3 import blake3

from virta.topics.keys import BytesForm, WordForm, form_of

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

# Arrays are kept by the first bits of the hash, so that one that grows is copied alone.
_PART_BITS = 7
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)


class Marks:
    """Gives keys their marks, under coefficients of its own."""

    def __init__(self, seed: bytes | None = None) -> None:
        self._seed = seed or os.urandom(32)
        self._known: dict[tuple[int, int], tuple[np.uint64, ...]] = {}

    def of(self, columns: Sequence[pa.Array]) -> Words:
        form = form_of(columns)
        if not all(isinstance(field, WordForm | BytesForm) for field in form.fields):
            form = form_of([pa.array(form.joined(), pa.large_binary())])
        lanes = np.zeros((2, form.count), dtype=np.uint64)
        for number, field in enumerate(form.fields):
            self._add(lanes, number, field)
        found: Words = (lanes[0] >> _HIGH << _HIGH) | (lanes[1] >> _HIGH)
        return found

    def _add(self, lanes: npt.NDArray[np.uint64], number: int, field: Any) -> None:
        nulls = field.nulls
        if nulls is not None:
            self._add_words(lanes, number, 0, nulls.astype(np.uint64), slice(None))
        if isinstance(field, WordForm):
            words = field.words if nulls is None else np.where(nulls, np.uint64(0), field.words)
            self._add_words(lanes, number, 2, words, slice(None))
            return
        self._add_words(lanes, number, 1, field.lengths.astype(np.uint64), slice(None))
        place, rows = 0, np.flatnonzero(field.lengths > 0)
        while len(rows):
            self._add_words(lanes, number, 2 + place, field._word_at(rows, place), rows)
            place += 1
            rows = rows[field.lengths[rows] > 8 * place]

    def _add_words(
        self, lanes: npt.NDArray[np.uint64], number: int, place: int, words: Words, rows: Any
    ) -> None:
        low, high = words & _LOW, words >> _HIGH
        first, second, third, fourth = self._coefficients(number, place)
        lanes[0][rows] += first * low + second * high
        lanes[1][rows] += third * low + fourth * high

    def _coefficients(self, number: int, place: int) -> tuple[np.uint64, ...]:
        found = self._known.get((number, place))
        if found is None:
            data = blake3(self._seed + struct.pack("<QQ", number, place)).digest()
            found = tuple(np.frombuffer(data, "<u8"))
            self._known[number, place] = found
        return found


class SeenKeys:
    def __init__(self, *, is_exact: bool) -> None:
        parts = 1 << _PART_BITS
        self._edges = np.arange(parts, dtype=np.uint64) << np.uint64(64 - _PART_BITS)
        self._hashes = [np.zeros(0, np.uint64) for _ in range(parts)]
        self._marks = None if is_exact else [np.zeros(0, np.uint64) for _ in range(parts)]

    def __len__(self) -> int:
        return sum(len(part) for part in self._hashes)

    def meet(self, hashes: Words, marks: Words | None, *, add: bool = True) -> tuple[Mask, Mask]:
        """For hashes that rise: whether each key was seen, and whether it is remembered from now on."""
        seen = np.zeros(len(hashes), dtype=np.bool_)
        remembered = np.ones(len(hashes), dtype=np.bool_)
        bounds = [*np.searchsorted(hashes, self._edges).tolist(), len(hashes)]
        for part, (start, stop) in enumerate(pairwise(bounds)):
            if start == stop:
                continue
            held, asked = self._hashes[part], hashes[start:stop]
            at = np.searchsorted(held, asked)
            hit = np.zeros(stop - start, dtype=np.bool_)
            inside = at < len(held)
            hit[inside] = held[at[inside]] == asked[inside]
            same = hit.copy()
            if self._marks is not None and marks is not None:
                same[hit] = self._marks[part][at[hit]] == marks[start:stop][hit]
            seen[start:stop] = same
            remembered[start:stop] = same | ~hit
            if not add:
                continue
            new = ~hit
            self._hashes[part] = np.insert(held, at[new], asked[new])
            if self._marks is not None and marks is not None:
                self._marks[part] = np.insert(self._marks[part], at[new], marks[start:stop][new])
        return seen, remembered


def newest_first(hashes: Words, marks: Words | None) -> tuple[Indices, Mask, Words]:
    """Of rows in the order of the log: the newest row of each hash, the hashes rising; for every row
    whether a newer one among them has its key; and the hashes that several keys have."""
    backwards = hashes[::-1]
    _, first, inverse = np.unique(backwards, return_index=True, return_inverse=True)
    newest = len(hashes) - 1 - first
    of_row = newest[inverse.reshape(-1)[::-1]]
    older = of_row != np.arange(len(hashes))
    shared = hashes[:0]
    if marks is not None:
        differs = marks != marks[of_row]
        shared = np.unique(hashes[differs])
        older &= ~differs
    return newest, older, shared
