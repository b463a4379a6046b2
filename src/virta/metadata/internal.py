"""Topics that Virta keeps for itself: names beginning with `__`, otherwise as any other.

Nobody but Virta makes them or appends to them; anybody may read, tail and query them.
Each is made when its first row comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from virta.errors import Denied

PREFIX = "__"
EVENTS = "__events"
OFFSETS = "__offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """How an internal topic is made."""

    name: str
    schema: Mapping[str, Any]
    keys: tuple[str, ...] = ()
    kind: str = "append"
    options: Mapping[str, Any] = field(default_factory=dict)


INTERNAL_TOPICS = {
    topic.name: topic
    for topic in (
        InternalTopic(
            name=EVENTS,
            schema={
                "kind": str,
                "topic": str | None,
                "topic_id": str | None,
                "version": int | None,
                "partition": int | None,
                "from_offset": int | None,
                "to_offset": int | None,
                "hash_before": str | None,
                "hash_after": str | None,
                "actor": str | None,
                "details": str | None,
            },
            keys=("topic",),
        ),
        InternalTopic(
            name=OFFSETS,
            kind="update",
            schema={
                "group": str,
                "topic": str,
                "partition": int,
                "topic_id": str,
                "token": str | None,
                "offset": int | None,
                "epoch": int,
                "member": str | None,
            },
            keys=("group", "topic", "partition"),
        ),
    )
}


def is_internal(name: str) -> bool:
    return name.startswith(PREFIX)


def check_not_internal(name: str, doing: str) -> None:
    """Refuse what only Virta itself does to its own topics."""
    if is_internal(name):
        raise Denied(
            f"{name!r} is a topic of Virta's own, and is not {doing} from outside",
            hint=f"names beginning with {PREFIX!r} are kept for what Virta notes itself; it can be read",
        )
