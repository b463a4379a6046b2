"""API.md's lines about consumer groups, against a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import virta

ROWS = [{"id": 1}, {"id": 2}, {"id": 3}]


@pytest.fixture
def orders(tmp_path: Path) -> Any:
    with virta.open(tmp_path / "events") as log:
        orders = log.create_topic("orders", {"id": int})
        orders.append(ROWS)
        yield orders


def test_a_consumer_group(orders: Any) -> None:
    seen = []
    with orders.reader(group="billing") as reader:
        for batch in reader.batches(max_rows=10_000, stop_when_idle=0.01):
            seen += batch.column("id").to_pylist()
            assert (reader.lag.rows, reader.lag.seconds) == (0, 0.0)
    assert seen == [1, 2, 3]
    with orders.reader(group="billing") as reader:
        assert list(reader.batches(stop_when_idle=0)) == []
