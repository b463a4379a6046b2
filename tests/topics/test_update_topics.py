"""Update topics against a dict: whatever was appended and deleted, by whom and how, and whatever was lost."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import virta
from virta.topics import key_index, key_values, live, table_state, upserts

KINDS: dict[str, tuple[dict[str, Any], tuple[str, ...], Callable[[random.Random], tuple[Any, ...]]]] = {
    "int": ({"id": int}, ("id",), lambda r: (r.randrange(200),)),
    "text": ({"id": str}, ("id",), lambda r: (r.choice(["", "a", "key-"]) + str(r.randrange(60)),)),
    "nullable": ({"id": int | None}, ("id",), lambda r: (r.choice([None, *range(50)]),)),
    "composite": ({"a": str, "b": int}, ("b", "a"), lambda r: (r.randrange(9), r.choice("xyz"))),
    "float": ({"f": float}, ("f",), lambda r: (r.choice([0.0, -0.0, math.nan, 1.5, math.inf]),)),
    "list": ({"l": list[int]}, ("l",), lambda r: ([r.randrange(3)] * r.randrange(4),)),
}


SIDES = {"insert": (True, False), "update": (False, False), "delete": (False, True)}


def canonical(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key as a dict of Python tells keys apart."""
    return tuple(
        "NaN" if isinstance(v, float) and math.isnan(v) else tuple(v) if isinstance(v, list) else v
        for v in key
    )


