"""A topic as a stream, and streams into topics: each row once, whatever happens between."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import virta
from virta.spark.positions import lag

pytestmark = pytest.mark.slow


class Copies:
    """A query that copies one topic into another, run until it is through."""

    def __init__(self, frames: Any, checkpoint: Path) -> None:
        self.frames = frames
        self.checkpoint = checkpoint
        self.options = {"log": str(frames.log.path)}

    def source(self, **options: Any) -> Any:
        reader = self.frames.spark.readStream.format("virta").options(**self.options)
        return reader.options(topic="source", **options).load()

    def start(self, frame: Any) -> Any:
        writer = frame.writeStream.format("virta").options(**self.options).option("topic", "target")
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def run(self, **options: Any) -> Any:
        query = self.start(self.source(**options))
        query.awaitTermination()
        return query

    def copied(self) -> list[int]:
        return [row["n"] for row in self.frames.log.topic("target")]


@pytest.fixture
def copies(frames: Any, tmp_path: Path) -> Copies:
    for name in ("source", "target"):
        frames.log.create_topic(name, {"n": int})
    return Copies(frames, tmp_path / "checkpoint")


def add(log: virta.Log, first: int, count: int) -> None:
    log.topic("source").append([{"n": n} for n in range(first, first + count)])


def test_copies_what_is_there_then_what_came(copies: Copies) -> None:
    log = copies.frames.log
    add(log, 0, 100)
    add(log, 100, 20)
    first = copies.run(maxRowsPerTrigger=50)
    batches = [report["numInputRows"] for report in first.recentProgress if report["numInputRows"]]
    assert batches == [50, 50, 20]
    assert [lag(report) for report in first.recentProgress][:3] == [70, 20, 0]
    assert copies.copied() == list(range(120))
    add(log, 120, 3)
    copies.run()
    assert copies.copied() == list(range(123))
    assert copies.run().recentProgress[-1]["numInputRows"] == 0
    assert copies.copied() == list(range(123))
    assert log.topic("target").verify().ok


def test_a_batch_whose_commit_was_not_noted_is_not_written_again(copies: Copies) -> None:
    log = copies.frames.log
    add(log, 0, 10)
    copies.run()
    # Spark died between the sink's commit and its own note of it
    newest = max((copies.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    add(log, 10, 5)
    copies.run()
    assert copies.copied() == list(range(15))


def test_a_new_checkpoint_is_another_run(copies: Copies) -> None:
    add(copies.frames.log, 0, 10)
    copies.run()
    shutil.rmtree(copies.checkpoint)
    copies.run(starting=7)
    assert copies.copied() == [*range(10), 7, 8, 9]


def test_bytes_bound_a_batch(copies: Copies) -> None:
    for first in range(0, 50, 10):
        add(copies.frames.log, first, 10)
    query = copies.run(maxBytesPerTrigger="1kB")
    sizes = [report["numInputRows"] for report in query.recentProgress if report["numInputRows"]]
    assert sum(sizes) == 50 and len(sizes) >= 3
    assert copies.copied() == list(range(50))


def test_a_stream_that_stands_in_another_history_is_told(copies: Copies) -> None:
    log = copies.frames.log
    add(log, 0, 10)
    copies.run()
    log.drop_topic("source")
    log.create_topic("source", {"n": int})
    add(log, 0, 20)
    query = copies.start(copies.source())
    with pytest.raises(Exception, match="HistoryChanged"):
        query.awaitTermination()
    assert copies.copied() == list(range(10))
