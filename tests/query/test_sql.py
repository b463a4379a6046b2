"""SQL over topics: what is found, what is refused, and that a snapshot stays what it was."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import virta
from virta.errors import Closed, Corrupt, NotFound, UnavailableError, UsageError
from virta.log import Log

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with virta.open(tmp_path / "log") as opened:
        orders = opened.create_topic("orders", {"id": int, "user": str, "amount": float})
        orders.append([{"id": n, "user": f"u{n % 3}", "amount": n / 2} for n in range(10)])
        orders.append({"id": 10, "user": "u0", "amount": 100.0})
        users = opened.create_topic("my users", {"user": str, "city": str | None})
        users.append([{"user": "u0", "city": "Bern"}, {"user": "u1", "city": None}])
        yield opened


# -- what is found --------------------------------------------------------------------------------


def test_an_aggregate_over_a_topic(log: Log) -> None:
    found = log.sql("select user, sum(amount) total from orders group by 1 order by 2 desc")
    assert found.columns == ["user", "total"]
    assert found.to_arrow().to_pylist() == [
        {"user": "u0", "total": 109.0},
        {"user": "u2", "total": 7.5},
        {"user": "u1", "total": 6.0},
    ]


def test_several_topics_and_quoted_names(log: Log) -> None:
    query = 'select o.user, u.city, count(*) n from orders o join "my users" u using (user) group by all'
    assert sorted(log.sql(query).tuples()) == [("u0", "Bern", 5), ("u1", None, 3)]


def test_names_are_found_wherever_they_stand(log: Log) -> None:
    assert log.sql(
        "with o as (from ORDERS) select (select count(*) from 'my users') + count(*) n from o"
    ).first() == {"n": 13}
    assert log.sql("/* it's */ select max(id) m from orders -- don't").first() == {"m": 10}


@pytest.mark.parametrize(
    "query",
    ["describe orders", "explain select * from orders", "summarize orders", "values (1)",
     "from orders limit 1", "show tables", "pivot orders on user using count(*)"],
)  # fmt: skip
def test_all_that_reads_is_allowed(log: Log, query: str) -> None:
    assert log.sql(query).to_arrow().num_rows > 0


def test_show_tables_knows_all_topics(log: Log) -> None:
    assert [name for (name,) in log.sql("show tables").tuples()] == ["my users", "orders"]


def test_parameters_by_place_and_by_name(log: Log) -> None:
    assert log.sql("select count(*) n from orders where id < ?", [4]).first() == {"n": 4}
    named = log.sql(
        "select count(*) n from orders where id < $most and user = $who", {"most": 9, "who": "u0"}
    )
    assert named.first() == {"n": 3}
    with pytest.raises(UsageError):
        log.sql("select ? + 1")
    with pytest.raises(UsageError):
        log.sql("select ?", "text")


def test_ranges_by_offset_and_time(log: Log) -> None:
    orders = log.topic("orders")
    moment = orders[10].timestamp
    for condition, expected in [
        ("_offset >= 3 and _offset < 6", [3, 4, 5]),
        ("_offset between 9 and 10", [9, 10]),
        ("_offset = 10", [10]),
        ("_offset in (1, 10)", [1, 10]),
        ("_offset > 100", []),
        ("_offset < -1", []),
        ("not (_offset < 8)", [8, 9, 10]),
        ("_offset < 2 or _offset > 9", [0, 1, 10]),
        ("_timestamp < timestamptz '2001-01-01'", []),
        ("id = 4 and _offset < 9", [4]),
    ]:
        found = [row["id"] for row in log.sql(f"select id from orders where {condition} order by 1")]
        assert found == expected, condition
    assert log.sql("select id from orders where _timestamp >= ?", [moment]).to_pylist()[-1] == {"id": 10}
    past = log.sql("select count(*) n from orders where _timestamp < ?", [moment]).first()
    assert past == {"n": orders[:].until(moment).count()}


def test_types_go_through(log: Log) -> None:
    rows = [{"tags": ["a"], "at": None, "raw": b"\x00", "n": 1}]
    kinds = pa.schema([
        ("tags", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC")), ("raw", pa.binary()),
        ("n", pa.dictionary(pa.int32(), pa.string())),
    ])  # fmt: skip
    topic = log.create_topic("kinds", kinds)
    topic.append([rows[0] | {"n": "x"}])
    topic.append([rows[0] | {"n": "y"}])
    assert log.sql("select n, tags[1] t from kinds order by 1").to_pylist() == [
        {"n": "x", "t": "a"}, {"n": "y", "t": "a"},
    ]  # fmt: skip
    assert log.sql('select raw, "at" from kinds limit 1').first() == {"raw": b"\x00", "at": None}


def test_rows_in_memory_and_in_old_schemas_and_segments(tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        topic = log.create_topic("t", {"a": int}, segment_bytes="1MB", durability="memory")
        for number in range(4):
            topic.append(pa.table({"a": pa.array(range(number * 50_000, number * 50_000 + 50_000))}))
        topic.sync()
        topic.alter(schema={"a": int, "b": str | None})
        topic.append({"a": -1, "b": "new"})
        assert topic.stats().segments > 2
        query = "select count(*) c, sum(a) s, count(b) b, min(_offset) lo, max(_offset) hi from t"
        expected = {"c": 200_001, "s": sum(range(200_000)) - 1, "b": 1, "lo": 0, "hi": 200_000}
        assert log.sql(query).first() == expected
        for low, high in [(0, 1), (49_999, 50_001), (70_000, 190_000), (199_999, 200_001)]:
            found = log.sql(
                "select count(*) c, sum(_offset) s from t where _offset >= ? and _offset < ?", [low, high]
            )
            assert found.first() == {"c": high - low, "s": sum(range(low, high))}
        dataset = topic.dataset()
        assert dataset.count_rows() == 200_001
        assert dataset.to_table(columns=["b"]).schema.names == ["b"]
    with virta.open(tmp_path / "log") as log:
        assert log.sql(query).first() == expected


# -- a snapshot ---------------------------------------------------------------------------------


def test_a_result_stays_what_it_was(log: Log) -> None:
    found = log.sql("select count(*) n from orders")
    log.topic("orders").append({"id": 11, "user": "u9", "amount": 0.0})
    assert found.first() == {"n": 11}
    assert found.to_arrow().to_pylist() == found.to_pylist() == [{"n": 11}]
    assert log.sql("select count(*) n from orders").first() == {"n": 12}


def test_it_is_an_arrow_stream_and_shows_itself(log: Log) -> None:
    found = log.sql("select id, user from orders order by id")
    assert pa.table(found).num_rows == 11
    assert pa.schema(found).names == ["id", "user"]
    assert repr(found).splitlines()[0].split() == ["id", "user"]
    assert repr(found).endswith("(11 rows)")
    assert "<td>u0</td>" in found._repr_html_()
    assert "the first 20 rows" in repr(log.sql("from range(50)"))


def test_threads_query_at_once(log: Log) -> None:
    found: list[object] = []
    shared = log.sql("select sum(id) s from orders")

    def work() -> None:
        for _ in range(5):
            found.append(shared.first())
            found.append(log.sql("select sum(id) s from orders where id >= 0").first())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{"s": 55}] * 40


def test_a_running_query_is_cancelled(log: Log) -> None:
    endless = log.sql("select count(*) from range(1000000000) a, range(1000) b, orders")
    timer = threading.Timer(0.2, endless.cancel)
    timer.start()
    with pytest.raises(UnavailableError, match="cancelled"):
        endless.to_arrow()


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["insert into orders values (1)", "create table x (a int)", "drop table orders", "copy orders to 'x.csv'",
     "attach 'x.db'", "set threads = 1", "select 1; select 2", "", "  -- nothing", "pragma version",
     "explain analyze create table orders as select 1", "install httpfs", "call pragma_version()",
     "select * from '/etc/passwd'", "select * from read_csv('/etc/passwd')", "select * from glob('/*')",
     "selct 1", "select nope from orders", "begin", "checkpoint"],
)  # fmt: skip
def test_what_writes_or_looks_elsewhere_is_refused(log: Log, query: str) -> None:
    with pytest.raises(UsageError):
        log.sql(query).to_arrow()


def test_an_unknown_topic_gets_a_suggestion(log: Log) -> None:
    with pytest.raises(NotFound, match=r"ordres.*did you mean 'orders'"):
        log.sql("select * from ordres")
    with pytest.raises(NotFound, match="log"):  # a Python variable is no table
        log.sql("select * from log")


def test_an_error_while_rows_are_read(log: Log) -> None:
    with pytest.raises(UsageError, match="Could not convert"):
        log.sql("select cast(user as int) from orders").to_arrow()


def test_files_are_read_where_it_is_allowed(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "cities.csv"
    file.write_text("city,people\nBern,1\n")
    query = f"select people from \"my users\" u join '{file}' c using (city)"
    with pytest.raises(UsageError, match="external_access"):
        log.sql(query)
    assert log.sql(query, external_access=True).first() == {"people": 1}


def test_names_that_differ_in_case_only(log: Log) -> None:
    log.create_topic("Orders", {"a": int}).append({"a": 1})
    assert log.sql("select count(*) n from Orders").first() == {"n": 1}
    assert log.sql("select count(*) n from orders").first() == {"n": 11}
    with pytest.raises(UsageError, match="apart"):
        log.sql("select count(*) n from orders, Orders")


def test_after_the_log_is_closed(tmp_path: Path) -> None:
    log = virta.open(tmp_path / "log")
    log.create_topic("t", {"a": int}).append({"a": 1})
    found = log.sql("select * from t")
    log.close()
    with pytest.raises(Closed):
        log.sql("select 1")
    with pytest.raises((Closed, UsageError)):
        found.to_arrow()


def test_damage_is_named_and_not_taken_for_an_end(tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        topic = log.create_topic("t", {"a": int})
        for number in range(4):
            topic.append([{"a": number}] * 10)
        topic.sync()
    file = next((tmp_path / "log").rglob("*.arrows"))
    data = bytearray(file.read_bytes())
    at = data.rindex(b"\xff\xff\xff\xff", 0, len(data) * 3 // 4)
    data[at + 4 : at + 8] = bytes(4)  # Arrow takes it for the end of the stream
    file.write_bytes(data)
    with virta.open(tmp_path / "log") as log, pytest.raises(Corrupt) as caught:
        log.sql("select sum(a) from t").to_arrow()
    assert caught.value.topic == "t" and caught.value.file == str(file)


def test_a_file_that_lost_its_end_is_damage(tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        topic = log.create_topic("t", {"a": int})
        for number in range(4):
            topic.append([{"a": number}] * 10)
        topic.sync()
        file = next((tmp_path / "log").rglob("*.arrows"))
        os.truncate(file, file.stat().st_size // 2)
        with pytest.raises(Corrupt):
            log.sql("select sum(a) from t").to_arrow()


def test_without_duckdb_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['duckdb'] = None\n"
        "import virta\n"
        f"virta.open({str(tmp_path / 'log')!r}).sql('select 1')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'virta[sql]'" in done.stderr


def test_another_duckdb_reads_a_dataset(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from virta.query import source

    monkeypatch.setattr(source, "_source_class", lambda: None)
    query = "select count(*) n, max(user) u from orders where _offset >= 5 and amount < 50"
    assert log.sql(query).first() == {"n": 5, "u": "u2"}


# -- asyncio ------------------------------------------------------------------------------------


async def test_the_twin(tmp_path: Path) -> None:
    async with virta.aopen(tmp_path / "log") as log:
        topic = await log.create_topic("orders", {"id": int})
        await topic.append([{"id": n} for n in range(5)])
        found = await log.sql("select id from orders where id >= ? order by 1", [2])
        assert found.columns == ["id"]
        assert [row["id"] async for row in found] == [2, 3, 4]
        assert (await found.to_arrow()).num_rows == 3
        assert await found.first() == {"id": 2}
        assert (await found.schema).names == ["id"]
        assert (await topic.dataset()).count_rows() == 5


async def test_a_cancelled_task_cancels_its_query(tmp_path: Path) -> None:
    async with virta.aopen(tmp_path / "log") as log:
        found = await log.sql("select count(*) from range(1000000000) a, range(1000) b")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(found.to_arrow(), 0.2)


def test_ranges_in_names(tmp_path: Path) -> None:
    with virta.open(tmp_path) as log:
        orders = log.create_topic("orders", {"id": int})
        orders.append([{"id": number} for number in range(10)])
        middle = orders[5].timestamp
        odd = log.create_topic("odd@-1:", {"id": int})
        odd.append({"id": 77})
        users = log.create_topic("users", {"id": int, "n": int}, kind="update", keys=["id"])
        users.append([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        users.append({"id": 1, "n": 3})
        users.delete(2)

        def ids(name: str, column: str = "id") -> list[int]:
            return log.sql(f'select {column} from "{name}"').to_arrow().column(0).to_pylist()

        assert ids("orders@2:5") == [2, 3, 4]
        assert ids("orders@-3:") == [7, 8, 9]
        assert ids("orders@:-8") == [0, 1]
        assert ids(f"orders@{middle.isoformat()}:") == list(range(10))
        assert ids("orders@-1h:end") == list(range(10))
        assert ids("orders@:-1h") == []
        assert ids("odd@-1:") == [77]
        assert log.sql('select count(*) as n from "orders@2:8" where _offset < 4').first() == {"n": 2}
        assert log.sql('select count(*) as n from "orders@2:8", "orders@-2:"').first() == {"n": 12}
        assert ids("users", "n") == [3]
        assert ids("users@:", "n") == [1, 2, 3, 0]
        assert ids("users@2", "n") == [1, 2]
        assert ids("users@-1", "n") == [2, 3]
        assert ids("users@-1h", "n") == []
        for wrong in ("orders@5", "orders@#abcdef:", "users@x"):
            with pytest.raises(UsageError):
                ids(wrong)
        with pytest.raises(NotFound):
            ids("nowhere@1:")
        log.create_topic("parts", {"id": int}, partitions=2, keys=["id"])
        assert ids("parts@-1h:") == []
        with pytest.raises(UsageError, match="one partition"):
            ids("parts@1:")
