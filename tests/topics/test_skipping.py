"""A filtered read leaves out blocks whose statistics say that nothing in them can match."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import virta
from virta.storage.segment import Segment


@pytest.fixture
def log(tmp_path: Path):
    with virta.open(tmp_path / "log") as opened:
        yield opened


def _filled(log, blocks: int):
    topic = log.create_topic("t", {"id": int, "text": str}, segment_bytes="64KiB")
    for block in range(blocks):
        ids = range(block * 100, block * 100 + 100)
        topic.append(pa.table({"id": list(ids), "text": [f"row {number}" * 10 for number in ids]}))
    return topic


def test_only_blocks_that_may_match_are_read(log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = _filled(log, 60)
    assert topic.stats().segments > 3
    assert topic.where("id = 10").count() == 1  # makes the statistics of every sealed segment
    read: list[int] = []
    real = Segment.read_blocks

    def counted(self, start, stop, **options):
        blocks = real(self, start, stop, **options)
        read.extend(block.header.base_offset for block in blocks if block.header.rows)
        return blocks

    monkeypatch.setattr(Segment, "read_blocks", counted)
    assert topic.where("id = 150").to_pylist() == [{"id": 150, "text": "row 150" * 10}]
    active = log.topic("t").partition(0).stored._view.active.entry.base
    assert [base for base in read if base < active] == [100]


def test_statistics_can_be_deleted(log, tmp_path: Path) -> None:
    topic = _filled(log, 30)
    before = topic.where("id between 990 and 1010").to_pylist()
    files = list(tmp_path.rglob("*.stats"))
    assert files
    for path in files:
        path.unlink()
    assert topic.where("id between 990 and 1010").to_pylist() == before
    for path in tmp_path.rglob("*.stats"):
        path.write_bytes(b"not statistics")
    assert topic.where("id between 990 and 1010").to_pylist() == before


def test_a_new_column_of_a_renamed_one_s_name_is_not_judged_by_its_statistics(log) -> None:
    topic = _filled(log, 30)
    assert topic.where("id >= 0").count() == 3000
    topic.alter(schema={"number": int, "text": str, "id": int | None}, renames={"id": "number"})
    topic.append({"number": 1, "text": "new", "id": 7})
    assert topic.where("id = 7").count() == 1
    assert topic.where("number = 2999").count() == 1
    assert topic.where("id is null").count() == 3000
