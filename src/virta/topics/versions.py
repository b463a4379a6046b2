"""The versions of a topic: what each was, since when, by whom, and what is different between two.

Every change is noted in `__events`, with the whole configuration and all columns; the version
in force is known from the topic's own record, also where its event is missing. Pure over what
it is given: it opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from virta.errors import NotFound
from virta.metadata.catalog import TopicRecord
from virta.topics.events import describe_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column in one version; its number stays when it is renamed."""

    name: str
    type: str
    nullable: bool
    number: int | None = None

    def __str__(self) -> str:
        return f"{self.type}{' | None' if self.nullable else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicVersion:
    """What a topic was from one change to the next."""

    number: int
    kind: str  # created, altered, schema changed, locked; "unknown" where nobody noted it
    timestamp: datetime | None
    actor: str | None
    schema_version: int
    config: Mapping[str, Any]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """One thing that is different: `what` is a setting, or "column NAME"."""

    what: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.what}: {_said(self.before)} → {_said(self.after)}"


def _said(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def history(rows: Iterable[Any], record: TopicRecord, schema: pa.Schema) -> list[TopicVersion]:
    """All versions, oldest first, from their events and the record in force."""
    known: dict[int, TopicVersion] = {}
    for row in rows:
        details = json.loads(row["details"] or "{}")
        if row["version"] and "columns" in details:
            known.setdefault(row["version"], _version(row, details))
    if record.version not in known:
        known[record.version] = _in_force(record, schema)
    return [known[number] for number in sorted(known)]


def _version(row: Any, details: Mapping[str, Any]) -> TopicVersion:
    return TopicVersion(
        number=row["version"],
        kind=row["kind"],
        timestamp=row.timestamp,
        actor=row["actor"],
        schema_version=details["schema_version"],
        config=details["config"],
        columns=_columns(details["columns"]),
    )


def _in_force(record: TopicRecord, schema: pa.Schema) -> TopicVersion:
    described = describe_version(record, schema)
    return TopicVersion(
        number=record.version,
        kind="unknown",
        timestamp=None,
        actor=None,
        schema_version=record.schema_version,
        config=json.loads(json.dumps(described["config"], default=str)),
        columns=_columns(described["columns"]),
    )


def _columns(described: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    return tuple(
        Column(name=each["name"], type=each["type"], nullable=each["nullable"], number=each.get("id"))
        for each in described
    )


def find_version(versions: Sequence[TopicVersion], number: int, topic: str) -> TopicVersion:
    """One of them; a negative number counts from the newest, which is -1."""
    wanted = number if number > 0 else versions[-1].number + 1 + number
    for each in versions:
        if each.number == wanted:
            return each
    listed = ", ".join(str(each.number) for each in versions)
    raise NotFound(f"topic {topic!r} has no version {number}", hint=f"its versions are {listed}")


def changes_between(before: TopicVersion, after: TopicVersion) -> list[VersionChange]:
    """What is different, settings first; a column is followed by its number over renames."""
    found = [
        VersionChange(what=name, before=before.config.get(name), after=after.config.get(name))
        for name in dict.fromkeys([*before.config, *after.config])
        if before.config.get(name) != after.config.get(name)
    ]
    old, new = ({_known_by(each): each for each in side.columns} for side in (before, after))
    for identity in dict.fromkeys([*old, *new]):
        one, two = old.get(identity), new.get(identity)
        if one != two:
            found.append(_column_change(one, two))
    return found


def _known_by(column: Column) -> int | str:
    return column.name if column.number is None else column.number


def _column_change(before: Column | None, after: Column | None) -> VersionChange:
    if before is None or after is None or before.name == after.name:
        name = (after or before).name  # type: ignore[union-attr]
        return VersionChange(
            what=f"column {name}",
            before=None if before is None else str(before),
            after=None if after is None else str(after),
        )
    texts = [f"{each.name} {each}" for each in (before, after)]
    return VersionChange(what=f"column {before.name}", before=texts[0], after=texts[1])
