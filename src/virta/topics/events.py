"""What happened to topics, as rows of the internal topic `__events`.

One function notes an event: `EventLog.record` (`log.record_event` for the layers above).
It is called after the thing itself is done and in force, and it never fails it: what
cannot be noted (a full disk, a damaged `__events`) is told to the program's logging, and
the caller gets False. Versions of a topic that were not noted, because their process died
in between, are noted before the topic changes again: only the newest can be missing, and
topic.toml says what it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import json
import logging
import socket
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.errors import NotFound, VirtaError
from virta.metadata.catalog import TopicRecord
from virta.metadata.internal import EVENTS
from virta.metadata.python_types import describe
from virta.metadata.schemas import field_id
from virta.types import Event

if TYPE_CHECKING:
    from virta.topics.topic import Topic

_log = logging.getLogger("virta.events")

CREATED = "created"
ALTERED = "altered"
SCHEMA_CHANGED = "schema changed"
LOCKED = "locked"
DELETED = "deleted"
ERASED = "rows erased"
VERSION_KINDS = (CREATED, ALTERED, SCHEMA_CHANGED, LOCKED)


class EventLog:
    """Notes events. `open_topic` opens an internal topic, and makes it if it is told to."""

    def __init__(self, open_topic: Callable[..., Topic]) -> None:
        self._open_topic = open_topic

    def record(self, event: Event) -> bool:
        """Note an event; whether it is noted. Raises nothing: what happened has happened."""
        try:
            self._open_topic(EVENTS, create=True)._append_own(row_of(event))
        except VirtaError as error:
            _log.warning("the event %r of topic %r could not be noted: %s", event.kind, event.topic, error)
            return False
        return True

    def record_version(self, record: TopicRecord, schema: pa.Schema, kind: str, **details: Any) -> bool:
        """Note that a version of a topic is in force, and all that it is."""
        if record.name == EVENTS:
            return True
        described = {**describe_version(record, schema), **details}
        return self.record(
            Event(
                kind=kind,
                topic=record.name,
                topic_id=record.id.hex(),
                version=record.version,
                details=described,
            )
        )

    def complete(self, record: TopicRecord, schema: pa.Schema) -> None:
        """Note the version in force, if nobody has: its process may have died before it could."""
        if record.name == EVENTS:
            return
        with contextlib.suppress(VirtaError):
            if record.version not in self.versions(record.id):
                kind = CREATED if record.version == 1 else ALTERED
                self.record_version(record, schema, kind, noted_later=True)

    def versions(self, topic_id: bytes) -> set[int]:
        """The versions of a topic that are noted."""
        return {row["version"] for row in self.rows(topic_id, columns=("version", "kind")) if row["version"]}

    def rows(self, topic_id: bytes, *, columns: tuple[str, ...] | None = None) -> list[Any]:
        """All that is noted of the versions of a topic, oldest first."""
        try:
            events = self._open_topic(EVENTS, create=False)
        except NotFound:
            return []
        kinds = ", ".join(f"'{kind}'" for kind in VERSION_KINDS)
        found = events.where(f"topic_id = '{topic_id.hex()}' and kind in ({kinds})")
        return list(found if columns is None else found.columns(*columns))


def row_of(event: Event) -> dict[str, Any]:
    """An event as a row of `__events`."""
    row = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    row["actor"] = event.actor if event.actor is not None else this_process()
    row["details"] = _json(event.details) if event.details else None
    return row


def _json(details: Mapping[str, Any]) -> str:
    return json.dumps(dict(details), default=str, ensure_ascii=False, separators=(",", ":"))


@cache
def this_process() -> str:
    """Who acts where nobody else is named: the user of this process, and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def describe_version(record: TopicRecord, schema: pa.Schema) -> dict[str, Any]:
    """Configuration and columns of a version, as plain values."""
    config = {name: value for name, value in dataclasses.asdict(record.config).items() if value is not None}
    return {
        "schema_version": record.schema_version,
        "config": config,
        "columns": [
            {
                "name": field.name,
                "type": describe(field.type),
                "nullable": field.nullable,
                "id": field_id(field),
            }
            for field in schema
        ],
    }
