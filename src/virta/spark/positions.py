"""Where a stream stands: an offset and the hash before it, by partition, as JSON in the checkpoint.

    {"0": {"head": "3f9c…", "offset": 1200}, "1": {"head": "77ab…", "offset": 845}}

The hash names the whole history before the offset, so a stream that goes on after a log
was restored from an older backup, or made anew, is told, instead of reading on in another
history. Spark compares positions as text: an offset that did not move keeps its hash.

Pure values: opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from virta.types import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """A token for each partition."""

    tokens: Mapping[int, Token]

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it, partitions in order."""
        return {
            str(number): {"head": token.hash.hex(), "offset": token.offset}
            for number, token in sorted(self.tokens.items())
        }

    def offset(self, partition: int, otherwise: int) -> int:
        token = self.tokens.get(partition)
        return otherwise if token is None else token.offset


def from_json(document: Mapping[str, Any]) -> Positions:
    return Positions(
        tokens={
            int(number): Token(
                partition=int(number), offset=int(at["offset"]), hash=bytes.fromhex(at["head"])
            )
            for number, at in document.items()
        }
    )


def share(backlog: Mapping[int, int], most: int) -> dict[int, int]:
    """At most so many rows, shared among partitions by how far each is behind; at least one row."""
    total = sum(backlog.values())
    if total <= most:
        return dict(backlog)
    shares = {number: rows * most // total for number, rows in backlog.items()}
    left = most - sum(shares.values())
    # what rounding left goes to those who are furthest behind
    for number in sorted(backlog, key=lambda number: shares[number] - backlog[number]):
        more = min(left, backlog[number] - shares[number])
        shares[number] += more
        left -= more
    return shares


def lag(progress: Any) -> int:
    """How many rows a query's topics were ahead of it, by one of its progress reports."""
    text = getattr(progress, "json", None)
    document = json.loads(text) if isinstance(text, str) else progress
    return sum(
        max(0, offset - there.get(number, 0))
        for source in document["sources"]
        for there in [_offsets(source.get("endOffset"))]
        for number, offset in _offsets(source.get("latestOffset")).items()
    )


def _offsets(position: Any) -> dict[str, int]:
    """The offsets in a position of ours; none in one of another source."""
    try:
        document = json.loads(position) if isinstance(position, str) else position
        return {str(number): int(at["offset"]) for number, at in document.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
