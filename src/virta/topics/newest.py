"""The newest row of each key among some rows, by the hashes of their keys and, where it matters, the keys.

Pure: numpy arrays in, numpy arrays out.
"""

from __future__ import annotations

import numpy as np

from virta.topics.keys import Form, Indices, Mask, Words

_NONE = np.zeros(0, dtype=np.int64)


def by_hash(hashes: Words) -> Indices:
    """The rows in the order of their hashes, rows with equal ones in the order they are in.

    numpy sorts numbers several times as fast as it finds the order of numbers. So each is
    sorted together with its row in its low bits; the few whose high bits alone agree are
    put right afterwards.
    """
    count = len(hashes)
    bits = max(1, (count - 1).bit_length())
    low = np.uint64((1 << bits) - 1)
    packed = hashes & ~low
    packed |= np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & low).astype(np.int64)
    found = hashes[order]
    wrong = np.flatnonzero(found[1:] < found[:-1])
    if len(wrong):
        packed >>= np.uint64(bits)
        starts = np.unique(packed.searchsorted(packed[wrong], side="left"))
        for start in starts.tolist():
            stop = int(packed.searchsorted(packed[start], side="right"))
            part = order[start:stop]
            order[start:stop] = part[np.lexsort((part, hashes[part]))]
    return order


def newest_rows(hashes: Words, form: Form | None) -> Indices:
    """The last row of each key, in the order of their hashes. `form`: the keys; None if hashes are exact."""
    order = by_hash(hashes)
    if len(order) < 2:
        return order
    ordered = hashes[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    if form is None:
        last: Indices = order[is_last]
        return last
    repeated = np.flatnonzero(~is_last)
    same = form.same(order[repeated], order[repeated + 1])
    if not same.all():
        _tell_apart(order, ordered, is_last, np.unique(ordered[repeated[~same]]), form)
    found: Indices = order[is_last]
    return found


def _tell_apart(order: Indices, ordered: Words, is_last: Mask, shared: Words, form: Form) -> None:
    """Different keys share a hash: mark the last row of each of them."""
    for each in shared.tolist():
        start, stop = (int(ordered.searchsorted(np.uint64(each), side=side)) for side in ("left", "right"))
        keys = form.take(order[start:stop]).encoded()
        last = {key: at for at, key in enumerate(keys)}
        is_last[start:stop] = False
        is_last[start + np.array(list(last.values()))] = True


def pairs(newer: Words, older: Words) -> tuple[Indices, Indices]:
    """Every place in `newer` and place in `older` with the same hash; both are sorted."""
    if not len(newer) or not len(older):
        return _NONE, _NONE
    if len(older) < len(newer):
        second, first = pairs(older, newer)
        return first, second
    starts = older.searchsorted(newer, side="left")
    there = np.flatnonzero(older[np.minimum(starts, len(older) - 1)] == newer)
    starts = starts[there]
    counts = older.searchsorted(newer[there], side="right") - starts
    if (counts == 1).all():
        return there, starts
    first = np.repeat(there, counts)
    ends = np.cumsum(counts)
    second = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)
    return first, second
