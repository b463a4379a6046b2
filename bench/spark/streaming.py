"""Streaming: how long a micro-batch takes that has next to nothing to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import virta
from bench.harness import MILLISECONDS, Bench, Contest, LostRows, Sample, Target
from bench.spark.ground import spark

_WARM, _BATCHES = 15, 40
_PATIENCE_SECONDS = 120.0


def microbatch(bench: Bench) -> None:
    """A row arrives, and a batch is made of it: into nothing, and into another topic."""
    for title, limit, to_topic in (("a no-op sink", 200, False), ("another topic", 300, True)):
        runners: dict[str, Callable[[], Sample]] = {"virta": lambda to_topic=to_topic: _ours(bench, to_topic)}
        if not to_topic:
            runners["rate source"] = lambda: _rate(bench)
        bench.compete(
            Contest(
                workload="microbatch",
                title=f"a micro-batch of one row into {title}",
                conditions=f"median of {_BATCHES} batches after {_WARM}, as Spark reports triggerExecution",
                runners=runners,
                targets=[Target(metric=MILLISECONDS, limit=limit)],
                rounds=1,
            )
        )


def _ours(bench: Bench, to_topic: bool) -> Sample:
    with bench.scratch() as root, virta.open(root / "log") as log:
        source = log.create_topic("source", {"n": int})
        log.create_topic("target", {"n": int})
        options = {"log": str(log.path)}
        frame = spark().readStream.format("virta").options(**options).load("source")
        writer = frame.select("n").writeStream.option("checkpointLocation", str(root / "checkpoint"))
        if to_topic:
            writer = writer.format("virta").options(**options, topic="target")
        else:
            writer = writer.format("noop")
        sent = 0

        def feed() -> None:
            nonlocal sent
            source.append({"n": sent})
            sent += 1

        sample = _measured(writer.start(), feed)
        if to_topic and log.topic("target").count() < _BATCHES:
            raise LostRows("the target has too few rows")
        return sample


def _rate(bench: Bench) -> Sample:
    with bench.scratch() as root:
        frame = spark().readStream.format("rate").option("rowsPerSecond", 5).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(root / "checkpoint"))
        return _measured(writer.start(), lambda: time.sleep(0.05))


def _measured(query: Any, feed: Callable[[], None]) -> Sample:
    """The median duration of the batches that had a row."""
    found: dict[int, float] = {}
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        while len(found) < _WARM + _BATCHES and time.monotonic() < deadline:
            feed()
            seen = len(found)
            while len(found) == seen and time.monotonic() < deadline:
                time.sleep(0.01)
                for report in query.recentProgress:
                    if report["numInputRows"]:
                        found[report["batchId"]] = report["durationMs"]["triggerExecution"]
    finally:
        query.stop()
    durations = [found[number] for number in sorted(found)][_WARM:]
    if not durations:
        raise LostRows("no batch came to its end")
    return {MILLISECONDS: statistics.median(durations)}
