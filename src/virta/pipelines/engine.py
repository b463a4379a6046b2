"""Who does the work of a batch: this process, or Spark's workers (`spark_engine`).

Both do the same: each split of a plan is read, transformed and written to a staged file;
what comes back is the list of files, in the order of the splits. SQL sees all rows of a
batch at once, as the table `rows`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.errors import UnavailableError, UsageError
from virta.pipelines.journal import Staged, StagedFile
from virta.pipelines.sources.base import Plan, Source, Split
from virta.pipelines.sources.through_spark import SparkSource
from virta.pipelines.transform import Transform

TABLE = "rows"


class Engine(ABC):
    """Does the work of batches."""

    name: str

    @abstractmethod
    def attach(self, sources: Iterable[Source]) -> None:
        """Give sources what they need of the engine, or refuse those it cannot read."""

    @abstractmethod
    def stage(self, source: Source, transform: Transform, plan: Plan, directory: Path) -> tuple[Staged, ...]:
        """Read, transform and stage the rows of a plan."""

    def close(self) -> None:  # noqa: B027 (most have nothing to let go of)
        """Let go of what was started for it."""


class LocalEngine(Engine):
    """In this process, split after split: no Java, no start-up, one core."""

    name = "local"

    def attach(self, sources: Iterable[Source]) -> None:
        for source in sources:
            if isinstance(source, SparkSource):
                raise UsageError(
                    f"{source.origin().description} is read by Spark", hint='say engine = "spark"'
                )

    def stage(self, source: Source, transform: Transform, plan: Plan, directory: Path) -> tuple[Staged, ...]:
        if transform.sql is not None:
            counted = _Counted(itertools.chain.from_iterable(source.read(split) for split in plan.splits))
            return (_staged(queried(transform, counted), counted, transform, directory),)
        return tuple(stage_split(source, transform, split, directory) for split in plan.splits)


def stage_split(source: Source, transform: Transform, split: Split, directory: Path) -> Staged:
    """One split, wherever this runs."""
    counted = _Counted(source.read(split))
    return _staged(transform.before(counted), counted, transform, directory)


def stage_batches(
    batches: Iterable[pa.RecordBatch], transform: Transform, directory: Path, *, filtered: bool
) -> Staged:
    """Rows that somebody else has read."""
    counted = _Counted(batches)
    return _staged(counted if filtered else transform.before(counted), counted, transform, directory)


class _Counted:
    """Batches, and how many rows have gone by."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def _staged(
    batches: Iterable[pa.RecordBatch], counted: _Counted, transform: Transform, directory: Path
) -> Staged:
    file = StagedFile(directory)
    try:
        for batch in transform.after(batches):
            file.write(batch)
        file.read = counted.rows
        return file.finish()
    except BaseException:
        file.discard()
        raise


def queried(transform: Transform, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The outcome of the SQL over all rows, by DuckDB, streamed in and out."""
    try:
        import duckdb
    except ImportError as error:
        raise UnavailableError(
            "SQL in a pipeline needs DuckDB where Spark does not run it", hint="pip install 'virta[sql]'"
        ) from error
    rows = transform.before(batches)
    first = next(rows, None)
    if first is None:
        return
    assert transform.sql is not None
    reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], rows))
    with duckdb.connect() as connection:
        connection.execute("set preserve_insertion_order = true; set TimeZone = 'UTC'")
        connection.register(TABLE, reader)
        try:
            found: Any = connection.sql(transform.sql).to_arrow_reader(64 * 1024)
            yield from found
        except duckdb.Error as error:
            raise UsageError(
                f"the SQL of this flow cannot be run: {str(error).splitlines()[0]}",
                hint=f"it reads the table {TABLE}: select * from {TABLE}",
            ) from error
