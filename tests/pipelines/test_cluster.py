"""Every kind of pipeline on a real cluster: Spark's standalone master and two workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import virta
from tests.pipelines.conftest import order
from tests.pipelines.test_sinks import KINDS, read, sink_of

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("deltalake", reason="deltalake is not installed")
pytest.importorskip("pyiceberg", reason="PyIceberg is not installed")

from tests.spark.cluster import environment, standalone  # noqa: E402

ROWS = 1000
SMALL = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}


def flows(place: Path) -> list[dict[str, Any]]:
    """A copy, Spark's own SQL, a file, and a table of each kind."""
    orders = {"topic": "orders", "log": "@prod"}
    by_user = "select user_id, sum(amount) as total, count(*) as orders from rows group by user_id"
    return [
        {"name": "copy", "source": orders, "sink": {"topic": "copy", "log": "@prod"}},
        {
            "name": "sql",
            "source": orders,
            "sql": by_user,
            "sink": {"topic": "by_user", "log": "@prod", "keys": ["user_id"]},
        },
        {
            "name": "files",
            "source": {"files": str(place / "more.csv"), "columns": {"id": "int", "city": "str"}},
            "sink": {"topic": "cities", "log": "@prod"},
        },
        *({"name": kind, "source": orders, "sink": sink_of(kind, place)} for kind in KINDS),
    ]


DEMOTE = {
    "from": "@prod",
    "to": "@dev",
    "topics": ["orders"],
    "key": {"env": "VIRTA_MASKING_KEY"},
    "mask": [
        {"columns": ["email"], "mask": "email"},
        {"columns": ["user_id"], "mask": "hash"},
        {"columns": ["id", "amount"], "mask": "keep"},
    ],
}


def test_every_kind_runs_there(environments: Path) -> None:
    import tomli_w

    place = environments
    (place / "more.csv").write_text("id,city\n" + "".join(f"{n},Turku\n" for n in range(50)))
    with virta.open("@prod") as log:
        schema = {"id": int, "user_id": int, "email": str, "amount": float}
        orders = log.create_topic("orders", schema, partitions=2, keys=["id"])
        orders.append([order(number) for number in range(ROWS)])
        users = log.create_topic("users", {"id": int, "name": str}, kind="update", keys=["id"])
        for turn in range(3):
            users.append([{"id": n, "name": f"{turn}"} for n in range(100)])
    written = {"name": "all", "spark": SMALL, "demote": DEMOTE, "flow": flows(place)}
    (place / "all.toml").write_text(tomli_w.dumps(written))
    with standalone(place) as address:
        said = virta_said("pipeline", "run", str(place / "all.toml"), "--master", address, "-o", "jsonl")
        again = virta_said("pipeline", "run", str(place / "all.toml"), "--master", address, "-o", "jsonl")
        common = ("--master", address, "-l", "@prod", *(f"--conf={k}={v}" for k, v in SMALL.items()))
        compacted = virta_said("pipeline", "compact", "users", "--force", *common, "-o", "json")
        verified = virta_said("pipeline", "verify", "orders", *common, "-o", "json")
    rows = {row["flow"]: row["rows"] for row in map(json.loads, said.splitlines())}
    assert rows == {"orders": ROWS, "copy": ROWS, "sql": 7, "files": 50, **dict.fromkeys(KINDS, ROWS)}
    assert all(row["rows"] == 0 for row in map(json.loads, again.splitlines()))
    assert compacted and verified
    whole = list(range(ROWS))
    with virta.open("@prod") as log, virta.open("@dev") as lower:
        assert sorted(row["id"] for row in log.topic("copy")) == whole
        assert sum(row["orders"] for row in log.topic("by_user")) == ROWS
        masked = list(lower.topic("orders").since("-1d"))
        assert sorted(row["id"] for row in masked) == whole
        assert not any("corporation" in row["email"] for row in masked)
        assert log.topic("users").table().count() == 100 and log.topic("users").verify().ok
        assert log.topic("orders").verify().ok and lower.topic("orders").verify().ok
    for kind in KINDS:
        assert [row["id"] for row in read(kind, place)] == whole, kind


def virta_said(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "virta", *words],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
