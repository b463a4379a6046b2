"""Finding the newest position that a producer's blocks tell of their source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from virta.storage import chain, sources
from virta.storage.chain import HEADER_SIZE

if TYPE_CHECKING:
    from virta.memory.partition import Partition


def newest_source(stored: Partition, producer: int) -> str | None:
    """From the newest segment to the oldest, by chain files: only blocks that may tell are read."""
    stored.refresh()
    for offset in _candidates(stored, producer):
        for found in stored.read(offset, max_bytes=1):
            position = sources.of_block(found.data).get(producer)
            if position is not None:
                return position
    return None


def _candidates(stored: Partition, producer: int) -> list[int]:
    """Offsets of the producer's blocks and of rewritten ones, the newest first."""
    offsets: list[int] = []
    with stored.view() as view:
        for index in reversed(range(len(view.manifest.segments))):
            count = view.blocks_in(index)
            headers: Any = chain.as_array(view.segment(index).read_chain(0, count * HEADER_SIZE))
            rewritten = (headers["flags"] & chain.REWRITTEN) != 0
            own = (headers["producer"] == producer) & (headers["rows"] > 0)
            places = np.flatnonzero(rewritten | own)
            offsets += headers["base_offset"][places[::-1]].tolist()
            if bool(own.any()):
                break  # nothing older is newer than these
    return offsets
