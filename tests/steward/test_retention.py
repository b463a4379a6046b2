"""What retention decides: whole segments from the old end, the configured amount always stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.steward.retention import ActiveSegment, has_retention, plan_retention
from virta.storage.manifest import Entry
from virta.types import TopicConfig

NOW = 1_000_000_000_000
DAY = 86_400_000_000


def sealed(*parts: tuple[int, int, int]) -> list[Entry]:
    """Sealed segments of (rows, bytes, age of the newest row in days)."""
    entries = []
    base = 0
    for rows, size, days in parts:
        entries.append(
            Entry(
                base=base,
                end=base + rows,
                rows=rows,
                blocks=1,
                data_length=size,
                max_timestamp=NOW - days * DAY,
                previous_hash=bytes(32),
                schema_digest=bytes(32),
            )
        )
        base += rows
    return entries


def active(rows: int = 10, size: int = 100, days: float = 0) -> ActiveSegment:
    return ActiveSegment(rows=rows, bytes=size, newest_us=int(NOW - days * DAY))


SEGMENTS = sealed((10, 100, 9), (10, 100, 6), (10, 100, 3))


@pytest.mark.parametrize(
    ("config", "remove", "reason"),
    [
        ({}, 0, ""),
        ({"retention_age_seconds": 5 * 86400}, 2, "age"),
        ({"retention_age_seconds": 30 * 86400}, 0, ""),
        ({"retention_age_seconds": 86400}, 3, "age"),
        ({"retention_bytes": 400}, 0, ""),
        ({"retention_bytes": 399}, 0, ""),
        ({"retention_bytes": 300}, 1, "bytes"),
        ({"retention_bytes": 201}, 1, "bytes"),
        ({"retention_bytes": 1}, 3, "bytes"),
        ({"retention_rows": 25}, 1, "rows"),
        ({"retention_rows": 1}, 3, "rows"),
        ({"retention_rows": 20, "retention_age_seconds": 8 * 86400}, 2, "rows"),
        ({"retention_rows": 20, "retention_bytes": 200}, 2, "bytes, rows"),
    ],
)
def test_the_rule_that_takes_most_decides(config: dict[str, Any], remove: int, reason: str) -> None:
    plan = plan_retention(SEGMENTS, active(), TopicConfig(**config), NOW)
    assert (plan.remove, plan.reason, plan.seal) == (remove, reason, False)
    assert bool(plan) == (remove > 0)
    if plan:
        assert (plan.from_offset, plan.to_offset) == (0, 10 * remove)
        assert (plan.rows, plan.bytes) == (10 * remove, 100 * remove)


def test_the_active_segment_is_sealed_when_everything_is_over_age() -> None:
    plan = plan_retention(SEGMENTS, active(days=2), TopicConfig(retention_age_seconds=86400), NOW)
    assert plan.seal and plan.remove == 4 and plan.rows == 40 and plan.to_offset is None
    assert plan.reason == "age"
    alone = plan_retention([], active(days=2), TopicConfig(retention_age_seconds=86400), NOW)
    assert alone.seal and alone.remove == 1 and alone.reason == "age"


def test_an_empty_active_segment_is_not_sealed_again_and_again() -> None:
    plan = plan_retention([], active(rows=0, days=99), TopicConfig(retention_age_seconds=86400), NOW)
    assert not plan and not plan.seal


def test_a_younger_segment_protects_what_comes_after_it() -> None:
    """Ages rise with offsets; should a clock have lied, nothing is taken out of the middle."""
    odd = sealed((10, 100, 1), (10, 100, 9))
    assert not plan_retention(odd, active(), TopicConfig(retention_age_seconds=5 * 86400), NOW)


@given(
    parts=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 500), st.just(1)), max_size=8),
    rows=st.integers(0, 50),
    limit=st.integers(1, 200),
)
def test_the_configured_rows_stay_and_not_a_segment_more(
    parts: list[tuple[int, int, int]], rows: int, limit: int
) -> None:
    entries = sealed(*parts)
    plan = plan_retention(entries, active(rows=rows), TopicConfig(retention_rows=limit), NOW)
    total = sum(entry.rows for entry in entries) + rows
    rest = total - plan.rows
    assert plan.remove <= len(entries)
    if plan:
        assert rest >= limit
    if plan.remove < len(entries):
        assert rest - entries[plan.remove].rows < limit


def test_a_topic_without_limits_has_no_retention() -> None:
    assert not has_retention(TopicConfig())
    assert has_retention(TopicConfig(retention_rows=1))
