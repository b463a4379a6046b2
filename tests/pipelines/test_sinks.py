"""Parquet, Delta and Iceberg: each row once whatever crashes, upserts and deletes, changed columns."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import Crash, crash_at, order, run_with_crashes
from virta.errors import UsageError
from virta.log import Log
from virta.pipelines import Pipeline

KINDS = ("parquet", "delta", "iceberg")


def sink_of(kind: str, place: Path, **words: Any) -> dict[str, Any]:
    if kind == "iceberg":
        catalog = {
            "type": "sql",
            "uri": f"sqlite:///{place}/catalog.db",
            "warehouse": f"file://{place}/warehouse",
        }
        return {"iceberg": "lake.orders", "catalog": catalog, **words}
    return {kind: f"{place}/{kind}", **words}


def read(kind: str, place: Path) -> list[dict[str, Any]]:
    """The table as its own readers see it."""
    if kind == "parquet":
        found = pyarrow.dataset.dataset(place / "parquet" / "current", partitioning="hive").to_table()
    elif kind == "delta":
        from deltalake import DeltaTable

        found = pa.table(DeltaTable(place / "delta").to_pyarrow_table())
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **sink_of(kind, place)["catalog"])
        found = catalog.load_table("lake.orders").scan().to_arrow()
        catalog.close()
    return sorted(found.to_pylist(), key=lambda row: row["id"])


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}.get(request.param, "pyarrow"))
    return str(request.param)


Make = Callable[..., Pipeline]


@pytest.fixture
def make(log: Log, kind: str, tmp_path: Path) -> Make:
    def made(topic: str = "orders", batch_rows: int = 60, **words: Any) -> Pipeline:
        flow = {"name": "lake", "source": {"topic": topic}, "sink": sink_of(kind, tmp_path, **words)}
        written = {
            "name": "test",
            "engine": "local",
            "log": str(log.path),
            "batch_rows": batch_rows,
            "flow": [flow],
        }
        return Pipeline.of(written, base=tmp_path)

    return made


@pytest.mark.slow
def test_a_crash_at_any_step_changes_nothing(
    log: Log, orders: Any, kind: str, make: Make, tmp_path: Path
) -> None:
    assert run_with_crashes(make) >= 5
    assert read(kind, tmp_path) == [order(number) for number in range(100)]
    assert make().run().rows == 0


def test_a_batch_that_is_there_is_not_taken_twice(orders: Any, kind: str, make: Make, tmp_path: Path) -> None:
    """The sink has it, the journal does not know yet: the narrowest place."""
    with pytest.raises(Crash):
        make(batch_rows=1000).run(watch=crash_at(4))
    assert len(read(kind, tmp_path)) == 100
    assert make(batch_rows=1000).run().flows[0].finished_earlier
    assert len(read(kind, tmp_path)) == 100


def test_the_sink_remembers_what_the_journal_forgot(
    orders: Any, kind: str, make: Make, tmp_path: Path
) -> None:
    make(batch_rows=1000).run()
    (tmp_path / ".virta-test" / "lake" / "done.json").unlink()
    orders.append(order(100))
    assert make().run().read == 1
    assert read(kind, tmp_path) == [order(number) for number in range(101)]


def test_a_table_that_lost_rows_is_refused(orders: Any, kind: str, make: Make, tmp_path: Path) -> None:
    import shutil

    make(batch_rows=1000).run()
    for each in (tmp_path / kind, tmp_path / "catalog.db", tmp_path / "warehouse"):
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
    with pytest.raises(UsageError, match="has 0 batches of test/lake, but 1 were put there"):
        make().run()


def test_upsert_keeps_the_newest_row_of_each_key(log: Log, kind: str, make: Make, tmp_path: Path) -> None:
    users = log.create_topic("users", {"id": int, "name": str | None}, kind="update", keys=["id"])
    users.append([{"id": number % 10, "name": f"name {number}"} for number in range(30)])
    make("users", mode="upsert").run()
    assert read(kind, tmp_path) == [{"id": number, "name": f"name {20 + number}"} for number in range(10)]
    users.append([{"id": 3, "name": "new"}, {"id": 11, "name": "eleven"}, {"id": 12, "name": "gone soon"}])
    users.append(pa.table({"id": [4, 12, 99], "name": pa.nulls(3, pa.string()), "_deleted": [True] * 3}))
    make("users", mode="upsert").run()
    found = {row["id"]: row["name"] for row in read(kind, tmp_path)}
    assert found == {
        **{number: f"name {20 + number}" for number in range(10) if number != 4},
        3: "new",
        11: "eleven",
    }


def test_upsert_by_several_keys(log: Log, kind: str, make: Make, tmp_path: Path) -> None:
    schema = {"region": str, "id": int, "amount": float}
    stock = log.create_topic("stock", schema, kind="update", keys=["region", "id"])
    stock.append([{"region": region, "id": number, "amount": 0.0} for region in "ab" for number in range(5)])
    make("stock", mode="upsert").run()
    stock.append({"region": "b", "id": 2, "amount": 7.0})
    make("stock", mode="upsert").run()
    found = read(kind, tmp_path)
    assert len(found) == 10
    assert [row for row in found if row["amount"]] == [{"region": "b", "id": 2, "amount": 7.0}]


def test_columns_are_added_as_they_come(orders: Any, kind: str, make: Make, tmp_path: Path) -> None:
    make().run()
    orders.alter(schema={"id": int, "user_id": int, "email": str, "amount": float, "note": str | None})
    orders.append({**order(100), "note": "new"})
    make().run()
    if kind == "parquet":
        newest = max((tmp_path / "parquet" / "current").glob("*.parquet"))
        assert pq.read_table(newest).to_pylist()[-1]["note"] == "new"
        return
    found = read(kind, tmp_path)
    assert found[-1] == {**order(100), "note": "new"} and found[0]["note"] is None


def test_columns_of_many_types(log: Log, kind: str, make: Make, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int8()),
            ("unsigned", pa.uint32()),
            ("moment", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("bytes", pa.binary()),
            ("flag", pa.bool_()),
            ("amount", pa.decimal128(12, 2)),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("city", pa.string())])),
        ]
    )
    row = {
        "id": 1,
        "small": -5,
        "unsigned": 2**32 - 1,
        "moment": datetime.datetime(2026, 11, 18, 10, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 11, 18),
        "bytes": b"\x00\xff",
        "flag": True,
        "amount": __import__("decimal").Decimal("12.50"),
        "tags": ["a", "b"],
        "place": {"city": "London"},
    }
    log.create_topic("types", schema).append([row, dict.fromkeys(row) | {"id": 2}])
    make("types").run()
    assert read(kind, tmp_path) == [row, dict.fromkeys(row) | {"id": 2}]


def test_provenance_and_partitions(log: Log, orders: Any, kind: str, make: Make, tmp_path: Path) -> None:
    make(provenance=True, partition_by=["user_id"]).run()
    found = read(kind, tmp_path)
    assert [row["_offset"] for row in found] == list(range(100))
    assert {row["_partition"] for row in found} == {0}
    assert [row["user_id"] for row in found] == [number % 7 for number in range(100)]


# -- Parquet's own -----------------------------------------------------------------------------------


def folder(log: Log, tmp_path: Path, **words: Any) -> Pipeline:
    flow = {"name": "lake", "source": {"topic": "orders"}, "sink": sink_of("parquet", tmp_path, **words)}
    return Pipeline.of(
        {"name": "test", "engine": "local", "log": str(log.path), "batch_rows": 10, "flow": [flow]},
        base=tmp_path,
    )


def test_small_files_are_joined(log: Log, orders: Any, tmp_path: Path) -> None:
    folder(log, tmp_path, join_files=4).run()
    files = list((tmp_path / "parquet" / "current").glob("*.parquet"))
    assert len(files) < 4
    assert read("parquet", tmp_path) == [order(number) for number in range(100)]
    assert (
        len(list((tmp_path / "parquet" / "versions").iterdir())) == 3
    )  # one for readers who come late, and what it replaced


def test_a_reader_keeps_the_version_it_opened(log: Log, orders: Any, tmp_path: Path) -> None:
    folder(log, tmp_path).run()
    version = Path(os.path.realpath(tmp_path / "parquet" / "current"))
    opened = pyarrow.dataset.dataset(version)
    orders.append(order(100))
    folder(log, tmp_path).run()
    assert opened.count_rows() == 100
    assert len(read("parquet", tmp_path)) == 101


def test_folders_by_time(log: Log, orders: Any, tmp_path: Path) -> None:
    folder(log, tmp_path, partition_by=["day(_timestamp)", "user_id"]).run()
    today = orders[0].timestamp.date().isoformat()
    place = tmp_path / "parquet" / "current" / f"day={today}"
    assert sorted(each.name for each in place.iterdir()) == [f"user_id={number}" for number in range(7)]


def test_what_a_folder_refuses(log: Log, orders: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="appended to only"):
        folder(log, tmp_path, mode="upsert", keys=["id"], partition_by=["user_id"]).run()
    with pytest.raises(UsageError, match="no column"):
        folder(log, tmp_path, partition_by=["nobody"]).run()
    (tmp_path / "parquet").mkdir()
    (tmp_path / "parquet" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        folder(log, tmp_path).run()


def test_types_that_a_lake_lacks_are_refused(log: Log, tmp_path: Path) -> None:
    log.create_topic("orders", pa.schema([("at", pa.time64("us"))]))
    flow = {"source": {"topic": "orders"}, "sink": {"delta": str(tmp_path / "delta")}}
    with pytest.raises(UsageError, match="'at': lake tables have no type for time64"):
        Pipeline.of({"name": "t", "engine": "local", "log": str(log.path), "flow": [flow]}).check()


def test_a_lake_is_partitioned_by_columns(orders: Any, kind: str, make: Make) -> None:
    if kind == "parquet":
        pytest.skip("folders have units of time")
    with pytest.raises(UsageError, match="no column of the rows") as caught:
        make(partition_by=["day(_timestamp)"]).check()
    assert "sql" in str(caught.value.hint)