class Model:
    """What is true: each key with its row, and the topic beside it."""

    def __init__(self, log: Any, kind: str, seed: int, **options: Any) -> None:
        columns, self.keys, self.draw = KINDS[kind]
        self.random = random.Random(seed)
        schema = {**columns, "value": int, "note": str | None}
        self.topic = log.create_topic("t", schema, kind="update", keys=self.keys, **options)
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.history: list[dict[tuple[Any, ...], dict[str, Any]]] = [{}]
        self.count = 0

    def row(self) -> dict[str, Any]:
        self.count += 1
        key = dict(zip(self.keys, self.draw(self.random), strict=True))
        return {**key, "value": self.count, "note": self.random.choice([None, "", "n" * 90])}

    def key_of(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return canonical(tuple(row[name] for name in self.keys))

    def step(self) -> None:
        if self.random.random() < 0.25:
            chosen = [dict(zip(self.keys, self.draw(self.random), strict=True)) for _ in range(3)]
            self.topic.delete(chosen if self.random.random() < 0.5 else chosen[0])
            for key in chosen if self.topic.next_offset - len(self.history) + 1 == 3 else chosen[:1]:
                self.rows = {k: v for k, v in self.rows.items() if k != self.key_of(key)}
                self.history.append(self.rows)
        else:
            rows = [self.row() for _ in range(self.random.choice([1, 2, 120]))]
            self.topic.append(rows if len(rows) > 1 else rows[0])
            for row in rows:
                self.rows = {**self.rows, self.key_of(row): row}
                self.history.append(self.rows)

    def check(self, topic: Any) -> None:
        self.check_table(topic.table(), self.rows)
        for key in [self.draw(self.random) for _ in range(10)]:
            found = topic.get(dict(zip(self.keys, key, strict=True)))
            expected = self.rows.get(canonical(key))
            assert (found is None) == (expected is None)
            assert expected is None or found["value"] == expected["value"]

    def check_table(self, table: Any, expected: dict[tuple[Any, ...], dict[str, Any]]) -> None:
        found = table.to_arrow()
        offsets = found.column("_offset").to_pylist()
        assert offsets == sorted(offsets)
        values = {self.key_of(row): row["value"] for row in found.select([*self.keys, "value"]).to_pylist()}
        assert values == {key: row["value"] for key, row in expected.items()}
        assert found.num_rows == len(expected) == table.count()

    def check_changes(self, topic: Any) -> None:
        """Played back from anywhere, the changes lead from the table there to the table now."""
        start = self.random.randrange(len(self.history))
        table = {self.key_of(row): row["value"] for row in self.history[start].values()}
        offset = -1
        for change in topic.changes(start):
            assert change.offset > offset
            offset = change.offset
            key = self.key_of(change.before or change.after)
            assert (change.before is None) == (key not in table)
            assert change.before is None or change.before["value"] == table.pop(key)
            assert (
                change.kind
                == {(True, False): "insert", (False, False): "update", (False, True): "delete"}[
                    (change.before is None, change.after is None)
                ]
            )
            if change.after is not None:
                table[key] = change.after["value"]
        assert table == {key: row["value"] for key, row in self.rows.items()}

    def check_past(self, topic: Any) -> None:
        end = self.random.randrange(len(self.history))
        self.check_table(topic.table(as_of=end), self.history[end])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(params=["all 64 bits", "three bits"])
def hashes(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keys that share a hash are not mixed up: with three bits nearly all of them do."""
    if request.param == "three bits":
        few = np.uint64(0x7000000000000001)
        whole = key_index.hash_columns
        combined = key_values.combined_hash
        monkeypatch.setattr(key_index, "always_exact", lambda kinds: False)
        monkeypatch.setattr(key_index, "hash_columns", lambda columns: whole(columns) & few)
        monkeypatch.setattr(table_state, "hash_columns", lambda columns: whole(columns) & few)
        monkeypatch.setattr(key_values, "hash_columns", lambda columns: whole(columns) & few)
        monkeypatch.setattr(key_values, "combined_hash", lambda hashes: combined(hashes) & int(few))
    yield


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_is_the_dict_of_its_newest_rows(
    path: Path, kind: str, hashes: None, monkeypatch: Any
) -> None:
    monkeypatch.setattr(key_index, "_RECENT_ROWS", 100)  # pieces, not only the dict
    monkeypatch.setattr(live, "_WHOLE_COLUMN", 1)  # some keys are gathered block by block
    monkeypatch.setattr(table_state, "_ROWS_AT_ONCE", 300)
    with virta.open(path) as log:
        model = Model(log, kind, seed=7, segment_bytes=64 * 1024)
        for turn in range(40):
            model.step()
            if turn % 8 == 0:
                model.check(model.topic)
            if turn % 20 == 0:
                model.check_past(model.topic)
                model.check_changes(model.topic)
        model.check(model.topic)
        model.check_past(model.topic)
        model.check_changes(model.topic)
        assert model.topic.stats().segments > 1
        assert model.topic.verify().ok
    with virta.open(path) as log:
        model.check(log.topic("t"))
        model.check_changes(log.topic("t"))


def test_without_the_derived_files_it_is_the_same(path: Path) -> None:
    with virta.open(path) as log:
        model = Model(log, "text", seed=3, segment_bytes=64 * 1024)
        for _ in range(40):
            model.step()
            rows = [model.row() for _ in range(60)]
            model.topic.append(rows)
            model.rows = {**model.rows, **{model.key_of(row): row for row in rows}}
        model.check(model.topic)
    files = sorted(path.rglob("*.keys"))
    assert len(files) > 1
    files[0].unlink()
    data = bytearray(files[1].read_bytes())
    data[200] ^= 1
    files[1].write_bytes(data)
    with virta.open(path) as log:
        model.check(log.topic("t"))
    assert files[0].exists() and files[1].read_bytes() != data


def test_two_handles_see_each_other(path: Path) -> None:
    with virta.open(path) as log, virta.open(path) as other:
        model = Model(log, "int", seed=5)
        seen = other.topic("t")
        for _ in range(30):
            model.step()
            model.check(seen)


def test_rows_that_are_in_memory_only_count(path: Path) -> None:
    settings = virta.Settings(dump_interval_ms=60_000)
    with virta.open(path, settings=settings) as log:
        model = Model(log, "text", seed=11, durability="memory")
        for _ in range(20):
            model.step()
            model.check(model.topic)
        model.check_past(model.topic)


def test_a_key_outlives_changes_of_the_schema(path: Path) -> None:
    with virta.open(path) as log:
        t = log.create_topic(
            "t", pa.schema([pa.field("k", pa.int32(), False), ("v", pa.int8())]), kind="update", keys=["k"]
        )
        t.append([{"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 3, "v": 3}])
        assert t.get(1) is not None and t.table().count() == 3
        wider = pa.schema([pa.field("key", pa.int64(), False), ("v", pa.int64()), ("w", pa.string())])
        t.alter(schema=wider, renames={"k": "key"})
        assert t.config.keys == ("key",)
        t.append({"key": 2, "v": 1 << 40, "w": "x"})
        t.delete(3)
        assert t.table().columns("key", "v", "w").to_pylist() == [
            {"key": 1, "v": 1, "w": None},
            {"key": 2, "v": 1 << 40, "w": "x"},
        ]
        assert t.get({"key": 1}).to_dict() == {"key": 1, "v": 1, "w": None}
        assert t.get(3) is None


def test_an_upsert_that_hopes_no_longer_waits_for_nobody(path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(upserts, "_HOPEFUL_TRIES", 0)
    for durability in ("os", "disk", "memory"):
        with virta.open(path) as log:
            schema = {"id": int, "a": int | None, "b": int | None}
            t = log.create_topic(durability, schema, kind="update", keys=["id"], durability=durability)
            t.append({"id": 1, "a": 1})
            assert t.upsert({"id": 1, "b": 2}).last_offset == 1
            assert t.get(1).to_dict() == {"id": 1, "a": 1, "b": 2}
            assert t[-1:].to_pylist() == [{"id": 1, "a": 1, "b": 2}]


def test_keys_that_may_be_null_are_one_key_in_one_upsert(path: Path) -> None:
    with virta.open(path) as log:
        t = log.create_topic(
            "t", {"id": int | None, "a": int | None, "b": int | None}, kind="update", keys=["id"]
        )
        t.upsert([{"id": 1, "a": 1}, {"id": None, "a": 2}, {"id": 1, "b": 3}, {"id": None, "b": 4}])
        assert t.table().to_pylist() == [{"id": 1, "a": 1, "b": 3}, {"id": None, "a": 2, "b": 4}]
