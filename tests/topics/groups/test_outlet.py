"""Positions in blocks: found again whatever the steward makes of the blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import virta
from virta.steward.steward import Steward
from virta.storage import sources
from virta.topics.groups.outlet import Outlet

ROWS = 600


def work(numbers: Any, target: Any, max_rows: int) -> None:
    with numbers.reader(group="g", into=target) as reader:
        for batch in reader.batches(max_rows, stop_when_idle=0):
            reader.send(batch.select(["n"]).rename_columns(["m"]))


@pytest.mark.parametrize("kind", ["append", "update"])
def test_positions_outlive_joined_and_compacted_blocks(tmp_path: Path, kind: str) -> None:
    """The commit is taken back after the blocks were rewritten: nothing is doubled all the same."""
    with virta.open(tmp_path / "events") as log:
        numbers = log.create_topic("numbers", {"n": int})
        numbers.append([{"n": n} for n in range(ROWS)])
        target = log.create_topic("target", {"m": int}, kind=kind, keys=["m"])
        work(numbers, target, 5)
        stored = target.partition(0).stored
        with stored.writing() as committer:
            committer.roll()
        target.append([{"m": ROWS + n} for n in range(100)])
        Steward(log).run_once(force=True)
        stored.tail.clear()
        stored.refresh()
        blocks = [block for block in stored.read(0, max_bytes=1 << 24) if block.header.is_rewritten]
        assert blocks, "nothing was rewritten"
        assert any(sources.of_block(block.data) for block in blocks)
        numbers.group("g").reset("oldest")
        before = target.next_offset
        work(numbers, target, 1000)
        assert target.next_offset == before
        assert numbers.group("g").describe().lag.rows == 0
        assert target.verify().ok


def test_positions_of_several_producers_in_one_block() -> None:
    positions = {1: "t1abc", (1 << 64) - 1: "t1é"}
    assert sources.encode(positions) == b'{"0000000000000001":"t1abc","ffffffffffffffff":"t1\\u00e9"}'


def test_groups_with_long_names_have_producers_too(tmp_path: Path) -> None:
    with virta.open(tmp_path / "events") as log:
        numbers, target = log.create_topic("numbers", {"n": int}), log.create_topic("target", {"m": int})
        assert Outlet(target, numbers._group_key("g" * 1024)).begin(0) == []
