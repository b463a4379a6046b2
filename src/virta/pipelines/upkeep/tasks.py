"""A function over many pieces, each a task of Spark's.

Pieces go out in waves of some tasks per core, so that a caller can put the outcome of one wave
in force, and tell of it, before the next is begun. A task that fails is tried again by Spark,
on another worker if its own is gone; so a function is one that may be run twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from virta.pipelines.spark_engine import register, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Piece = TypeVar("Piece")
Outcome = TypeVar("Outcome")

# Waves leave cores idle at their end; with so many tasks for each core that is a small part.
_TASKS_PER_CORE = 8
_CORES_WHERE_UNKNOWN = 16
_NAME = "virta_tasks"
# What a wave brings back at most is a few numbers, or the keys of rows, for each segment.
_SCHEMA = "place int, outcome binary"


class Run(Protocol):
    """How functions are run over pieces; outcomes come in the order of the pieces."""

    def __call__(
        self, function: Callable[[Piece], Outcome], pieces: Sequence[Piece], /
    ) -> Iterator[Outcome]: ...


def on_spark(spark: SparkSession) -> Run:
    """Tasks of this session."""

    def run(function: Callable[[Any], Any], pieces: Sequence[Any], /) -> Iterator[Any]:
        wave = _TASKS_PER_CORE * _cores(spark)
        for start in range(0, len(pieces), wave):
            yield from _wave(spark, function, pieces[start : start + wave])

    return run


def in_this_process(function: Callable[[Any], Any], pieces: Sequence[Any], /) -> Iterator[Any]:
    """The same without Spark: for tests, and for what is too small to be sent anywhere."""
    return map(function, pieces)


def _cores(spark: SparkSession) -> int:
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except PySparkException:  # over Spark Connect nobody says
        return _CORES_WHERE_UNKNOWN


def _wave(spark: SparkSession, function: Callable[[Any], Any], pieces: Sequence[Any]) -> list[Any]:
    register(spark, _tasks(function, pieces))
    try:
        rows = spark.read.format(_NAME).load().collect()
    except PySparkException as error:
        raise told(error) from error
    return [pickle.loads(row["outcome"]) for row in sorted(rows, key=lambda row: row["place"])]


@dataclass
class _Task(InputPartition):
    """One piece: it goes to its own task only."""

    place: int
    piece: Any


def _tasks(function: Callable[[Any], Any], pieces: Sequence[Any]) -> type[DataSource]:
    """A data source for this wave alone. Made here, it is pickled with all it holds."""

    class Tasks(DataSource):
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> str:
            return _SCHEMA

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return _Reader(function, pieces)

    return Tasks


class _Reader(DataSourceReader):
    def __init__(self, function: Callable[[Any], Any], pieces: Sequence[Any]) -> None:
        self._function = function
        self._pieces = pieces

    def __getstate__(self) -> dict[str, Any]:
        """On its way to the tasks, which have a piece each."""
        return {"_function": self._function, "_pieces": ()}

    def partitions(self) -> Sequence[InputPartition]:
        return [_Task(place, piece) for place, piece in enumerate(self._pieces)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, bytes]]:
        assert isinstance(partition, _Task)
        yield partition.place, pickle.dumps(self._function(partition.piece))
