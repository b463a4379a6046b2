"""Topics as DataFrames, in the one Spark that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta


@pytest.fixture
def log(tmp_path: Path) -> Iterator[virta.Log]:
    with virta.open(tmp_path / "events") as opened:
        yield opened


class Frames:
    """Reads and writes topics of one log as DataFrames."""

    def __init__(self, spark: Any, log: virta.Log) -> None:
        self.spark = spark
        self.log = log

    def read(self, topic: str, **options: Any) -> Any:
        reader = self.spark.read.format("virta").option("log", str(self.log.path))
        return reader.options(**options).load(topic)

    def rows(self, topic: str, **options: Any) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in self.read(topic, **options).collect()]

    def write(self, frame: Any, topic: str, **options: Any) -> None:
        writer = frame.write.format("virta").option("log", str(self.log.path))
        writer.options(**options).mode("append").save(topic)


@pytest.fixture
def frames(spark: Any, log: virta.Log) -> Frames:
    return Frames(spark, log)
