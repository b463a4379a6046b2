"""The acknowledgement of rows that went to several partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from virta.errors import UsageError
from virta.types import Ack


class SpreadAck(Ack):
    """Of rows that went to several partitions: `parts` has what is one partition's matter."""

    _parts: tuple[Ack, ...]

    @classmethod
    def of(cls, parts: Sequence[Ack]) -> SpreadAck:
        duplicate = all(part.duplicate for part in parts)
        made = cls(-1, -1, -1, "", parts[0].durability, duplicate, parts[0].acks)
        made._parts = tuple(parts)
        return made

    @property
    def parts(self) -> tuple[Ack, ...]:
        return self._parts

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self._parts)

    def __getattribute__(self, name: str) -> Any:
        if name in ("partition", "first_offset", "last_offset", "head"):
            raise UsageError(
                f"{name} is a matter of one partition, and the rows went to {len(self.parts)}",
                hint="see ack.parts",
            )
        return super().__getattribute__(name)

    def __repr__(self) -> str:
        return f"SpreadAck({', '.join(map(repr, self._parts))})"
