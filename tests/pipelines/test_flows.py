"""Flows in this process: what is copied, changed and remembered, and that a crash changes nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import virta
from tests.pipelines.conftest import Crash, crash_at, order, run_with_crashes
from virta.errors import Conflict, Denied, NotFound, UsageError
from virta.log import Log
from virta.pipelines import Pipeline


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(3, "amount", pc.multiply(batch.column("amount"), 2))


def pipeline(log: Log, *flows: dict[str, Any], **words: Any) -> Pipeline:
    base = log.path.parent
    return Pipeline.of(
        {
            "name": "test",
            "engine": "local",
            "log": str(log.path),
            "batch_rows": 30,
            "flow": list(flows),
            **words,
        },
        base=base,
    )


COPY = {"source": {"topic": "orders"}, "sink": {"topic": "copy"}}


def rows(topic: Any) -> list[dict[str, Any]]:
    return topic[:].to_pylist()


def test_a_topic_is_copied_once_and_then_what_is_new(log: Log, orders: Any) -> None:
    report = pipeline(log, COPY).run()
    assert (report.rows, report.flows[0].batches) == (100, 4)
    assert pipeline(log, COPY).run().rows == 0
    orders.append([order(100), order(101)])
    assert pipeline(log, COPY).run().rows == 2
    assert rows(log.topic("copy")) == [order(number) for number in range(102)]
    (state,) = pipeline(log, COPY).show()
    assert (state.done.number, state.done.rows, state.pending) == (5, 102, False)


def test_a_crash_at_any_step_changes_nothing(log: Log, orders: Any) -> None:
    assert run_with_crashes(lambda: pipeline(log, COPY)) > 5
    assert rows(log.topic("copy")) == [order(number) for number in range(100)]
    assert not list((log.path.parent / ".virta-test" / "orders").glob("staged/*"))


def test_a_crash_in_the_middle_of_appending(log: Log, orders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from virta.topics.writer import Writer

    sends, real = 0, Writer.send_batch

    def send(self: Writer, batch: Any) -> None:
        nonlocal sends
        sends += 1
        if sends == 2:
            real(self, batch.slice(0, 10))
            raise Crash
        real(self, batch)

    monkeypatch.setattr(Writer, "send_batch", send)
    with pytest.raises(Crash):
        pipeline(log, COPY).run()
    report = pipeline(log, COPY).run()
    assert report.flows[0].finished_earlier
    assert rows(log.topic("copy")) == [order(number) for number in range(100)]


def test_a_range_filtered_and_changed_by_python(log: Log, orders: Any) -> None:
    flow = {**COPY, "source": {"topic": "orders", "from": 10, "to": 20}, "where": "id < 15", "python": double}
    pipeline(log, flow).run()
    assert [(row["id"], row["amount"]) for row in rows(log.topic("copy"))] == [
        (n, float(n)) for n in range(10, 15)
    ]
    named = {**flow, "name": "named", "python": f"{__name__}:double", "sink": {"topic": "named"}}
    assert pipeline(log, named).check()[0].columns is None


def test_changed_by_sql_over_the_whole_batch(log: Log, orders: Any) -> None:
    flow = {
        **COPY,
        "sql": "select user_id, sum(amount) as total, max(_offset) as newest from rows group by 1 order by 1",
        "sink": {"topic": "totals"},
        "batch_rows": 1000,
    }
    pipeline(log, flow).run()
    found = rows(log.topic("totals"))
    assert [row["user_id"] for row in found] == list(range(7))
    assert sum(row["total"] for row in found) == sum(number / 2 for number in range(100))
    wrong = {**flow, "name": "wrong", "sql": "select nothing from rows"}
    with pytest.raises(UsageError, match="the SQL of this flow"):
        pipeline(log, wrong).run()


def test_a_function_that_is_none_of_ours(log: Log, orders: Any) -> None:
    for python, message in (
        ("nowhere:f", "cannot be imported"),
        ("json", "no function"),
        (lambda b: 3, "not int"),
    ):
        with pytest.raises(UsageError, match=message):
            pipeline(log, {**COPY, "python": python}).run()


def test_schemas_are_carried_along(log: Log, orders: Any) -> None:
    pipeline(log, COPY).run()
    orders.alter(schema={"id": int, "user_id": int, "email": str, "amount": float, "note": str | None})
    orders.append({**order(100), "note": "new"})
    pipeline(log, COPY).run()
    found = rows(log.topic("copy"))
    assert found[0]["note"] is None and found[-1]["note"] == "new"
    stiff = {**COPY, "name": "stiff", "sink": {"topic": "stiff", "evolve": False}}
    log.create_topic("stiff", {"id": int})
    with pytest.raises(UsageError, match="evolve = true"):
        pipeline(log, stiff).run()


def test_keys_kind_and_partitions_are_the_sources(log: Log) -> None:
    users = log.create_topic("users", {"id": int, "name": str}, kind="update", keys=["id"], partitions=3)
    users.append([{"id": number, "name": f"name {number}"} for number in range(50)])
    flow = {"source": {"topic": "users"}, "sink": {"topic": "copy"}}
    assert run_with_crashes(lambda: pipeline(log, flow)) >= 5
    copy = log.topic("copy")
    assert (str(copy.config.kind), tuple(copy.config.keys), copy.config.partitions) == ("update", ("id",), 3)
    assert sorted(row["id"] for row in copy.to_arrow().to_pylist()) == list(range(50))
    assert dict(copy.next_offsets) == dict(users.next_offsets)


def test_what_is_appended_meanwhile_is_for_the_next_run(log: Log, orders: Any) -> None:
    def append_more(step: Any) -> None:
        if step.what == "done":
            orders.append(order(1000))

    assert pipeline(log, COPY).run(watch=append_more).read == 100
    assert pipeline(log, COPY).run().read == 4


def test_for_ever_until_it_is_stopped(log: Log, orders: Any) -> None:
    stop = threading.Event()
    found = []
    for report in pipeline(log, COPY).run_forever(interval=0.01, stop=stop):
        found.append(report.rows)
        if len(found) == 3:
            stop.set()
        orders.append([order(number) for number in range(5)])
    assert found == [100, 5, 5]


def test_each_run_is_noted(log: Log, orders: Any) -> None:
    report = pipeline(log, COPY).run()
    noted = [row for row in log.topic("__events")[:].to_pylist() if row["kind"] == "pipeline run"]
    assert len(noted) == 1 and noted[0]["topic"] == "copy"
    assert report.run in str(noted[0]["details"]) and '"rows": 100' in str(noted[0]["details"]).replace(
        '":', '": '
    ).replace("  ", " ")


def test_a_sink_that_is_not_what_it_was_is_refused(log: Log, orders: Any) -> None:
    pipeline(log, COPY).run(flows=["orders"])
    orders.append(order(100))
    with pytest.raises(Crash):
        pipeline(log, COPY).run(watch=crash_at(3))  # the batch is recorded, with the sink's count
    log.drop_topic("copy")
    with pytest.raises(Conflict, match=r"rows of test/orders"):
        pipeline(log, COPY).run()


def test_one_runner_at_a_time(log: Log, orders: Any) -> None:
    def run_another(step: Any) -> None:
        with pytest.raises(Conflict, match="in use"):
            pipeline(log, COPY).run()

    pipeline(log, COPY).run(watch=run_another)


def test_history_that_changed_is_noticed(log: Log, orders: Any, tmp_path: Path) -> None:
    pipeline(log, COPY).run()
    log.drop_topic("orders")
    again = log.create_topic("orders", {"id": int, "user_id": int, "email": str, "amount": float})
    again.append([order(number) for number in range(200)])
    with pytest.raises(virta.HistoryChanged):
        pipeline(log, COPY).run()


def test_a_preview_writes_nothing(log: Log, orders: Any) -> None:
    flow = {**COPY, "mask": [{"columns": "email", "mask": "redact"}, {"columns": "*", "mask": "keep"}]}
    (shown,) = pipeline(log, flow).preview(rows=3)
    assert [row["email"] for row in shown.before.to_pylist()] == [order(n)["email"] for n in range(3)]
    assert [row["email"] for row in shown.after.to_pylist()] == ["[redacted]"] * 3
    assert log.topics() == ["orders"]
    assert not (log.path.parent / ".virta-test").exists()


def test_a_new_column_without_a_rule_stops_the_next_run(log: Log, orders: Any) -> None:
    flow = {
        **COPY,
        "mask": [
            {"columns": ["id", "user_id", "amount"], "mask": "keep"},
            {"columns": "email", "mask": "drop"},
        ],
    }
    pipeline(log, flow).run()
    orders.alter(schema={"id": int, "user_id": int, "email": str, "amount": float, "phone": str | None})
    orders.append({**order(100), "phone": "+358 40 1"})
    with pytest.raises(Denied, match="phone"):
        pipeline(log, flow).run()
    assert "phone" not in log.topic("copy").schema.names


# -- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow"])
def test_files_are_taken_once(log: Log, orders: Any, form: str) -> None:
    from virta.exchange.export import export

    place = log.path.parent / "in"
    place.mkdir()
    export(orders[:50], place / f"one.{form}")
    columns = {"id": "int", "user_id": "int", "email": "str", "amount": "float"}
    flow = {"name": "files", "source": {"files": "in", "columns": columns}, "sink": {"topic": "copy"}}
    assert pipeline(log, flow).run().rows == 50
    export(orders[50:], place / f"two.{form}")
    assert run_with_crashes(lambda: pipeline(log, flow)) > 2
    assert rows(log.topic("copy")) == [order(number) for number in range(100)]
    (place / f"two.{form}").write_bytes(b"changed")
    with pytest.raises(UsageError, match="was changed"):
        pipeline(log, flow).run()


def test_the_columns_of_files_are_found_out(log: Log, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,user\n1,ada\n2,bob\n")
    (tmp_path / "b.jsonl").write_text('{"id": 3, "user": "zoë"}\n')
    for pattern in ("*.csv", "*.jsonl"):
        pipeline(
            log, {"name": pattern[2:], "source": {"files": pattern}, "sink": {"topic": pattern[2:]}}
        ).run()
    assert rows(log.topic("csv")) == [{"id": 1, "user": "ada"}, {"id": 2, "user": "bob"}]
    assert rows(log.topic("jsonl")) == [{"id": 3, "user": "zoë"}]
    with pytest.raises(NotFound, match="no files"):
        pipeline(log, {"source": {"files": "*.parquet"}, "sink": {"topic": "x"}}).run()


# -- what is written wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"naem": "x"}, 'did you mean "name"'),
        ({"name": "a/b"}, "no name for a pipeline"),
        ({"engine": "steam"}, "engine of a pipeline"),
        ({"batch_rows": 0}, "at least one row"),
        ({"batch_rows": "many"}, "batch_rows of the pipeline cannot be"),
        ({"flow": []}, "no flows"),
        ({"flow": [COPY, COPY]}, "same name"),
        ({"flow": [{"source": {"topic": "orders"}}]}, "needs sink"),
        ({"flow": [{**COPY, "sink": {}}]}, "is one of topic, parquet"),
        ({"flow": [{**COPY, "source": {"topic": "orders", "form": "x"}}]}, "no setting 'form'"),
        ({"flow": [{**COPY, "sample": {"by": "user_id", "share": 0.5}}]}, "chosen with a masking key"),
        ({"flow": [{**COPY, "where": "nothing > 3"}]}, "nothing"),
        ({"flow": [{**COPY, "sink": {"delta": "x", "mode": "upsert"}}]}, "needs keys"),
        ({"flow": [{**COPY, "sink": {"delta": "x", "mode": "replace"}}]}, "not by 'replace'"),
        ({"flow": [{**COPY, "sink": {"iceberg": "x"}}]}, "NAMESPACE.TABLE"),
        ({"key": {"value": "x" * 20}, "flow": [COPY]}, "never written down"),
    ],
)
def test_a_mistake_is_told_before_anything_is_read(log: Log, orders: Any, changes: Any, message: str) -> None:
    written = {"name": "test", "engine": "local", "log": str(log.path), "flow": [COPY], **changes}
    with pytest.raises(virta.VirtaError, match=message):
        Pipeline.of(written, base=log.path.parent).run()
    assert log.topics() == ["orders"]


def test_a_flow_that_lost_its_state_does_not_copy_twice(log: Log, orders: Any, tmp_path: Path) -> None:
    import shutil

    written = {
        "name": "lost",
        "engine": "local",
        "log": str(log.path),
        "flow": {"source": {"topic": "orders"}, "sink": {"topic": "copy"}},
    }
    Pipeline.of(written, base=tmp_path).run()
    shutil.rmtree(tmp_path / ".virta-lost")
    with pytest.raises(UsageError, match="has 100 rows of lost/orders"):
        Pipeline.of(written, base=tmp_path).run()
    assert log.topic("copy").count() == 100
