"""The interface users see, line by line: API.md, against a directory and against a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import virta
from tests.served import Served
from virta import Conflict, NotFound

ROWS = [{"id": n, "user": "ada" if n % 2 else "bob", "amount": n / 2} for n in range(4, 20)]
SCHEMA = {"id": int, "user": str, "amount": float}


@pytest.fixture(params=["directory", "broker"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "directory":
        with virta.open(tmp_path / "events") as log:
            yield log
        return
    with Served(tmp_path / "events") as broker, virta.open(broker.address) as log:
        yield log


@pytest.fixture
def orders(log: Any) -> Any:
    orders = log.create_topic("orders", SCHEMA, keys=["id"])
    orders.append({"id": 1, "user": "ada", "amount": 9.5})
    orders.append([{"id": 2, "user": "bob", "amount": 3.0}, {"id": 3, "user": "ada", "amount": 7.25}])
    return orders


# -- opening -----------------------------------------------------------------------------------


def test_open_takes_a_path(tmp_path: Path) -> None:
    for address in (tmp_path / "events", str(tmp_path / "events")):
        with virta.open(address) as log:
            assert log.path == tmp_path / "events"
    assert repr(log) == f"Log({str(tmp_path / 'events')!r}, closed)"


def test_open_without_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTA_LOG", str(tmp_path / "named"))
    with virta.open() as log:
        assert log.path == tmp_path / "named"
    monkeypatch.delenv("VIRTA_LOG")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with virta.open() as log:
        assert log.path == tmp_path / "data" / "virta"


def test_addresses_that_cannot_be_opened(tmp_path: Path) -> None:
    for address in ("", "ftp://somewhere"):
        with pytest.raises(virta.UsageError):
            virta.open(address)
    with pytest.raises(NotFound):
        virta.open(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "letter.txt").write_text("not a log")
    with pytest.raises(virta.UsageError, match=r"letter\.txt"):
        virta.open(tmp_path)


# -- topics --------------------------------------------------------------------------------------


def test_create_topic(log: Any) -> None:
    orders = log.create_topic("orders", SCHEMA, keys=["id"])
    assert orders.kind == "append"
    assert orders.config.partitions == 1
    assert not any(field.nullable for field in orders.schema)
    assert log.create_topic("maybe", {"n": int | None}).schema.field("n").nullable
    with pytest.raises(virta.AlreadyExists):
        log.create_topic("orders", SCHEMA)
    log.create_topic("orders", SCHEMA, if_missing=True)


def test_topic(log: Any, orders: Any) -> None:
    assert log.topic("orders").next_offset == 3
    with pytest.raises(NotFound, match="orders"):
        log.topic("ordres")
    assert log.topics() == ["orders"]
    log.drop_topic("orders")
    assert log.topics() == []


def test_alter_and_lock(orders: Any) -> None:
    orders.alter(schema={**SCHEMA, "note": str | None}, retention_age="7d")
    assert orders.version == 2
    assert orders.config.retention_age_seconds == 7 * 24 * 3600
    orders.lock()
    with pytest.raises(virta.Locked):
        orders.append(ROWS)


# -- appending -----------------------------------------------------------------------------------


def test_append_gives_an_ack(log: Any) -> None:
    orders = log.create_topic("orders", SCHEMA)
    ack = orders.append({"id": 1, "user": "ada", "amount": 9.5})
    assert (ack.partition, ack.first_offset, ack.last_offset, ack.durability) == (0, 0, 0, "os")
    assert ack.head == orders.head
    assert len(bytes.fromhex(ack.head)) == 32


def test_append_takes_any_arrow_producer(orders: Any) -> None:
    table = pa.Table.from_pylist(ROWS)
    for producer in (table, polars.DataFrame(table), pandas.DataFrame(ROWS), duckdb.from_arrow(table)):
        assert orders.append(producer).rows == len(ROWS)
    assert orders.append(orders[:3]).rows == 3
    assert orders.count() == 3 + 4 * len(ROWS) + 3


def test_append_if_next_offset(orders: Any) -> None:
    orders.append(ROWS, if_next_offset=3)
    with pytest.raises(Conflict) as caught:
        orders.append(ROWS, if_next_offset=3)
    assert (caught.value.expected, caught.value.actual) == (3, 3 + len(ROWS))


def test_writer(orders: Any) -> None:
    with orders.writer() as w:
        for row in ROWS:
            w.send(row)
        w.send_batch(pa.Table.from_pylist(ROWS))
    assert orders.next_offset == 3 + 2 * len(ROWS)


def test_writer_with_a_name(orders: Any) -> None:
    for _ in range(2):
        with orders.writer(producer="importer-1") as w:
            for n, row in enumerate(ROWS):
                if n > w.last_sequence:
                    w.send(row)
    assert orders.next_offset == 3 + len(ROWS)


# -- reading -----------------------------------------------------------------------------------------


def test_slices(orders: Any) -> None:
    assert [(row.offset, row["user"]) for row in orders[-2:]] == [(1, "bob"), (2, "ada")]
    assert all(row.timestamp.tzinfo for row in orders[-2:])
    orders.append(ROWS)
    assert [row.offset for row in orders[10:15]] == list(range(10, 15))
    assert orders[:].count() == 3 + len(ROWS)


def test_narrowing(orders: Any) -> None:
    lazy = orders.since("-15m").until("2100-11-18T10:00Z").where("amount > 5").columns("user", "amount")
    assert [row.to_dict() for row in lazy] == [
        {"user": "ada", "amount": 9.5},
        {"user": "ada", "amount": 7.25},
    ]


def test_results_feed_every_arrow_reader(orders: Any) -> None:
    assert orders[:].to_arrow().column("id").to_pylist() == [1, 2, 3]
    assert polars.DataFrame(orders[:])["amount"].sum() == 19.75
    assert polars.DataFrame(orders[:].columns("user")).columns == ["user"]
    assert pandas.DataFrame.from_arrow(orders[:])["user"].tolist() == ["ada", "bob", "ada"]
    assert pa.table(orders).num_rows == 3
    assert pa.schema(orders[:]) == orders[:].schema
    assert duckdb.sql("select count(*) from orders").fetchall() == [(3,)]
    # the same object again: every reader gets a stream of its own
    assert duckdb.sql("select count(*) from orders a join orders b on a.id = b.id").fetchall() == [(3,)]
    block = orders.partition(0).fetch(orders.partition(0).first_token)
    assert polars.DataFrame(block)["id"].to_list() == [1]


def test_tail(orders: Any) -> None:
    assert [row["id"] for row in orders.tail(stop_when_idle=0.01)] == [1, 2, 3]


# -- blocks and tokens ---------------------------------------------------------------------------------


def test_the_verbs_underneath(orders: Any) -> None:
    p = orders.partition(0)
    block = p.fetch(p.first_token)
    assert (block.base_offset, block.rows) == (0, 1)
    assert [each.base_offset for each in p.fetch_batch(from_=1, to=200)] == [1]
    blocks, token = p.poll(p.first_token)
    assert [each.rows for each in blocks] == [1, 2]
    assert p.long_poll(token, timeout=0.01) == ([], token)
    for streamed in p.stream(p.first_token):
        assert streamed.hash == block.hash
        assert streamed.to_arrow().num_rows == 1
        break
    block.verify()
    assert p.find(block.hash).base_offset == 0


def test_verify(orders: Any) -> None:
    report = orders.verify()
    assert report.ok
    assert report.problems == ()
    assert report.rows == 3
    assert report.blocks >= 2
    assert report.heads == {0: orders.head}


def test_where_it_stands(log: Any, orders: Any) -> None:
    assert (orders.start_offset, orders.next_offset) == (0, 3)
    assert 0 <= orders.durable_offset <= 3
    assert orders.version == 1
    assert orders.config.keys == ("id",)
    stats = orders.stats()
    assert (stats.rows, stats.segments, stats.oldest_in_memory, stats.newest_in_memory) == (3, 1, 0, 2)
    assert stats.bytes > 0
    assert log.stats().rows == 3
    assert orders.next_offsets == {0: 3}
    assert orders.heads == {0: orders.head}


# -- queries and tables ---------------------------------------------------------------------------


def test_sql(log: Any, orders: Any) -> None:
    asked = log.sql("select user, sum(amount) from orders group by 1 order by 2 desc")
    assert asked.to_arrow().to_pylist() == [
        {"user": "ada", "sum(amount)": 16.75},
        {"user": "bob", "sum(amount)": 3.0},
    ]
    assert log.sql("select id from orders where amount > $least", {"least": 9}).to_arrow().num_rows == 1


def test_update_topics(log: Any) -> None:
    users = log.create_topic(
        "users",
        {"region": str, "id": int, "email": str | None, "points": int | None},
        kind="update",
        keys=["region", "id"],
    )
    ada = {"region": "eu", "id": 7}
    users.append({**ada, "email": "a@b"})
    assert users.get(ada)["email"] == "a@b"
    users.upsert({**ada, "points": 3})
    assert users.get(ada).to_dict() == {**ada, "email": "a@b", "points": 3}
    assert users.table().to_arrow().num_rows == 1
    users.delete(ada)
    assert users.get(ada) is None
    assert [change.kind for change in users.changes()] == ["insert", "update", "delete"]
    assert [change.kind for change in users.diff(1)] == ["delete"]
    assert users.table(as_of=2).where("points = 3").count() == 1
    assert log.sql("select count(*) n from users").to_arrow().to_pylist() == [{"n": 0}]


def test_rows_are_erased(orders: Any) -> None:
    with pytest.raises(virta.Denied):
        orders.erase(where="id = 2")
    orders.alter(row_deletion=True)
    assert orders.erase(where="id = 2").rows == 1
    assert [row["id"] for row in orders] == [1, 3]
    assert orders.verify().ok


# -- groups and partitions -----------------------------------------------------------------------


def test_several_partitions(log: Any) -> None:
    spread = log.create_topic("spread", SCHEMA, keys=["id"], partitions=3)
    ack = spread.append(ROWS)
    assert sum(part.rows for part in ack.parts) == len(ROWS)
    assert sum(spread.next_offsets.values()) == len(ROWS)
    assert set(spread.heads) == {0, 1, 2}
    asks: list[Callable[[], Any]] = [
        lambda: spread[10:20],
        lambda: spread.next_offset,
        lambda: spread.head,
        lambda: spread.append(ROWS, if_next_offset=3),
    ]
    for ask in asks:
        with pytest.raises(virta.UsageError, match="partition"):
            ask()
    assert spread.since("-15m").count() == len(ROWS)
    assert log.sql("select count(*) from spread").to_arrow().to_pylist() == [{"count_star()": len(ROWS)}]


# -- errors and words --------------------------------------------------------------------------------


def test_errors_come_in_three_families() -> None:
    families = (virta.UsageError, virta.UnavailableError, virta.DamageError)
    errors = [getattr(virta, name) for name in virta.__all__]
    errors = [each for each in errors if isinstance(each, type) and issubclass(each, Exception)]
    assert len(errors) > 15
    for error in errors:
        assert issubclass(error, virta.VirtaError)
        if error is not virta.VirtaError:
            assert sum(issubclass(error, family) for family in families) == 1


def test_reprs_are_for_humans(log: Any, orders: Any) -> None:
    head = orders.head[:8]
    p = orders.partition(0)
    row = orders[1]
    assert repr(orders) == f"Topic('orders', 3 rows, 3 columns, head {head})"
    assert repr(log) == f"Log({str(log.path)!r})"
    assert repr(p) == f"Partition('orders'/0, next offset 3, head {head})"
    assert repr(orders[1:3].columns("id")) == "Selection('orders', start=1, end=3, columns=('id',))"
    stamp = row.timestamp.isoformat()
    values = "{'id': 2, 'user': 'bob', 'amount': 3.0}"
    assert repr(row) == f"Row(offset=1, timestamp={stamp!r}, {values})"
    assert repr(p.fetch(p.token(1))) == f"Block('orders'/0, 2 rows from 1, {head})"
    with orders.writer(producer="importer-1") as w:
        assert repr(w) == "Writer('orders', producer='importer-1', last_sequence=-1)"
    assert "<td>ada</td>" in orders[:]._repr_html_()
    assert "orders" in orders._repr_html_()


def test_a_repr_never_raises(log: Any, orders: Any) -> None:
    """A debugger prints what was closed too."""
    things = [log, orders, orders[:], orders.partition(0), orders[0]]
    log.close()
    for thing in things:
        assert repr(thing)
