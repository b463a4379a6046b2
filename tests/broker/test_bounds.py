"""At the edges: acknowledgements, durability, compression, clients that take nothing."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from tests.protocol import independent as wire
from tests.protocol.independent import Client
from tests.served import Served
from virta.broker.reading import ANSWER_BYTES
from virta.broker.session import ANSWERS_AT_ONCE

TEXT = {"text": "x" * 100_000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "events") as broker:
        yield broker


@pytest.fixture
def log(broker: Served) -> Iterator[Any]:
    with virta.open(broker.address) as log:
        yield log


@pytest.mark.parametrize("acks", ["leader", "all", "none"])
def test_acknowledgements_say_who_has_the_rows(broker: Served, log: Any, acks: str) -> None:
    log.create_topic("orders", {"id": int})
    with virta.open(f"{broker.address}?acks={acks}") as other:
        orders = other.topic("orders")
        one, several = orders.append({"id": 1}), orders.append([{"id": 2}, {"id": 3}])
        assert (one.acks, several.acks, several.rows) == (acks, acks, 2)
        assert (one.first_offset, several.first_offset) == ((-1, -1) if acks == "none" else (0, 1))
        with orders.writer() as writer:
            writer.send({"id": 4})
        # with none they are on their way
        found = [row["id"] for row in itertools.islice(orders.tail(stop_when_idle=20), 4)]
        assert found == [1, 2, 3, 4]


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_the_topics_durability_is_reached(log: Any, durability: str) -> None:
    orders = log.create_topic("orders", {"id": int}, durability=durability)
    assert orders.append({"id": 1}).durability == durability
    assert (orders.durable_offset == 1) >= (durability == "disk")
    assert orders[0]["id"] == 1


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_rows_are_compressed_on_the_wire_and_on_disk(broker: Served, log: Any, compression: str) -> None:
    orders = log.create_topic("orders", {"text": str}, compression=compression)
    before = broker.server.tally.received_bytes
    orders.append([TEXT] * 10)
    sent = broker.server.tally.received_bytes - before
    assert (sent < 100_000) is (compression != "none")
    assert (orders.stats().bytes < 100_000) is (compression != "none")
    assert orders[9]["text"] == TEXT["text"]


@pytest.mark.parametrize("type_", [wire.FETCH, wire.POLL, wire.STREAM, wire.SELECT])
def test_a_client_that_takes_nothing_costs_a_bounded_amount(broker: Served, log: Any, type_: int) -> None:
    texts = log.create_topic("texts", {"text": str})
    for _ in range(12):
        texts.append([TEXT] * 10)
    broker.call(lambda: broker.server.service.forget("texts"))
    stuck = Client(broker.port)
    stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    credit = wire.field(10 if type_ == wire.SELECT else 8, 1 << 40)
    for _ in range(300):
        stuck.begin(type_, wire.field(1, "texts") + credit)

    def held() -> int:
        return sum(
            session._out_bytes + session._transport.get_write_buffer_size()
            for session in broker.server.sessions
        )

    most, end = 0, time.monotonic() + 1.0
    served = 0
    while time.monotonic() < end or not served or (not most and time.monotonic() < end + 20):
        most = max(most, broker.call(held))
        assert texts.next_offset == 120  # others are served
        served += 1
    assert most > 0
    assert most <= broker.server.guard.limits.answer_bytes + (ANSWERS_AT_ONCE + 1) * ANSWER_BYTES
    stuck.close()
    texts.append({"text": "still here"})


def test_clients_that_leave_at_once_leave_nothing_behind(broker: Served, log: Any) -> None:
    """Neither work that was never begun, nor a thread in the middle of rows that nobody wants."""
    users = log.create_topic("users", {"id": int, "text": str}, kind="update", keys="id")
    users.append([{"id": n, "text": "x" * 500} for n in range(20_000)])
    for turn in range(12):
        client = Client(broker.port)
        for _ in range(20):
            client.begin(wire.SELECT, wire.field(1, "users") + wire.field(10, 1) + wire.field(15, 1))
        client.begin(39, wire.field(1, "select sum(a.id) from users a, users b where a.id < b.id"))
        if turn % 2:
            client.receive()
        client.close()
    end = time.monotonic() + 20
    while len(broker.server.sessions) > 1 and time.monotonic() < end:
        users.get(1)
    assert len(broker.server.sessions) == 1
    assert users.table().count() == 20_000
    assert broker.server.tally.errors["unexpected"] == 0
