"""What clients do when a connection ends: they go on, and nothing is lost, doubled or left out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta
from tests.served import Served
from virta.testing.proxy import Proxy

COLUMNS = {"n": int, "note": str | None}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "events") as broker:
        yield broker


@pytest.fixture
def proxy(broker: Served) -> Iterator[Proxy]:
    with Proxy(broker.port) as proxy:
        yield proxy


@pytest.fixture
def log(proxy: Proxy) -> Iterator[Any]:
    with virta.open(f"virta://127.0.0.1:{proxy.port}?timeout=20s") as log:
        yield log


@pytest.fixture
def orders(log: Any) -> Any:
    return log.create_topic("orders", COLUMNS)


def numbers(topic: Any) -> list[int]:
    return [row["n"] for row in topic]


def test_an_append_whose_answer_is_lost_is_not_written_twice(proxy: Proxy, orders: Any) -> None:
    orders.append({"n": 0})
    proxy.lose_answers(1)
    proxy.cut()
    asked = threading.Thread(target=orders.append, args=({"n": 1},))
    asked.start()
    asked.join(0.3)  # the broker has it, the client does not know
    assert asked.is_alive()
    proxy.heal()
    asked.join(20)
    assert numbers(orders) == [0, 1]


@pytest.mark.parametrize("size", [1, 40, 200, 5000, 100_000])
def test_a_writer_goes_on_wherever_it_is_cut(proxy: Proxy, orders: Any, size: int) -> None:
    with orders.writer(max_rows=50) as writer:
        for n in range(3000):
            if n % 700 == 0:
                proxy.cut_after(size)
                proxy.cut()
            writer.send({"n": n, "note": "x" * 60})
    assert numbers(orders) == list(range(3000))


def test_a_tail_goes_on_without_a_gap(proxy: Proxy, orders: Any) -> None:
    orders.append([{"n": n} for n in range(1000)])
    seen = []
    for row in orders.tail(stop_when_idle=0.2):
        seen.append(row["n"])
        if len(seen) % 150 == 0:
            proxy.cut()
            orders.append({"n": 1000 + len(seen)})
        if len(seen) > 1000 + 20:
            break
    assert seen[:1000] == list(range(1000))
    assert seen[1000:] == [1000 + 150 * at for at in range(1, len(seen) - 999)]


def test_streams_rows_and_changes_go_on(proxy: Proxy, log: Any, orders: Any) -> None:
    for n in range(40):
        orders.append([{"n": n, "note": "y" * 20_000}])
    seen = []
    for batch in orders.where("n >= 0").columns("n", "note").batches():
        seen += batch.column("n").to_pylist()
        if len(seen) in (1, 2, 3, 20):
            proxy.cut()
    assert seen == list(range(40))
    users = log.create_topic("users", {"id": int, "points": int | None}, kind="update", keys="id")
    kinds = []
    users.append({"id": 1})
    for change in users.changes().tail(stop_when_idle=0.2):
        kinds.append((change.kind, change.offset))
        proxy.cut()
        if len(kinds) < 4:
            users.upsert({"id": 1, "points": len(kinds)})
    assert kinds == [("insert", 0), ("update", 1), ("update", 2), ("update", 3)]


def test_an_upsert_whose_answer_is_lost_is_not_written_twice(proxy: Proxy, log: Any) -> None:
    users = log.create_topic(
        "users", {"id": int, "points": int | None}, kind="update", keys="id", partitions=2
    )
    users.upsert([{"id": n, "points": n} for n in range(10)])
    proxy.lose_answers(1)
    proxy.cut()
    asked = threading.Thread(
        target=users.upsert, args=([{"id": n, "points": -n} for n in range(10)] + [{"id": 1}],)
    )
    asked.start()
    asked.join(0.3)
    assert asked.is_alive()
    proxy.heal()
    asked.join(20)
    users.upsert({"id": 3, "points": 7})
    assert sum(users.next_offsets.values()) == 21
    assert users.get(3)["points"] == 7 and users.get(4)["points"] == -4


def test_what_cannot_be_asked_twice_says_so(proxy: Proxy, log: Any, orders: Any) -> None:
    orders.append({"n": 0})
    proxy.lose_answers(1)
    proxy.cut()
    failed: list[BaseException] = []

    def alter() -> None:
        try:
            orders.alter(retention_age="7d")
        except virta.VirtaError as error:
            failed.append(error)

    asked = threading.Thread(target=alter)
    asked.start()
    asked.join(0.3)
    proxy.heal()
    asked.join(20)
    # it either was asked over a new connection after a round trip, or says that it is not known
    assert not failed or "before the answer came" in str(failed[0])


def test_a_stopped_broker_is_waited_for(tmp_path: Path) -> None:
    first = Served(tmp_path / "events")
    port = first.port
    with virta.open(f"{first.address}?timeout=20s") as log:
        orders = log.create_topic("orders", COLUMNS)
        done = threading.Event()
        seen: list[int] = []

        def follow() -> None:
            for row in orders.tail():
                seen.append(row["n"])
                if len(seen) == 400:
                    done.set()
                    return

        def produce() -> None:
            with orders.writer(max_rows=5) as writer:
                for n in range(400):
                    writer.send({"n": n})

        threads = [threading.Thread(target=act) for act in (follow, produce)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            while len(seen) < 100 and not done.wait(0.01):
                pass
            first.stop()
            first = Served(tmp_path / "events", port=port)
        for thread in threads:
            thread.join(30)
        assert seen == list(range(400))
    first.stop()


def test_after_the_patience_is_over_it_says_so(tmp_path: Path) -> None:
    broker = Served(tmp_path / "events")
    log = virta.open(f"{broker.address}?timeout=100ms")
    orders = log.create_topic("orders", COLUMNS)
    broker.stop()
    with pytest.raises(virta.Unreachable, match="cannot be reached"):
        orders.append({"n": 1})
    log.close()
