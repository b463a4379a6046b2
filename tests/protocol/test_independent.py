"""The client that was written from docs/protocol.md alone, against a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import virta
from tests.broker.secured import PASSWORD, Secured
from tests.protocol import independent as wire
from tests.protocol.independent import Client, Refused, Topic
from tests.served import Served

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("user", pa.string())])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "events") as broker:
        yield broker


@pytest.fixture
def client(broker: Served) -> Iterator[Client]:
    client = Client(broker.port)
    yield client
    client.close()


@pytest.fixture
def orders(client: Client) -> Topic:
    client.verb("create_topic", "orders", COLUMNS.serialize().to_pybytes(), keys=["id"])
    return Topic(client, "orders")


def rows(start: int, stop: int) -> list[dict[str, object]]:
    return [{"id": n, "user": "ada" if n % 2 else None} for n in range(start, stop)]


def test_what_it_appends_everybody_reads(broker: Served, client: Client, orders: Topic) -> None:
    assert client.welcome.one(1) == 1 and client.welcome.one(4) == b"local"
    assert client.verb("topics")[0].count("orders") == 1
    first = orders.append(rows(0, 3))
    assert (first.one(1), first.one(2), first.one(4)) == (0, 3, 1)
    second = orders.append(rows(3, 5), expected=3)
    with virta.open(broker.address) as log:
        assert [row.to_dict() for row in log.topic("orders")] == rows(0, 5)
        assert log.topic("orders").head == second.one(3).hex()
        log.topic("orders").append({"id": 5, "user": "bob"})
    there = client.ask(wire.POSITIONS, wire.field(1, "orders"))
    assert (there.type, there.one(2)) == (wire.POSITIONS_ANSWER, 6)


def test_what_it_reads_it_can_check(orders: Topic) -> None:
    head = b""
    for n in range(4):
        head = orders.append(rows(3 * n, 3 * n + 3)).one(3)
    one = orders.fetch(wire.FETCH, 4)
    assert one.one(1) == 1
    found, offset, hash_ = orders.rows_of(one)
    assert [row["_offset"] for row in found] == [3, 4, 5] and offset == 6
    rest, offset, last = orders.rows_of(orders.fetch(wire.POLL, offset, hash_))
    assert [row["id"] for row in rest] == list(range(6, 12)) and (offset, last) == (12, head)
    assert orders.fetch(wire.POLL, 12, last).one(1) == 0
    with pytest.raises(Refused) as caught:
        orders.fetch(wire.POLL, 6, bytes(32))
    assert (caught.value.number, caught.value.code) == (66, "history_changed")


def test_a_stream_gives_what_is_paid_for(client: Client, orders: Topic) -> None:
    for n in range(5):
        orders.append(rows(n, n + 1))
    channel = client.begin(wire.STREAM, orders.place(0, credit=1))
    found, offset, _ = orders.rows_of(client.receive())
    assert (len(found), offset) == (1, 1)
    client.send(wire.CREDIT, channel, wire.field(1, 1 << 20))
    while offset < 5:
        _, offset, _ = orders.rows_of(client.receive())
    orders.client.send(wire.CANCEL, channel)
    assert client.receive().type == wire.DONE


def test_retries_are_written_once(orders: Topic) -> None:
    first = orders.append(rows(0, 3), sequence=0)
    again = orders.append(rows(0, 3), sequence=0)
    assert (again.one(1), again.one(2), again.one(3), again.one(6)) == (0, 3, first.one(3), 1)
    with pytest.raises(Refused) as caught:
        orders.append(rows(1, 5), sequence=1)
    assert (caught.value.number, caught.value.details) == (97, {"rows": 2})
    assert orders.append(rows(3, 5), sequence=3).one(1) == 3
    with pytest.raises(Refused) as caught:
        orders.append(rows(5, 6), expected=4)
    assert (caught.value.number, caught.value.details) == (5, {"expected": 4, "actual": 5})


def test_a_topic_that_changed(client: Client, orders: Topic) -> None:
    client.verb("alter", "orders", options={"retention_age": "7d"})
    with pytest.raises(Refused) as caught:
        orders.append(rows(0, 1))
    assert caught.value.number == 96
    orders.read_record()
    assert orders.append(rows(0, 1)).one(1) == 0


def test_rows_the_broker_chooses(client: Client, orders: Topic) -> None:
    orders.append(rows(0, 10))
    header = (
        wire.field(1, "orders") + wire.field(7, "id >= 7") + wire.field(8, "id") + wire.field(10, 1 << 20)
    )
    client.begin(wire.SELECT, header)
    stream = b""
    while True:
        answer = client.receive()
        stream += answer.body
        if answer.one(2):
            break
    assert pa.ipc.open_stream(stream).read_all().to_pylist() == [{"id": 7}, {"id": 8}, {"id": 9}]


def test_requests_are_answered_as_they_get_ready(client: Client, orders: Topic) -> None:
    """A wait and a stream hold nothing up."""
    waiting = client.begin(35, orders.place(0) + wire.field(7, 60_000))
    assert client.ask(wire.POSITIONS, wire.field(1, "orders")).type == wire.POSITIONS_ANSWER
    client.send(wire.HEARTBEAT, 0, wire.field(1, 77))
    beat = client.receive()
    assert (beat.type, beat.one(1)) == (wire.HEARTBEAT_ANSWER, 77)
    header = wire.field(1, "orders") + wire.field(3, orders.record["version"])
    appending = client.begin(wire.APPEND, header, orders.body(rows(0, 1)))
    answers = {answer.channel: answer.type for answer in (client.receive(), client.receive())}
    assert answers == {waiting: wire.BLOCKS, appending: wire.APPENDED}


def test_versions(broker: Served) -> None:
    client = Client(broker.port, versions=(9, 1))
    assert client.welcome.one(1) == 1
    client.close()
    with pytest.raises(Refused, match="this broker 1") as caught:
        Client(broker.port, versions=(9,))
    assert caught.value.number == 98


def test_a_goodbye_before_the_end(broker: Served, client: Client, orders: Topic) -> None:
    orders.append(rows(0, 1))
    client.begin(35, orders.place(1) + wire.field(7, 60_000))
    broker.call(lambda: broker._stopping.set())
    assert client.receive().type == wire.GOODBYE
    client.begin(wire.POSITIONS, wire.field(1, "orders"))  # not begun any more
    with pytest.raises((EOFError, ConnectionError)):
        client.receive()


def test_logins(tmp_path: Path) -> None:
    with Secured(tmp_path / "events") as broker:
        broker.add("ada", "all:*")
        client = Client(broker.port)
        assert client.welcome.one(7) == b"SCRAM-SHA-256" and client.welcome.one(4) == b"anonymous"
        with pytest.raises(Refused) as caught:
            client.verb("create_topic", "orders", COLUMNS.serialize().to_pybytes())
        assert caught.value.number == 8
        assert client.log_in("ada", PASSWORD) == "ada"
        client.verb("create_topic", "orders", COLUMNS.serialize().to_pybytes())
        client.close()
        stranger = Client(broker.port)
        with pytest.raises(Refused, match="wrong"):
            stranger.log_in("ada", "wrong")
        stranger.close()


def test_a_request_is_not_on_channel_0(client: Client, orders: Topic) -> None:
    client.send(wire.POLL, 0, orders.place(0))
    with pytest.raises(Refused, match="channel 0") as caught:
        client.receive()
    assert caught.value.number == 98
    with pytest.raises((EOFError, ConnectionError)):
        client.receive()
