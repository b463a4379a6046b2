"""Rows by key: from mapped pages and from files alike, in bounded memory, and nothing of what is gone."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import virta
from virta.log import Log
from virta.steward.steward import Steward
from virta.topics import lookup, table_snapshot

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("sort", pa.large_string(), nullable=False),
        pa.field("small", pa.int8(), nullable=False),
        pa.field("whole", pa.uint64(), nullable=False),
        pa.field("half", pa.float32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("maybe", pa.string()),
        pa.field("raw", pa.binary(), nullable=False),
        pa.field("wide", pa.large_binary(), nullable=False),
        pa.field("when", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("label", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("items", pa.list_(pa.int64()), nullable=False),
    ]
)


def row(number: int, generator: random.Random) -> dict[str, Any]:
    return {
        "id": number,
        "sort": "kind" * (number % 3),
        "small": number % 128,
        "whole": (1 << 64) - 1 - number,
        "half": number / 4,
        "text": generator.choice(["", "ä", "x" * 2000]),
        "maybe": generator.choice([None, "", "m"]),
        "raw": bytes([number % 256]) * (number % 5),
        "wide": b"w" * (number % 7),
        "when": datetime(2026, 1, 1, second=number % 60, tzinfo=UTC),
        "label": f"l{number % 4}",
        "items": list(range(number % 3)),
    }


def fill(log: Log, **options: Any) -> Any:
    topic = log.create_topic(
        "t", SCHEMA, kind="update", keys=["id", "sort"], segment_bytes=64 * 1024, **options
    )
    generator = random.Random(3)
    for _ in range(12):
        topic.append([row(generator.randrange(150), generator) for _ in range(60)])
    return topic


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("place", ["mapped", "files"])
def test_a_row_is_the_same_wherever_it_is_read(
    tmp_path: Path, place: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "files":
        monkeypatch.setattr(lookup, "_RESIDENT_BYTES", -(1 << 60))
        monkeypatch.setattr(lookup, "_LOOKED_AT_EVERY", 1)
    with virta.open(tmp_path) as log:
        topic = fill(log, compression=compression)
        topic.sync()
        for _ in range(2):
            expected = {each["id"]: each for each in topic.table().to_pylist()}
            stamps = {each["id"]: (each.offset, each.timestamp) for each in topic.table()}
            for number in range(150):
                found = topic.get({"id": number, "sort": "kind" * (number % 3)})
                assert (None if found is None else found.to_dict()) == expected.get(number)
                assert found is None or (found.offset, found.timestamp) == stamps[number]
                assert topic.get({"id": number, "sort": "other"}) is None
            topic.upsert(
                [{"id": 7, "sort": "kind", "text": "set"}, {"id": 8, "sort": "kindkind", "small": 1}]
            )
            assert topic.get((7, "kind")).to_dict() == {**expected[7], "text": "set"}
            assert topic.get((8, "kindkind")).to_dict() == {**expected[8], "small": 1}
            Steward(log).run_once(force=True)
        assert topic._lookup(topic.partition(0).stored)._from_files == (place == "files")


def test_nothing_is_kept_of_segments_that_are_gone(tmp_path: Path) -> None:
    with virta.open(tmp_path) as log:
        topic = fill(log, row_deletion=True)
        for number in range(150):
            topic.get((number, "kind" * (number % 3)))
        looked = topic._lookup(topic.partition(0).stored)
        before = set(looked._blocks)
        topic.erase(keys=[{"id": 7, "sort": "kind"}])
        Steward(log).run_once(force=True)
        assert topic.get((7, "kind")) is None
        assert topic.get((10, "kind"))["id"] == 10
        there = {keys.key for keys in looked.index.segments}
        assert before and all(name[:2] in there for name in looked._blocks)


def test_a_large_table_is_filtered_ahead_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_snapshot, "_GATHERED_ROWS", 7)
    monkeypatch.setattr(table_snapshot, "_ALONE", 1)
    with virta.open(tmp_path) as log:
        topic = fill(log)
        offsets = topic.table().columns("_offset").to_arrow().column(0).to_pylist()
        newest = {each["id"]: each.offset for each in topic}
        assert offsets == sorted(newest.values())
        assert [each.offset for each in topic.table().limit(5)] == offsets[:5]  # left before its end
        assert topic.table().where("small < 9").count() == sum(number % 128 < 9 for number in newest)
