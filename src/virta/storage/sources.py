"""What a block says of where its rows came from: the position, in its source, of what caused them.

Under `virta.source` in the custom metadata of its record batch stands a JSON object: the
producer's number (16 hexadecimal digits) and the text of its position behind what caused the
block. A block of several that were joined has the newest position of each producer. Whoever
takes over from a producer looks for its newest block, and goes on from there: position and
rows are one write, so neither is ever there without the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from virta.errors import Corrupt
from virta.storage import message, trail

# A token has some 80 characters.
POSITION_LIMIT = 1000


def encode(positions: Mapping[int, str]) -> bytes:
    named = {f"{producer:016x}": text for producer, text in positions.items()}
    return json.dumps(named, separators=(",", ":"), sort_keys=True).encode()


def of_block(data: Any) -> dict[int, str]:
    """The positions that a block's bytes tell; none in most blocks."""
    head = trail.last_head(memoryview(data))
    found = message.find_metadata(head, message.SOURCE_KEY)
    if found is None:
        return {}
    try:
        positions = json.loads(head.metadata[found[0] : found[0] + found[1]])
        return {int(producer, 16): str(text) for producer, text in positions.items()}
    except (ValueError, AttributeError) as error:
        raise Corrupt(f"a block's source cannot be read: {error}") from error
