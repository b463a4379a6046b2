"""One Spark for all tests of this folder: starting it costs more than they do."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import virta


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from virta.spark import session
    from virta.spark.java import find_java

    try:
        find_java()
    except virta.VirtaError as error:
        pytest.skip(f"no Java to run Spark on: {error}")
    # Spark starts many short processes; each would compile all that it imports
    compiling = os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    made = session(
        "local[2]",
        memory="1g",
        fast_start=True,
        conf={"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"},
    )
    if compiling is not None:
        os.environ["PYTHONDONTWRITEBYTECODE"] = compiling
    yield made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # py4j leaves its sockets to the collector
        made.stop()


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
