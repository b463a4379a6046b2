"""What a round of the steward did, or would do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One thing that was done (or, in a dry run, would be) in a partition.

    `rows` and `bytes` are what went, `segments` those that were removed or rewritten.
    """

    topic: str
    partition: int
    segments: int = 0
    rows: int = 0
    bytes: int = 0
    from_offset: int = 0
    to_offset: int = 0
    sealed: bool = False
    reason: str = ""
    cleaned: tuple[str, ...] = ()
    error: str | None = None

    def __bool__(self) -> bool:
        return bool(self.segments or self.cleaned or self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class StewardReport:
    """One run over all topics; `partitions` has only those where there was something to do."""

    dry_run: bool
    topics: int
    partitions: tuple[PartitionReport, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.partitions)

    @property
    def segments(self) -> int:
        return sum(part.segments for part in self.partitions)

    @property
    def ok(self) -> bool:
        return all(part.error is None for part in self.partitions)
