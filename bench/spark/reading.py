"""Reading: all columns, an aggregate over three, and how many rows there are."""

from __future__ import annotations

from typing import Any

from bench.harness import MILLISECONDS, Bench, Contest, LostRows, Target
from bench.spark.ground import COLUMNS, ROUNDS, Ground, ground, nowhere, timed

_THREE = "product bigint, amount double, id bigint"
PLAIN = "virta, not verified"


def scan(bench: Bench) -> None:
    """Every column of every row, from topic and files."""
    with ground(bench) as field:
        bench.compete(
            Contest(
                workload="scan",
                title=f"scan of all columns, {field.rows:,} rows",
                conditions="into Spark's no-op sink; the same five columns; page cache warm",
                runners={
                    "virta": timed(lambda: nowhere(field.topic(schema=COLUMNS)), field.rows),
                    PLAIN: timed(lambda: nowhere(field.topic(schema=COLUMNS, verify="false")), field.rows),
                    "parquet": timed(lambda: nowhere(field.files()), field.rows),
                },
                targets=[
                    Target(metric=MILLISECONDS, against="parquet", times_cost=2),
                    Target(metric=MILLISECONDS, contender=PLAIN, against="parquet", times_cost=1.6),
                ],
                rounds=ROUNDS,
            )
        )


def aggregate(bench: Bench) -> None:
    """Sums of two columns by a third."""
    with ground(bench) as field:
        expected = _sums(field.files())

        def ask(frame: Any) -> None:
            if _sums(frame) != expected:
                raise LostRows("the sums are others")

        bench.compete(
            Contest(
                workload="aggregate",
                title=f"sums by a number, three columns, {field.rows:,} rows",
                conditions="columns chosen by a schema; page cache warm",
                runners={
                    "virta": timed(lambda: ask(field.topic(schema=_THREE)), field.rows),
                    PLAIN: timed(lambda: ask(field.topic(schema=_THREE, verify="false")), field.rows),
                    "parquet": timed(lambda: ask(field.files()), field.rows),
                },
                targets=[Target(metric=MILLISECONDS, against="parquet", times_cost=2)],
                rounds=ROUNDS,
            )
        )


def _sums(frame: Any) -> list[tuple[int, int, int]]:
    """Rounded, since floats are added in another order every time."""
    found = frame.groupBy("product").agg({"id": "sum", "amount": "sum"}).collect()
    return sorted((row[0], row["sum(id)"], round(row["sum(amount)"])) for row in found)


def count(bench: Bench) -> None:
    """How many rows there are: from chain files, by reading, and from Parquet's footers."""
    from pyspark.sql.types import StructType

    with ground(bench) as field:

        def expect(frame: Any) -> None:
            if (found := frame.count()) != field.rows:
                raise LostRows(f"{found:,} rows are counted, of {field.rows:,}")

        bench.compete(
            Contest(
                workload="count",
                title=f"count() of {field.rows:,} rows",
                conditions="virta: a schema without columns; reading: all columns",
                runners={
                    "virta": timed(lambda: expect(field.topic(schema=StructType([]))), field.rows),
                    "virta, reading": timed(lambda: expect(field.topic()), field.rows),
                    "virta, blocks": timed(lambda: _expect_blocks(field), field.rows),
                    "parquet": timed(lambda: expect(field.files()), field.rows),
                },
                rounds=ROUNDS,
            )
        )


def _expect_blocks(field: Ground) -> None:
    found = field.topic(kind="blocks", columns="rows").groupBy().sum("rows").collect()[0][0]
    if found != field.rows:
        raise LostRows(f"blocks have {found:,} rows, of {field.rows:,}")


def growth(bench: Bench) -> None:
    """The same scan over more and more rows."""
    whole = bench.rows or (500_000 if bench.quick else 10_000_000)
    for rows in (whole // 100, whole // 10, whole):
        with ground(bench, rows) as field:
            bench.compete(
                Contest(
                    workload="growth",
                    title=f"scan of all columns as the topic grows, {rows:,} rows",
                    conditions="verified; into Spark's no-op sink; page cache warm",
                    runners={
                        "virta": timed(lambda field=field: nowhere(field.topic(schema=COLUMNS)), rows),
                        "parquet": timed(lambda field=field: nowhere(field.files()), rows),
                    },
                    rounds=2,
                )
            )
