"""Whole topics worked through on Spark: masked into another topic, and verified."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import virta
from bench.harness import ROWS_PER_SECOND, Bench, Contest, Target, expect_rows
from bench.spark.ground import ROUNDS, ground, spark, timed

_BATCH = 65_536
_MASKED_ROWS, _QUICK_MASKED_ROWS = 2_000_000, 200_000
_FEW = 1000


def masking(bench: Bench) -> None:
    """Two columns become keyed hashes: once all values differ, once few do."""
    rows = min(bench.rows or _MASKED_ROWS, _QUICK_MASKED_ROWS if bench.quick else _MASKED_ROWS)
    for title, distinct, least in (("all values differ", rows, 250_000), ("1,000 values", _FEW, 1_000_000)):
        with bench.scratch() as root:
            _people(root, rows, distinct)
            numbers = itertools.count()
            runner = timed(lambda root=root, numbers=numbers: _mask(root, rows, next(numbers)), rows)
            bench.compete(
                Contest(
                    workload="masking",
                    title=f"two keyed hashes into another topic, {title}, {rows:,} rows",
                    conditions="a pipeline on Spark: read, masked, staged, appended, with its report",
                    runners={"virta": runner},
                    targets=[Target(metric=ROWS_PER_SECOND, limit=least)],
                    rounds=ROUNDS,
                )
            )


def _people(root: Path, rows: int, distinct: int) -> None:
    generator = np.random.default_rng(7)
    with virta.open(root / "log") as log:
        people = log.create_topic("people", {"id": int, "user": str, "email": str})
        for first in range(0, rows, _BATCH):
            count = min(_BATCH, rows - first)
            ids = (
                np.arange(first, first + count)
                if distinct >= rows
                else generator.integers(0, distinct, count)
            )
            names = np.char.add("user-", ids.astype(str))
            people.append(
                pa.table(
                    {
                        "id": np.arange(first, first + count),
                        "user": pa.array(names),
                        "email": pa.array(np.char.add(names, "@example.com")),
                    }
                )
            )


def _mask(root: Path, rows: int, number: int) -> None:
    from virta.pipelines import Pipeline

    key = root / "key"
    key.write_text("a secret that stays where it is")
    key.chmod(0o600)
    flow: dict[str, Any] = {
        "name": f"mask{number}",
        "source": {"topic": "people"},
        "sink": {"topic": f"masked{number}"},
        "mask": [{"columns": ["user", "email"], "mask": "hash"}, {"columns": "*", "mask": "keep"}],
        "key": {"file": str(key)},
    }
    spark()
    written = {"name": f"bench{number}", "engine": "spark", "log": str(root / "log"), "flow": [flow]}
    Pipeline.of(written, base=root).run()
    with virta.open(root / "log") as log:
        expect_rows("the masked topic", rows, log.topic(f"masked{number}").count())
        log.drop_topic(f"masked{number}")


def verification(bench: Bench) -> None:
    """Every digest and every link of a topic."""
    from virta.pipelines.upkeep import Upkeep

    with ground(bench) as field:

        def verify() -> None:
            with Upkeep(field.log) as upkeep:
                report = upkeep.verify("rows")
            expect_rows("the verified topic", field.rows, report.rows if report.ok else 0)

        bench.compete(
            Contest(
                workload="verification",
                title=f"verification of {field.rows:,} rows",
                conditions="page cache warm; all cores",
                runners={"virta": timed(verify, field.rows)},
                targets=[Target(metric=ROWS_PER_SECOND, limit=4_000_000)],
                rounds=ROUNDS,
            )
        )
