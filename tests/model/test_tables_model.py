"""Topics of both kinds beside a plain list: whatever is done to both, both tell the same.

The list knows every row that was ever appended, by partition and offset, which are gone for
good (erased, retained) and which a compaction may have taken away. Several partitions, the
synchronous interface and the asyncio twin; a crash is a copy of the directory as it stands,
with a torn write at its end.
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import virta
from tests.conformance.adapter import Loop, open_plainly
from virta.steward.steward import Steward

SEGMENT_BYTES = 64 * 1024
NUMBERS = st.integers(0, 11)
TEXTS = st.sampled_from(["", "a", "β", "x" * 3000])
# Keys of every sort: text that may be empty or missing, and a float with NaN and both zeros.
KEYS = st.tuples(st.sampled_from([None, "", "a", "b"]), st.sampled_from([0.0, -0.0, math.nan, 1.5]))

Key = tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class Kept:
    """A row as it was appended."""

    partition: int
    offset: int
    values: dict[str, Any]
    deleted: bool


def key_of(values: dict[str, Any]) -> Key:
    """Keys are told apart by value: NaN is NaN, and there is one zero."""
    number = values["at"]
    return values["name"], "NaN" if math.isnan(number) else number + 0.0


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values that compare as documented."""
    return {**values, "at": key_of(values)[1]}


class TablesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="virta-tables-"))
        self.path = self.root / "0"
        self.loop: Loop | None = None
        self.log: Any = None
        self.rows: list[Kept] = []
        self.columns: dict[str, Any] = {"name": str | None, "at": float, "n": int, "text": str}
        self.certain: dict[int, int] = {}  # before these offsets a compaction may have taken rows away
        self.versions = 1
        self.number = 0

    @initialize(
        kind=st.sampled_from(["append", "update"]),
        partitions=st.sampled_from([1, 3]),
        durability=st.sampled_from(["os", "disk"]),
        twin=st.booleans(),
    )
    def begin(self, kind: str, partitions: int, durability: str, twin: bool) -> None:
        self.kind, self.partitions = kind, partitions
        self.loop = Loop() if twin else None
        self.certain = dict.fromkeys(range(partitions), 0)
        self.open()
        self.topic = self.log.create_topic(
            "t",
            self.columns,
            kind=kind,
            keys=["name", "at"],
            partitions=partitions,
            durability=durability,
            segment_bytes=SEGMENT_BYTES,
            row_deletion=True,
            tombstone_age="1us",
        )

    def open(self) -> None:
        self.log = virta.open(self.path) if self.loop is None else open_plainly(self.loop, self.path)

    def teardown(self) -> None:
        if self.log is not None:
            self.log.close()
        if self.loop is not None:
            self.loop.stop()
        shutil.rmtree(self.root)

    # -- the model ------------------------------------------------------------------------------

    def table(self, before: dict[int, int] | None = None) -> dict[Key, dict[str, Any]]:
        """The newest row of each key; those of a key are in one partition, so their offsets decide."""
        newest: dict[Key, Kept] = {}
        for row in self.rows:
            if before is None or row.offset < before[row.partition]:
                newest[key_of(row.values)] = row
        return {key: plain(row.values) for key, row in newest.items() if not row.deleted}

    def took(self, ack: Any, rows: list[dict[str, Any]], *, deleted: bool = False) -> None:
        """Where the rows went: each partition has those of its keys, in their order."""
        assert ack.rows == len(rows)
        waiting = list(rows)
        for part in ack.parts:
            mine = [row for row in waiting if self.place(row) == part.partition]
            waiting = [row for row in waiting if self.place(row) != part.partition]
            assert part.rows == len(mine)
            for offset, values in zip(itertools.count(part.first_offset), mine, strict=False):
                self.rows.append(
                    Kept(partition=part.partition, offset=offset, values=values, deleted=deleted)
                )
        assert not waiting

    def place(self, values: dict[str, Any]) -> int:
        from virta.topics.key_values import KeyReader
        from virta.topics.partitioner import partition_of_hash

        reader = KeyReader(self.topic.schema, ["name", "at"])
        key = reader.read({"name": values["name"], "at": values["at"]})
        return partition_of_hash(key.hash, self.partitions)

    def make(self, keys: list[Any], text: str) -> list[dict[str, Any]]:
        made = []
        for name, at in keys:
            self.number += 1
            row = dict.fromkeys(self.columns) | {"name": name, "at": at, "n": self.number, "text": text}
            made.append(row)
        return made

    # -- writing --------------------------------------------------------------------------------

    @rule(keys=st.lists(KEYS, min_size=1, max_size=9), text=TEXTS)
    def append(self, keys: list[Any], text: str) -> None:
        rows = self.make(keys, text)
        self.took(self.topic.append(rows), rows)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4, unique_by=lambda key: (key[0], str(key[1] + 0.0))))
    def append_much(self, keys: list[Any]) -> None:
        """Enough to roll a segment."""
        for _ in range(8):
            rows = self.make(keys, "y" * 4000)
            self.took(self.topic.append(rows), rows)

    @precondition(lambda self: self.kind == "update")
    @rule(keys=st.lists(KEYS, min_size=1, max_size=5), text=TEXTS, whole=st.booleans())
    def upsert(self, keys: list[Any], text: str, whole: bool) -> None:
        table, wanted = self.table(), {}
        given = []
        for name, at in keys:
            part = {"name": name, "at": at, "text": text}
            key = key_of(part)
            if whole or key not in table:
                self.number += 1
                part["n"] = self.number
            given.append(part)
            old = wanted.get(key) or table.get(key) or dict.fromkeys(self.columns)
            wanted[key] = {**old, **part}
        self.took(self.topic.upsert(given), list(wanted.values()))

    @precondition(lambda self: self.kind == "update")
    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def delete(self, keys: list[Any]) -> None:
        rows = [{"name": name, "at": at} for name, at in keys]
        self.took(self.topic.delete(rows), rows, deleted=True)

    # -- changing -------------------------------------------------------------------------------

    @precondition(lambda self: "more" not in self.columns)
    @rule()
    def add_a_column(self) -> None:
        self.columns["more"] = int | None
        self.topic.alter(schema=self.columns)
        self.versions += 1
        for row in self.rows:
            if not row.deleted:
                row.values["more"] = None

    @rule()
    def compact(self) -> None:
        with virta.open(self.path) as log:
            report = Steward(log).run_once(force=True)
            assert report.ok, report.partitions
            offsets = log.topic("t").next_offsets
        if self.kind == "update":
            self.certain = dict(offsets)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), by_key=st.booleans())
    def erase(self, data: st.DataObject, by_key: bool) -> None:
        chosen = data.draw(st.sampled_from(self.rows)).values
        if by_key:
            key = {"name": chosen["name"], "at": chosen["at"]}
            self.topic.erase(keys=[key])
            gone = {key_of(chosen)}
        else:
            limit = data.draw(st.integers(0, self.number))
            self.topic.erase(where=f"n = {limit}")
            gone = {
                key_of(row.values) for row in self.rows if row.values.get("n") == limit and not row.deleted
            }
            if self.kind == "append":
                self.rows = [row for row in self.rows if row.values.get("n") != limit]
                return
        self.rows = [row for row in self.rows if key_of(row.values) not in gone]

    @rule(keep=st.integers(1, 40))
    def retain(self, keep: int) -> None:
        self.topic.alter(retention_rows=keep)
        with virta.open(self.path) as log:
            assert Steward(log).run_once().ok
        self.topic.alter(retention_rows=None)
        self.versions += 2
        starts = {part.number: part.start_offset for part in self.parts()}
        self.rows = [row for row in self.rows if row.offset >= starts[row.partition]]

    def parts(self) -> list[Any]:
        with virta.open(self.path) as log:
            return [Start(part.number, part.start_offset) for part in log.topic("t").partitions]

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.open()
        self.topic = self.log.topic("t")

    @rule(torn=st.sampled_from([b"", b"\xff\xff\xff\xff\x10\x00\x00\x00torn", bytes(300)]))
    def crash(self, torn: bytes) -> None:
        """What is on the disk at this moment, and half a write behind it, is all there is."""
        following = self.root / str(int(self.path.name) + 1)
        shutil.copytree(self.path, following)
        for directory in (following / "topics" / "t").glob("p*"):
            newest = max(directory.glob("*.arrows"))
            with newest.open("ab") as file:
                file.write(torn)
        self.log.close()
        shutil.rmtree(self.path)
        self.path = following
        self.open()
        self.topic = self.log.topic("t")

    # -- reading --------------------------------------------------------------------------------

    @rule()
    def read_rows(self) -> None:
        """Every row by its offset; of an update topic a compaction may have left only the newest."""
        known = {(row.partition, row.offset): row for row in self.rows}
        found = set()
        for row in self.topic[:]:
            expected = known[row.partition, row.offset]
            found.add((row.partition, row.offset))
            assert row.deleted == expected.deleted
            if not row.deleted:
                assert plain(row.to_dict()) == plain(expected.values)
        missing = known.keys() - found
        if self.kind == "append":
            assert not missing
        else:
            newest = {key_of(row.values): row for row in self.rows}
            live = {id(row) for row in newest.values() if not row.deleted}
            for place in missing:
                assert place[1] < self.certain[place[0]] and id(known[place]) not in live

    @precondition(lambda self: self.kind == "update")
    @rule()
    def read_table(self) -> None:
        expected = self.table()
        table = self.topic.table()
        assert {key_of(row): plain(row) for row in table.to_pylist()} == expected
        assert table.count() == len(expected) == table.to_arrow().num_rows
        few = (
            self.topic.table().where("n > 5 and text <> 'a'").columns("n").to_arrow().column("n").to_pylist()
        )
        assert sorted(few) == sorted(
            row["n"] for row in expected.values() if row["n"] > 5 and row["text"] != "a"
        )

    @precondition(lambda self: self.kind == "update")
    @rule(key=KEYS)
    def get(self, key: Any) -> None:
        given = {"name": key[0], "at": key[1]}
        found, expected = self.topic.get(given), self.table().get(key_of(given))
        assert (found and plain(found.to_dict())) == expected

    def moment(self, data: st.DataObject) -> dict[int, int]:
        """Offsets since when nothing was taken away."""
        ends = dict(self.topic.next_offsets)
        starts = {part.number: part.start for part in self.parts()}
        return {
            number: data.draw(st.integers(max(self.certain[number], starts[number]), end))
            for number, end in ends.items()
        }

    @precondition(lambda self: self.kind == "update")
    @rule(data=st.data())
    def read_the_past(self, data: st.DataObject) -> None:
        before = self.moment(data)
        found = self.topic.table(as_of=before).to_pylist()
        assert {key_of(row): plain(row) for row in found} == self.table(before)

    @precondition(lambda self: self.kind == "update")
    @rule(data=st.data())
    def changes_lead_from_then_to_now(self, data: st.DataObject) -> None:
        before = self.moment(data)
        table = self.table(before)
        for change in self.topic.changes(before):
            side = change.before or change.after
            key = key_of(side)
            old = table.pop(key, None)
            assert (change.before and plain(change.before)) == old
            if change.after is not None:
                table[key] = plain(change.after)
            assert (
                change.kind
                == {(True, False): "insert", (False, False): "update", (False, True): "delete"}[
                    change.before is None, change.after is None
                ]
            )
        assert table == self.table()

    @precondition(lambda self: self.kind == "update")
    @rule(data=st.data())
    def differences(self, data: st.DataObject) -> None:
        before = self.moment(data)
        old, new = self.table(before), self.table()
        found = {}
        for change in self.topic.diff(before):
            found[key_of(change.before or change.after)] = change.kind
        expected = dict.fromkeys(new.keys() - old.keys(), "insert")
        expected |= dict.fromkeys(old.keys() - new.keys(), "delete")
        expected |= {key: "update" for key in old.keys() & new.keys() if old[key] != new[key]}
        assert found == expected

    @rule()
    def ask_in_sql(self) -> None:
        (row,) = self.log.sql("select count(*) as c, coalesce(sum(n), 0)::bigint as s from t").to_pylist()
        rows = list(self.table().values()) if self.kind == "update" else [each.values for each in self.rows]
        assert row == {"c": len(rows), "s": sum(each["n"] for each in rows)}

    @rule()
    def newest_by_key(self) -> None:
        found = {key_of(row): plain(row) for row in self.topic.by_key(["at", "name"]).to_pylist()}
        expected = self.table()
        assert {key: {name: row[name] for name in self.columns} for key, row in found.items()} == expected

    @rule()
    def verify(self) -> None:
        report = self.topic.verify()
        assert report.ok, report.problems

    @rule()
    def history(self) -> None:
        assert [version.number for version in self.topic.history()] == list(range(1, self.versions + 1))
        first = self.topic.at_version(1)
        assert first.count() == self.topic[:].count()


@dataclass(frozen=True, slots=True)
class Start:
    number: int
    start: int

    @property
    def start_offset(self) -> int:
        return self.start


TablesModel.TestCase.settings = settings(
    max_examples=max(10, settings().max_examples // 8), stateful_step_count=25, deadline=None
)
TestTablesModel = pytest.mark.filterwarnings("error")(TablesModel.TestCase)
