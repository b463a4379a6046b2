"""The interface users see, awaited: API.md's lines, through the twin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import virta
from tests.contract.test_sync import ROWS, SCHEMA
from tests.served import Served


@pytest.fixture(params=["directory", "broker"])
async def log(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    if request.param == "directory":
        async with virta.aopen(tmp_path / "events") as log:
            yield log
        return
    with Served(tmp_path / "events") as broker:
        async with virta.aopen(broker.address) as log:
            yield log


@pytest.fixture
async def orders(log: Any) -> Any:
    orders = await log.create_topic("orders", SCHEMA, keys=["id"])
    await orders.append({"id": 1, "user": "ada", "amount": 9.5})
    await orders.append([{"id": 2, "user": "bob", "amount": 3.0}, {"id": 3, "user": "ada", "amount": 7.25}])
    return orders


async def test_aopen_is_entered_or_awaited(tmp_path: Path) -> None:
    async with virta.aopen(tmp_path) as log:
        assert log.path == tmp_path
    log = await virta.aopen(tmp_path)
    assert await log.topics() == []
    await log.close()
    with pytest.raises(virta.Closed):
        await log.topics()


async def test_topics(log: Any, orders: Any) -> None:
    orders = await log.topic("orders")
    with pytest.raises(virta.NotFound, match="orders"):
        await log.topic("ordres")
    assert (orders.name, orders.kind) == ("orders", "append")
    await orders.alter(schema={**SCHEMA, "note": str | None}, retention_age="7d")
    assert await orders.version == 2
    assert (await orders.config).retention_age_seconds == 7 * 24 * 3600
    assert (await orders.schema).names == ["id", "user", "amount", "note"]
    await orders.lock()
    with pytest.raises(virta.Locked):
        await orders.append(ROWS)
    await log.drop_topic("orders")
    assert await log.topics() == []


async def test_append(orders: Any) -> None:
    ack = await orders.append(ROWS, if_next_offset=3)
    assert (ack.partition, ack.first_offset, ack.last_offset) == (0, 3, 2 + len(ROWS))
    assert ack.head == await orders.head
    with pytest.raises(virta.Conflict):
        await orders.append(ROWS, if_next_offset=3)
    assert (await orders.append(pa.Table.from_pylist(ROWS))).rows == len(ROWS)


async def test_writer(orders: Any) -> None:
    async with orders.writer() as w:
        for row in ROWS:
            await w.send(row)
        await w.send_batch(pa.Table.from_pylist(ROWS))
    for _ in range(2):
        async with orders.writer(producer="importer-1") as w:
            for n, row in enumerate(ROWS):
                if n > w.last_sequence:
                    await w.send(row)
    assert await orders.next_offset == 3 + 3 * len(ROWS)
    w = await orders.writer(producer="importer-1")
    assert w.last_sequence == len(ROWS) - 1
    await w.close()


async def test_reading(orders: Any) -> None:
    assert [(row.offset, row["user"]) async for row in orders[-2:]] == [(1, "bob"), (2, "ada")]
    assert (await orders[1])["user"] == "bob"
    lazy = orders.since("-15m").until("2100-11-18T10:00Z").where("amount > 5").columns("user", "amount")
    assert await lazy.to_pylist() == [{"user": "ada", "amount": 9.5}, {"user": "ada", "amount": 7.25}]
    assert await orders[:].count() == await orders.count() == 3
    assert [row["id"] async for row in orders] == [1, 2, 3]
    assert [row["id"] async for row in orders.tail(stop_when_idle=0.01)] == [1, 2, 3]


async def test_tables_feed_every_arrow_reader(orders: Any) -> None:
    table = await orders[:].to_arrow()
    assert polars.DataFrame(table)["amount"].sum() == 19.75
    assert pandas.DataFrame.from_arrow(table)["user"].tolist() == ["ada", "bob", "ada"]
    assert duckdb.from_arrow(table).count("*").fetchall() == [(3,)]


async def test_the_verbs_underneath(orders: Any) -> None:
    p = orders.partition(0)
    block = await p.fetch(await p.first_token)
    assert (block.base_offset, block.rows) == (0, 1)
    assert [each.base_offset for each in await p.fetch_batch(from_=1, to=200)] == [1]
    blocks, token = await p.poll(await p.first_token)
    assert [each.rows for each in blocks] == [1, 2]
    waiting = asyncio.create_task(p.long_poll(token, timeout=30.0))
    await orders.append(ROWS)
    blocks, token = await waiting
    assert [each.rows for each in blocks] == [len(ROWS)]
    async for streamed in p.stream(await p.first_token):
        assert streamed.hash == block.hash
        break
    block.verify()
    assert (await p.find(block.hash)).base_offset == 0


async def test_verify_and_where_it_stands(log: Any, orders: Any) -> None:
    report = await orders.verify()
    assert (report.ok, report.rows, report.heads) == (True, 3, {0: await orders.head})
    assert (await orders.start_offset, await orders.next_offset) == (0, 3)
    await orders.sync()
    assert await orders.durable_offset == 3
    assert (await orders.stats()).rows == (await log.stats()).rows == 3
    assert await orders.next_offsets == {0: 3}
    assert (await log.verify())["orders"].ok


async def test_reprs_look_at_no_file(log: Any, orders: Any) -> None:
    assert repr(log) == f"AsyncLog({str(log.path)!r})"
    assert repr(orders) == "AsyncTopic('orders')"
    assert repr(orders.partition(0)) == "AsyncPartition('orders'/0)"
    assert repr(orders[1:3]) == "AsyncSelection('orders', start=1, end=3)"
    async with orders.writer() as w:
        assert repr(w) == "AsyncWriter('orders', last_sequence=-1)"
