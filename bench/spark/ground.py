"""The same rows in a topic and in Parquet files, and the Spark that reads both.

A row has 100 bytes: three numbers, a text of 11 bytes and one of 65. Parquet is written with
its defaults (snappy, a million rows to a row group), in as many files as Spark itself would
make of a plan with two tasks. The page cache is warm.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import virta
from bench.harness import MILLISECONDS, ROWS_PER_SECOND, Bench, Sample, Unavailable

ROWS, QUICK_ROWS = 10_000_000, 500_000
ROUNDS = 3
SCHEMA = {"id": int, "user": str, "amount": float, "product": int, "text": str}
# As Spark sees the columns of the rows, without offset and time.
COLUMNS = "id bigint, user string, amount double, product bigint, text string"
_BATCH = 65_536
_TEXT_BYTES = 65


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where the rows are."""

    spark: Any
    root: Path
    rows: int

    @property
    def log(self) -> str:
        return str(self.root / "log")

    @property
    def parquet(self) -> str:
        return str(self.root / "parquet")

    def topic(self, *, schema: Any = None, **options: Any) -> Any:
        reader = self.spark.read.format("virta").option("log", self.log).options(**options)
        return (reader if schema is None else reader.schema(schema)).load("rows")

    def files(self) -> Any:
        return self.spark.read.parquet(self.parquet)


@functools.cache
def spark() -> Any:
    """The one Spark of the run."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise Unavailable("PySpark is not installed") from error
    from virta.spark import session

    return session("local[*]", memory="2g")


@contextmanager
def ground(bench: Bench, rows: int | None = None) -> Iterator[Ground]:
    """A topic and files with the same rows."""
    count = rows or bench.rows or (QUICK_ROWS if bench.quick else ROWS)
    started = spark()
    with bench.scratch() as root:
        _fill(root, count)
        yield Ground(spark=started, root=root, rows=count)


def _fill(root: Path, rows: int) -> None:
    from pyarrow import parquet

    (root / "parquet").mkdir()
    with virta.open(root / "log") as log:
        topic = log.create_topic("rows", SCHEMA)
        tables = _tables(rows)
        halves = [-(-rows // 2), rows // 2]
        first = next(tables)
        for number, half in enumerate(halves):
            left = half
            with parquet.ParquetWriter(root / "parquet" / f"{number}.parquet", first.schema) as writer:
                held: list[pa.Table] = []
                while left > 0 and first is not None:
                    part = first.slice(0, left)
                    topic.append(part)
                    held.append(part)
                    left -= part.num_rows
                    first = (
                        first.slice(part.num_rows) if part.num_rows < first.num_rows else next(tables, None)
                    )
                    if left <= 0 or sum(each.num_rows for each in held) >= 1 << 20:
                        writer.write_table(pa.concat_tables(held).combine_chunks(), row_group_size=1 << 20)
                        held.clear()
        topic.sync()


def _tables(rows: int) -> Iterator[pa.Table]:
    generator = np.random.default_rng(7)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEF", "u1")
    for first in range(0, rows, _BATCH):
        count = min(_BATCH, rows - first)
        text = letters[generator.integers(0, len(letters), count * _TEXT_BYTES, dtype=np.int32)]
        users = np.char.add("user-", generator.integers(100_000, 1_000_000, count).astype(str))
        yield pa.table(
            {
                "id": np.arange(first, first + count),
                "user": pa.array(users),
                "amount": generator.random(count) * 100,
                "product": generator.integers(0, 500, count),
                "text": fixed_text(text.tobytes(), _TEXT_BYTES),
            }
        )


def fixed_text(data: bytes, width: int) -> pa.Array:
    """Text that is cut into values of one width."""
    count = len(data) // width
    offsets = np.arange(0, (count + 1) * width, width, dtype="int32")
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


def timed(work: Callable[[], Any], rows: int) -> Callable[[], Sample]:
    """A contender that does the work twice before it is timed for the first time."""
    warm: list[bool] = []

    def run() -> Sample:
        if not warm:
            work()
            warm.append(True)
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        return {MILLISECONDS: seconds * 1000, ROWS_PER_SECOND: rows / seconds}

    return run


def nowhere(frame: Any) -> None:
    """Make every row, and keep none."""
    frame.write.format("noop").mode("overwrite").save()
