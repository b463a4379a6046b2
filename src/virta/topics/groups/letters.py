"""Dead letters: rows that failed too often, kept in a topic beside their own, with why they did.

A topic's dead letters lie in the update topic `<topic>.dead`, made when its first one comes.
Its keys are group, topic id, partition and offset, so a row that is set aside twice, because
a process died between that and the commit, is there once. Nothing but the place of a row is
taken from a reader's word: the row itself is read from the topic.

`data` holds the row as an Arrow stream, exact; `row` the same as text, for people and SQL.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.errors import NotFound, UsageError
from virta.topics.groups.model import Failure, GroupKey

if TYPE_CHECKING:
    from virta.topics.topic import Topic

SUFFIX = ".dead"
KEYS = ("group", "topic_id", "partition", "offset")
SCHEMA: dict[str, Any] = {
    "group": str,
    "topic": str,
    "topic_id": str,
    "partition": int,
    "offset": int,
    "appended_at": datetime | None,
    "member": str,
    "attempts": int,
    "error_type": str,
    "error": str,
    "traceback": str,
    "row": str | None,
    "data": bytes | None,
}
# The end of a traceback says where it happened; a message may quote what is large.
TRACEBACK_CHARACTERS, ERROR_CHARACTERS, NAME_CHARACTERS = 8000, 2000, 300
# Longer rows are kept exact all the same, but not as text.
_TEXT_CHARACTERS = 64 * 1024
# Beside the largest row: its form as an Arrow stream, its text, and the error.
_SLACK_BYTES = 1024 * 1024


def dead_letters_name(topic: str) -> str:
    return topic + SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A row that failed too often."""

    group: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    appended_at: datetime | None
    failed_at: datetime
    member: str
    attempts: int
    error_type: str
    error: str
    traceback: str
    data: bytes | None

    def to_arrow(self) -> pa.Table | None:
        """The row with `_offset` and `_timestamp`; None where it was gone before it was set aside."""
        if self.data is None:
            return None
        with pa.ipc.open_stream(self.data) as reader:
            return reader.read_all()

    @property
    def row(self) -> dict[str, Any] | None:
        """The row's own columns."""
        table = self._own()
        return None if table is None else table.to_pylist()[0]

    def _own(self) -> pa.Table | None:
        table = self.to_arrow()
        if table is None:
            return None
        return table.drop_columns([name for name in ("_offset", "_timestamp") if name in table.column_names])

    @property
    def key(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in KEYS}

    @property
    def place(self) -> str:
        return f"{self.partition}@{self.offset}"


class DeadLetterBox:
    """Puts rows among the dead letters of their topic."""

    def __init__(self, open_topic: Callable[[str], Any], create_topic: Callable[..., Any]) -> None:
        self.open_topic = open_topic
        self._create_topic = create_topic

    def put(self, key: GroupKey, member: str, failures: Sequence[Failure]) -> None:
        source = self.open_topic(key.topic)
        if source.id != key.topic_id:
            raise NotFound(f"topic {key.topic!r} was dropped and made again: it is another topic now")
        self._box(source).append([_letter(source, key, member, failure) for failure in failures])

    def _box(self, source: Topic) -> Any:
        name = dead_letters_name(source.name)
        try:
            found = self.open_topic(name)
        except NotFound:
            found = self._create_topic(
                name,
                SCHEMA,
                kind="update",
                keys=list(KEYS),
                row_deletion=True,
                row_limit_bytes=2 * source.config.row_limit_bytes + _SLACK_BYTES,
                if_missing=True,
            )
        check_is_box(found)
        return found


def check_is_box(topic: Any) -> None:
    if not set(SCHEMA) <= set(topic.schema.names) or tuple(topic.config.keys) != KEYS:
        raise UsageError(
            f"topic {topic.name!r} is there already, and was not made for dead letters",
            hint="rename what it holds: read it into a topic of another name and drop this one",
        )


def _letter(source: Topic, key: GroupKey, member: str, failure: Failure) -> dict[str, Any]:
    rows = source.partition(failure.partition)[failure.offset : failure.offset + 1].to_arrow()
    found = rows.num_rows == 1  # else it was compacted or erased meanwhile
    return {
        "group": key.group,
        "topic": key.topic,
        "topic_id": key.topic_id,
        "partition": failure.partition,
        "offset": failure.offset,
        "appended_at": rows["_timestamp"][0].as_py() if found else None,
        "member": member,
        "attempts": failure.attempts,
        "error_type": failure.error_type[:NAME_CHARACTERS],
        "error": failure.error[:ERROR_CHARACTERS],
        "traceback": failure.traceback[-TRACEBACK_CHARACTERS:],
        "row": _text(rows) if found else None,
        "data": _stream(rows) if found else None,
    }


def _text(rows: pa.Table) -> str | None:
    (row,) = rows.drop_columns(["_offset", "_timestamp"]).to_pylist()
    text = json.dumps(row, default=str, ensure_ascii=False)
    return text if len(text) <= _TEXT_CHARACTERS else None


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class DeadLetters:
    """The dead letters of one group on one topic: to look at, to send again, to throw away."""

    def __init__(self, topic: Topic, group: str, open_topic: Callable[[str], Any]) -> None:
        self._topic = topic
        self._group = group
        self._open_topic = open_topic

    def _box(self) -> Any:
        box = self._open_topic(dead_letters_name(self._topic.name))
        check_is_box(box)
        return box

    def all(self) -> list[DeadLetter]:
        """All of them, the oldest first."""
        try:
            box = self._box()
        except NotFound:
            return []
        names = [name for name in SCHEMA if name != "row"]
        found = []
        for row in box.table().columns("_offset", "_timestamp", *names).to_arrow().to_pylist():
            if row["group"] == self._group and row["topic_id"] == self._topic.id:
                row.pop("_offset")
                found.append(DeadLetter(failed_at=row.pop("_timestamp"), **row))
        return sorted(found, key=lambda letter: (letter.failed_at, letter.partition, letter.offset))

    def resend(self, letters: Iterable[DeadLetter] | None = None) -> int:
        """Append these rows (or all) to their topic again, and take them off the list; how many.

        Every group on the topic meets them as new rows. Interrupted and begun again, no row is
        sent twice: each goes by a producer's name of its own.
        """
        from virta.types import Kind

        if self._topic.kind is Kind.UPDATE:
            raise UsageError(
                f"rows of the update topic {self._topic.name!r} are not sent again: "
                "an older row would become the newest of its key",
                hint="handle them by letter.row, and discard() them",
            )
        count = 0
        for letter in self._chosen(letters):
            own = letter._own()
            if own is not None:
                name = f"dead letter {letter.topic_id} {letter.place} {self._group}"
                with contextlib.closing(
                    self._topic.writer(producer=name[:1000], partition=letter.partition, linger=0)
                ) as writer:
                    if writer.last_sequence < 0:
                        writer.send_batch(own)
                count += 1
            self._box().delete(letter.key)
        return count

    def discard(self, letters: Iterable[DeadLetter] | None = None) -> int:
        """Take these (or all) off the list, for good; how many."""
        chosen = self._chosen(letters)
        if chosen:
            self._box().delete([letter.key for letter in chosen])
        return len(chosen)

    def _chosen(self, letters: Iterable[DeadLetter] | None) -> list[DeadLetter]:
        chosen = self.all() if letters is None else list(letters)
        for letter in chosen:
            if letter.group != self._group or letter.topic_id != self._topic.id:
                raise UsageError(f"the letter {letter.place} is one of group {letter.group!r} elsewhere")
        return chosen
