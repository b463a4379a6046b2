"""API.md's lines about consumer groups, against a directory and against a broker; and their twins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from tests.served import Served

ROWS = [{"id": 1}, {"id": 2}, {"id": 3}]


@pytest.fixture(params=["directory", "broker"])
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "directory":
        yield tmp_path / "events"
        return
    with Served(tmp_path / "events") as broker:
        yield broker.address


def test_a_consumer_group(address: Any) -> None:
    with virta.open(address) as log:
        orders = log.create_topic("orders", {"id": int})
        orders.append(ROWS)
        seen = []
        with orders.reader(group="billing") as reader:
            for batch in reader.batches(max_rows=10_000, stop_when_idle=0.01):
                seen += batch.column("id").to_pylist()
                assert (reader.lag.rows, reader.lag.seconds) == (0, 0.0)
        assert seen == [1, 2, 3]
        with orders.reader(group="billing") as reader:
            assert list(reader.batches(stop_when_idle=0)) == []


def test_a_consumer_group_awaited(address: Any) -> None:
    async def main() -> list[int]:
        seen = []
        async with virta.aopen(address) as log:
            orders = await log.create_topic("orders", {"id": int})
            await orders.append(ROWS)
            async with orders.reader(group="billing") as reader:
                async for batch in reader.batches(max_rows=10_000, stop_when_idle=0.01):
                    seen += batch.column("id").to_pylist()
                    assert (await reader.lag).rows == 0
            (found,) = await log.groups()
            assert (found.group, found.lag.rows) == ("billing", 0)
        return seen

    assert asyncio.run(main()) == [1, 2, 3]
