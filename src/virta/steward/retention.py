"""Which segments have to go: pure decisions over what manifest and chain say.

Whole sealed segments go from the old end, the newest never. A segment goes when

- all its rows are older than the topic's age, or
- the rows (or bytes) that stay without it are still as many as the topic keeps.

So at least the configured amount stays, and less than a segment more. The active
segment stays as it is, unless every row of the log is over age: then it is sealed, and
writing goes on in a new file. Nothing here opens a file or reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virta.storage.manifest import Entry
from virta.types import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSegment:
    """What the newest segment holds; `newest_us` is the time of its newest row."""

    rows: int
    bytes: int
    newest_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """Seal the active segment first (or not), then remove so many of the oldest."""

    seal: bool = False
    remove: int = 0
    rows: int = 0
    bytes: int = 0
    from_offset: int = 0
    to_offset: int | None = None  # None: all there are, once sealed
    reason: str = ""

    def __bool__(self) -> bool:
        return self.remove > 0


def has_retention(config: TopicConfig) -> bool:
    return (config.retention_age_seconds, config.retention_bytes, config.retention_rows) != (None, None, None)


def plan_retention(
    sealed: Sequence[Entry], active: ActiveSegment, config: TopicConfig, now_us: int
) -> RetentionPlan:
    """What retention asks for, given the sealed segments, oldest first, and the active one."""
    by_rule = {
        "age": _over_age(sealed, config.retention_age_seconds, now_us),
        "bytes": _over_amount([entry.data_length for entry in sealed], active.bytes, config.retention_bytes),
        "rows": _over_amount([entry.rows for entry in sealed], active.rows, config.retention_rows),
    }
    remove = max(by_rule.values())
    seal = by_rule["age"] == len(sealed) and _is_over_age(active, config.retention_age_seconds, now_us)
    gone = sealed[:remove]
    rows = sum(entry.rows for entry in gone)
    size = sum(entry.data_length for entry in gone)
    if seal:
        rows, size = rows + active.rows, size + active.bytes
    total = remove + seal
    if not total:
        return RetentionPlan()
    return RetentionPlan(
        seal=seal,
        remove=total,
        rows=rows,
        bytes=size,
        from_offset=sealed[0].base if sealed else 0,
        to_offset=None if seal else gone[-1].end,
        reason="age" if seal else ", ".join(rule for rule, count in by_rule.items() if count == remove),
    )


def _over_age(sealed: Sequence[Entry], age_seconds: float | None, now_us: int) -> int:
    """How many segments from the old end have no row younger than the age."""
    if age_seconds is None:
        return 0
    oldest_kept = now_us - int(age_seconds * 1_000_000)
    count = 0
    while count < len(sealed) and sealed[count].max_timestamp < oldest_kept:
        count += 1
    return count


def _is_over_age(active: ActiveSegment, age_seconds: float | None, now_us: int) -> bool:
    if age_seconds is None or not active.rows:
        return False
    return active.newest_us < now_us - int(age_seconds * 1_000_000)


def _over_amount(amounts: Sequence[int], active: int, limit: int | None) -> int:
    """How many segments from the old end can go so that at least the limit stays."""
    if limit is None:
        return 0
    rest = sum(amounts) + active
    count = 0
    while count < len(amounts) and rest - amounts[count] >= limit:
        rest -= amounts[count]
        count += 1
    return count
