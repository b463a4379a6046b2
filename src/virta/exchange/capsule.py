"""A bug capsule: a range of rows with all that is needed to look at it again, in one file.

    write_capsule("bug.capsule", log.topic("orders"), start=100, stop=120, query="select …")
    with virta.open("bug.capsule") as log:      # a log of its own, gone when it is closed
        log.topic("orders"), log.capsule.expected, log.capsule.answer()

The file is a zip of three members, each for itself readable by anybody:

    capsule.json      what it is: topic, range, where groups stood, the query and what should come out
    rows.arrow        the rows as an Arrow IPC stream, with `_offset` and `_timestamp` as they were
    test_capsule.py   a test for pytest

In the opened log rows have the times they had. Their offsets begin at 0: row `n` of the capsule
is row `capsule.first + n` of the log it was taken from (in an update topic, the row with that place).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from virta.errors import Corrupt, NotFound, TooLarge, UsageError
from virta.exchange.json_values import to_json
from virta.log import Log
from virta.metadata.schemas import DELETED, OFFSET, TIMESTAMP
from virta.settings import Settings

KIND = "virta capsule 1"
# A bug fits into it; more is an export.
MOST_ROWS = 100_000
_MEMBER_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Capsule:
    """What a capsule says of itself."""

    topic: str
    kind: str  # of the topic
    keys: tuple[str, ...]
    partition: int
    first: int
    last: int
    rows: int
    made_us: int
    note: str = ""
    where: str = ""
    head: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)  # group → offset in the log it came from
    query: str = ""
    expected: Sequence[Any] | None = None

    def to_json(self) -> str:
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(values | {"kind": KIND, "topic_kind": self.kind}, indent=2)


class CapsuleLog(Log):
    """The log that a capsule opens as: in a directory of its own, which goes with it."""

    capsule: OpenedCapsule

    def close(self) -> None:
        try:
            super().close()
        finally:
            shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCapsule:
    """A capsule and the log it was opened as."""

    about: Capsule
    log: CapsuleLog

    @property
    def first(self) -> int:
        """The offset that the row at 0 had."""
        return self.about.first

    @property
    def expected(self) -> Sequence[Any] | None:
        """What should come out of the query, as JSON values."""
        return self.about.expected

    def answer(self) -> list[Any]:
        """What comes out of the query now, as JSON values."""
        return answer_of(self.log, self.about.query)


def answer_of(log: Any, query: str) -> list[Any]:
    """The result of a query as a list of JSON objects."""
    table = log.sql(query).to_arrow()
    columns = [
        [value for chunk in table.column(name).chunks for value in to_json(chunk)]
        for name in table.column_names
    ]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


# -- writing ----------------------------------------------------------------------------------------


def write_capsule(
    target: str | Path | IO[bytes],
    topic: Any,
    *,
    start: int,
    stop: int,
    partition: int = 0,
    where: str = "",
    query: str = "",
    expected: Sequence[Any] | None = None,
    positions: Mapping[str, int] | None = None,
    note: str = "",
) -> Capsule:
    """Put the rows of a range into a file. Without `expected`, what the query gives now is expected."""
    table = _rows_of(topic, partition, start, stop, where)
    offsets = table.column(OFFSET)
    about = Capsule(
        topic=topic.name,
        kind=str(topic.kind),
        keys=tuple(topic.config.keys),
        partition=partition,
        first=offsets[0].as_py(),
        last=offsets[-1].as_py(),
        rows=table.num_rows,
        made_us=time.time_ns() // 1000,
        note=note,
        where=where,
        head=topic.heads[partition],
        positions=dict(positions or {}),
        query=query.strip() or _default_query(topic.name),
        expected=expected,
    )
    if expected is None:
        with _opened(about, table) as log:
            about = _with_expected(about, answer_of(log, about.query))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("capsule.json", about.to_json())
        file.writestr("test_capsule.py", test_text(about))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        file.writestr("rows.arrow", sink.getvalue().to_pybytes())
    return about


def _with_expected(about: Capsule, expected: list[Any]) -> Capsule:
    return dataclasses.replace(about, expected=expected)


def _default_query(topic: str) -> str:
    return 'select count(*) as "rows" from "' + topic.replace('"', '""') + '"'


def _rows_of(topic: Any, partition: int, start: int, stop: int, where: str) -> pa.Table:
    selection = topic.partition(partition)[start:stop]
    if where:
        selection = selection.where(where)
    batches, count = [], 0
    with contextlib.closing(selection.batches()) as found:
        for batch in found:
            batches.append(batch)
            count += batch.num_rows
            if count > MOST_ROWS:
                raise TooLarge(
                    f"a capsule holds at most {MOST_ROWS:,} rows",
                    hint="choose a smaller range, or export these",
                )
    if not count:
        raise NotFound("there are no rows in this range", hint="a capsule holds at least one row")
    return pa.Table.from_batches(batches)


def test_text(about: Capsule, file_name: str = "bug.capsule") -> str:
    """A test that opens the capsule and asks it."""
    query = "\n".join(f"    # {line}" for line in about.query.splitlines())
    return f'''"""{_one_line(about.note) or f"Rows {about.first} to {about.last} of {about.topic}"}"""

from pathlib import Path

import virta


def test_capsule():
    """The query below gives what was expected; put the call of your own code in its place."""
{query}
    with virta.open(Path(__file__).with_name({file_name!r})) as log:
        assert log.capsule.answer() == log.capsule.expected
'''


test_text.__test__ = False  # type: ignore[attr-defined] # pytest: this is no test, it writes one


def _one_line(text: str) -> str:
    return " ".join(text.replace("\\", "/").replace('"', "'").split())


# -- reading ------------------------------------------------------------------------------------------


def read_capsule(path: str | Path) -> tuple[Capsule, pa.Table]:
    """What a capsule says of itself, and its rows."""
    try:
        with zipfile.ZipFile(path) as file:
            about = _parse(_member(file, "capsule.json"))
            with pa.ipc.open_stream(_member(file, "rows.arrow")) as stream:
                return about, stream.read_all()
    except FileNotFoundError:
        raise NotFound(f"there is no capsule at {path}") from None
    except (zipfile.BadZipFile, pa.ArrowInvalid, EOFError) as error:
        raise Corrupt("this is not a capsule, or not a whole one", file=str(path)) from error


def _member(file: zipfile.ZipFile, name: str) -> bytes:
    try:
        if file.getinfo(name).file_size > _MEMBER_BYTES:
            raise TooLarge(f"{name} in the capsule is larger than a capsule is")
        return file.read(name)
    except KeyError:
        raise Corrupt(f"the capsule holds no {name}", file=str(file.filename)) from None


def _parse(data: bytes) -> Capsule:
    try:
        values = json.loads(data)
        if values.pop("kind") != KIND:
            raise UsageError("this capsule is of a kind that this version does not know")
        values["kind"] = values.pop("topic_kind")
        values["keys"] = tuple(values["keys"])
        return Capsule(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt("capsule.json is not what a capsule says of itself") from error


def open_capsule(path: str | Path, *, settings: Settings | None = None) -> CapsuleLog:
    """The capsule as a log, in a temporary directory that goes when the log is closed."""
    about, table = read_capsule(Path(path).expanduser())
    return _opened(about, table, settings)


def _opened(about: Capsule, table: pa.Table, settings: Settings | None = None) -> CapsuleLog:
    place = Path(tempfile.mkdtemp(prefix="virta-capsule-"))
    try:
        clock = _PastClock(table.column(TIMESTAMP)[0].cast(pa.int64()).as_py())
        with Log(place, clock=clock) as log:
            _fill(log, about, table, clock)
        opened = CapsuleLog(place, settings=settings)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    opened.capsule = OpenedCapsule(about=about, log=opened)
    return opened


class _PastClock:
    """The time at which the row that is being appended was appended first."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, us: int) -> None:
        self.us = us

    def now_us(self) -> int:
        return self.us


