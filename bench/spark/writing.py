"""Writing: rows that Spark has read from Parquet, into a topic and into Parquet again."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import virta
from bench.harness import MILLISECONDS, Bench, Contest, Target, expect_rows
from bench.spark.ground import ROUNDS, SCHEMA, ground, timed


def write(bench: Bench) -> None:
    """All rows, exactly once and synced; Parquet's are neither."""
    with ground(bench) as field:
        numbers = itertools.count()

        def into_topic() -> None:
            name = f"copy{next(numbers)}"
            with virta.open(field.log) as log:
                log.create_topic(name, SCHEMA)
                field.files().write.format("virta").option("log", field.log).mode("append").save(name)
                expect_rows("the topic", field.rows, log.topic(name).count())
                log.drop_topic(name)

        def into_files() -> None:
            place = Path(field.root) / f"copy{next(numbers)}.parquet"
            field.files().write.parquet(str(place))
            shutil.rmtree(place)

        bench.compete(
            Contest(
                workload="write",
                title=f"writing {field.rows:,} rows",
                conditions="the rows come from Parquet; virta syncs, and each row is there once",
                runners={
                    "virta": timed(into_topic, field.rows),
                    "parquet": timed(into_files, field.rows),
                },
                targets=[Target(metric=MILLISECONDS, against="parquet", times_cost=1.5)],
                rounds=ROUNDS,
            )
        )
