"""The newest row of each key, as SQL: what a topic with keys is as a table, now or as of a moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from virta.errors import UsageError
from virta.metadata.schemas import DELETED
from virta.types import Kind


def keys_of(topic: Any) -> list[str]:
    keys = list(topic.config.keys)
    if not keys:
        raise UsageError(f"topic {topic.name!r} has no keys", hint="keys are given when a topic is made")
    return keys


def newest_query(topic: Any, until: str = "", by: Sequence[str] = ()) -> str:
    """SQL for the newest row of each key; `until` is a condition on the rows that count."""
    chosen = list(by) or keys_of(topic)
    keys = ", ".join('"' + each.replace('"', '""') + '"' for each in chosen)
    name = topic.name.replace('"', '""')
    # over partitions a time says what is newest; within one, and for equal times, the offset does
    newest = f"qualify row_number() over (partition by {keys} order by _timestamp desc, _offset desc) = 1"
    if topic.kind != Kind.UPDATE:
        return f'select * from main."{name}" {f"where {until}" if until else ""} {newest}'
    if not until:
        return f'select * from main."{name}" {newest if set(chosen) != set(topic.config.keys) else ""}'
    inner = f'select * from main."{name}@:" where {until} {newest}'
    return f"select * exclude ({DELETED}) from ({inner}) where not {DELETED}"