def _fill(log: Log, about: Capsule, table: pa.Table, clock: _PastClock) -> None:
    own = pa.schema([each for each in table.schema if each.name not in (OFFSET, TIMESTAMP, DELETED)])
    topic = log.create_topic(about.topic, own, kind=about.kind, keys=list(about.keys))
    for batch, us, deletes in _runs(table):
        clock.us = us
        if deletes:
            topic.delete(batch.select(list(about.keys)).to_pylist())
        else:
            topic.append(batch.select(own.names))
    offsets = table.column(OFFSET).to_pylist()
    for group, offset in about.positions.items():
        topic.group(group).reset(sum(1 for each in offsets if each < offset))


def _runs(table: pa.Table) -> Iterator[tuple[pa.RecordBatch, int, bool]]:
    """The rows in pieces of one time, which all delete, or all do not."""
    for batch in table.to_batches():
        stamps = batch.column(TIMESTAMP).cast(pa.int64()).to_pylist()
        marks = batch.column(DELETED).to_pylist() if DELETED in batch.schema.names else [False] * len(stamps)
        first = 0
        for row in range(1, len(stamps) + 1):
            if row == len(stamps) or (stamps[row], marks[row]) != (stamps[first], marks[first]):
                yield batch.slice(first, row - first), stamps[first], bool(marks[first])
                first = row
