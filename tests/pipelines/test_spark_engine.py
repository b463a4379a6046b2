"""The same flows on Spark: by its tasks, by its SQL, and from tables that only it can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import virta
from tests.pipelines.conftest import Crash, crash_at, order, run_with_crashes
from virta.errors import NotFound, UnavailableError, UsageError
from virta.log import Log
from virta.pipelines import Pipeline

pytestmark = pytest.mark.slow


def pipeline(log: Log, *flows: dict[str, Any], **words: Any) -> Pipeline:
    written = {
        "name": "test",
        "engine": "spark",
        "log": str(log.path),
        "batch_rows": 60,
        "flow": list(flows),
        **words,
    }
    return Pipeline.of(written, base=log.path.parent)


COPY = {"source": {"topic": "orders"}, "sink": {"topic": "copy"}}
MASK = [
    {"columns": "email", "mask": "email"},
    {"columns": ["user_id", "id"], "mask": "hash"},
    {"columns": "*", "mask": "keep"},
]


def rows(topic: Any) -> list[dict[str, Any]]:
    return topic[:].to_pylist()


def boom(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise UsageError("this row is none", hint="leave it away")


def test_tasks_do_what_this_process_does(
    spark: Any, log: Log, orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTA_MASKING_KEY", "a secret that stays in production")
    flow = {**COPY, "where": "id < 90", "mask": MASK, "key": {"env": "VIRTA_MASKING_KEY"}}
    with pytest.raises(Crash):
        pipeline(log, flow).run(watch=crash_at(7))  # the second batch is staged, nothing more
    pipeline(log, flow).run()
    local = {**flow, "name": "local", "sink": {"topic": "local"}}
    pipeline(log, local, engine="local").run()
    assert rows(log.topic("copy")) == rows(log.topic("local"))
    assert len(rows(log.topic("copy"))) == 90


def test_a_functions_error_is_told_as_it_was(spark: Any, log: Log, orders: Any) -> None:
    with pytest.raises(UsageError, match="this row is none") as caught:
        pipeline(log, {**COPY, "python": boom}).run()
    assert caught.value.hint == "leave it away"


def test_sql_is_sparks_own(spark: Any, log: Log, orders: Any) -> None:
    sql = "select user_id, sum(amount) as total, count(*) as orders from rows where id < 50 group by user_id"
    flow = {
        "name": "sql",
        "source": {"topic": "orders"},
        "sql": sql,
        "sink": {"topic": "totals"},
        "batch_rows": 1000,
    }
    pipeline(log, flow).run()
    found = rows(log.topic("totals"))
    assert sum(row["orders"] for row in found) == 50
    assert sum(row["total"] for row in found) == sum(number / 2 for number in range(50))


def test_files_are_read_by_tasks(spark: Any, log: Log, orders: Any) -> None:
    from virta.exchange.export import export

    export(orders[:50], log.path.parent / "one.parquet")
    export(orders[50:], log.path.parent / "two.parquet")
    pipeline(log, {"name": "files", "source": {"files": "*.parquet"}, "sink": {"topic": "copy"}}).run()
    assert rows(log.topic("copy")) == [order(number) for number in range(100)]


# -- tables ------------------------------------------------------------------------------------------


@pytest.fixture
def shop(spark: Any, tmp_path: Path) -> Iterator[Any]:
    """A Derby database, whose driver comes with Spark; a function that adds orders to it."""
    url = f"jdbc:derby:{tmp_path}/shop;create=true"

    def add(*numbers: int) -> None:
        frame = spark.createDataFrame(
            [(number, f"customer {number}") for number in numbers], "id int, name string"
        )
        frame.write.format("jdbc").option("url", url).option("dbtable", "orders").mode("append").save()

    yield url, add


def test_a_table_is_read_by_a_column_that_rises(spark: Any, log: Log, shop: Any) -> None:
    url, add = shop
    flow = {
        "name": "shop",
        "source": {"jdbc": url, "table": "orders", "column": "id"},
        "sink": {"topic": "orders"},
    }
    add(1, 2, 3)
    assert run_with_crashes(lambda: pipeline(log, flow)) >= 3
    add(4, 5)
    pipeline(log, flow).run()
    assert pipeline(log, flow).run().rows == 0
    assert [tuple(row.values()) for row in rows(log.topic("orders"))] == [
        (n, f"customer {n}") for n in range(1, 6)
    ]


def test_a_whole_table_is_read_once_and_masked(spark: Any, log: Log, shop: Any) -> None:
    url, add = shop
    add(1, 2, 3)
    flow = {
        "name": "whole",
        "source": {"jdbc": url, "table": "orders"},
        "sink": {"topic": "orders"},
        "mask": [{"columns": "name", "mask": "redact"}, {"columns": "id", "mask": "keep"}],
        "where": "id < 3",
    }
    (shown,) = pipeline(log, flow).preview()
    assert [row["name"] for row in shown.after.to_pylist()] == ["[redacted]"] * 2
    assert pipeline(log, flow).run().rows == 2
    assert pipeline(log, flow).run().rows == 0


def test_a_table_is_read_by_several_connections(spark: Any, log: Log, shop: Any) -> None:
    url, add = shop
    add(*range(1, 60))
    moment = "{fn timestampadd(SQL_TSI_DAY, \"id\", timestamp('2026-01-01 00:00:00'))}"
    query = f'select "id", "name", {moment} as moment from orders'
    sink = {"topic": "orders"}
    source = {"jdbc": url, "query": query, "column": "MOMENT", "partitions": 4}
    flow = {"name": "shop", "source": source, "sink": sink}
    assert pipeline(log, flow).run().rows == 59
    add(*range(60, 90))
    assert pipeline(log, flow).run().rows == 30
    assert [row["id"] for row in rows(log.topic("orders"))] == list(range(1, 90))
    with pytest.raises(UsageError, match="is a string"):
        pipeline(log, {**flow, "source": {**source, "column": "name"}}).check()
    with pytest.raises(UsageError, match="range of a column"):
        pipeline(log, {**flow, "source": {"jdbc": url, "table": "orders", "partitions": 4}})


def test_tables_say_what_is_missing(spark: Any, log: Log, shop: Any) -> None:
    url, add = shop
    add(1)
    sink = {"topic": "x"}
    with pytest.raises(UsageError, match="no column 'nothing'"):
        pipeline(log, {"source": {"jdbc": url, "table": "orders", "column": "nothing"}, "sink": sink}).check()
    with pytest.raises(UnavailableError, match="cannot be read: Table/View 'NOTHING' does not exist"):
        pipeline(log, {"source": {"jdbc": url, "table": "nothing"}, "sink": sink}).check()
    with pytest.raises(UnavailableError, match="no JDBC driver"):
        pipeline(log, {"source": {"jdbc": "jdbc:nowhere:x", "table": "t"}, "sink": sink}).check()
    with pytest.raises(UsageError, match="is read by Spark"):
        pipeline(log, {"source": {"jdbc": url, "table": "orders"}, "sink": sink}, engine="local").check()
    with pytest.raises(NotFound, match="NOWHERE"):
        source = {"jdbc": url, "table": "orders", "password": {"env": "NOWHERE"}}
        pipeline(log, {"source": source, "sink": sink})
    assert virta.__version__


def test_a_directory_that_workers_do_not_see_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from virta.pipelines.spark_engine import check_directory

    with pytest.raises(NotFound, match="not there on this worker"):
        check_directory(tmp_path / "nowhere")
