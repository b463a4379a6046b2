"""Update topics and topics of several partitions, as tables, changes and streams."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import virta

pytestmark = pytest.mark.slow


@pytest.fixture
def users(log: virta.Log) -> Any:
    topic = log.create_topic(
        "users", {"id": int, "name": str | None}, kind="update", keys=["id"], partitions=2
    )
    topic.append([{"id": n, "name": f"n{n}"} for n in range(10)])
    topic.append([{"id": 3, "name": "new"}])
    topic.delete([{"id": 4}])
    return topic


def test_a_table_has_the_newest_row_of_each_key(frames: Any, users: Any) -> None:
    names = {row["id"]: row["name"] for row in frames.rows("users")}
    assert names == {n: f"n{n}" for n in range(10) if n != 4} | {3: "new"}
    assert frames.read("users", where="name = 'n3'").count() == 0
    assert frames.read("users", pushdown="once").where("name = 'n3'").count() == 0
    before = {number: partition.next_offset for number, partition in enumerate(users.partitions)}
    users.append([{"id": 5, "name": "later"}])
    ending = "{" + ", ".join(f'"{number}": {offset}' for number, offset in before.items()) + "}"
    assert {row["id"]: row["name"] for row in frames.rows("users", ending=ending)} == names


def test_changes_say_what_they_delete(frames: Any, users: Any) -> None:
    rows = frames.rows("users", kind="changes")
    assert len(rows) == 12
    assert [(row["id"], row["name"]) for row in rows if row["_deleted"]] == [(4, None)]
    assert {row["_partition"] for row in rows} == {0, 1}


def test_writing_updates_and_deletes_by_key(frames: Any, users: Any) -> None:
    frame = frames.spark.sql(
        "select * from values (1L, 'one', false), (2L, null, true), (11L, 'eleven', false)"
        " rows(id, name, _deleted)"
    )
    frames.write(frame, "users")
    table = {row["id"]: row["name"] for row in users.table()}
    assert table[1] == "one" and 2 not in table and table[11] == "eleven"
    # what Spark has written lies where a look-up by key finds it
    assert users.get(11)["name"] == "eleven"
    assert users.verify().ok


def test_changes_stream_into_a_topic_of_other_partitions(
    frames: Any, users: Any, log: virta.Log, tmp_path: Path
) -> None:
    log.create_topic("copy", users.schema, kind="update", keys=["id"], partitions=3)
    options = {"log": str(log.path)}
    reader = frames.spark.readStream.format("virta").options(**options, kind="changes")
    for _ in range(2):
        writer = reader.load("users").writeStream.format("virta").options(**options).option("topic", "copy")
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        users.append([{"id": 6, "name": "six"}])
    copied = Counter((row["id"], row["name"]) for row in log.topic("copy").table())
    assert copied == Counter(
        (row["id"], row["name"])
        for row in frames.spark.createDataFrame(
            [(row["id"], row["name"]) for row in users.table()], "id long, name string"
        ).collect()
    )
