"""The Spark campaign: copies between topics, killed at random, again and again, until one ends.

A round copies a topic that grows from life to life into another one: as a stream with a
checkpoint, or as batch jobs with names. A life is a process that runs the copy; the campaign
kills the driver with all that is below it, its Java, an executor, or a worker's Python, some
moments after the life said that it is at work. The last life is left alone. Then:

 - each row of the source is in the target once, and nothing else is;
 - both chains verify;
 - nothing that an aborted attempt staged is left.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import virta
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch

KINDS = "stream", "batches"
LIVES = 4
# Driver and executors as processes of their own, on this machine.
CLUSTER = "local-cluster[2,1,512]"
# A life that hangs is a violation; Spark alone takes half a minute on a busy machine.
PATIENCE_SECONDS = 300.0
_ROWS = 3000
# With less, Spark would take the time of all other campaigns.
_LEAST_SECONDS = 60.0
# Enough of them that they are staged in files, not in messages.
_TEXT = "x" * 100
_AT_WORK = b"at work"


def run(seed: int, seconds: float) -> Report:
    """Rounds of each kind in turns."""
    report = Report("spark", seed)
    if importlib.util.find_spec("pyspark") is None:
        report.skipped = "PySpark is not installed"
    elif seconds < _LEAST_SECONDS:
        report.skipped = "a round takes a minute or two: --only spark --seconds 300"
    if report.skipped:
        return report
    deadline = time.monotonic() + seconds
    number = 0
    while number == 0 or (time.monotonic() < deadline and report.ok):
        one_round(report, KINDS[number % len(KINDS)], seed, number, master=CLUSTER)
        number += 1
    return report


def one_round(report: Report, kind: str, seed: int, number: int, *, master: str, lives: int = LIVES) -> None:
    """One copy, killed in all lives but the last."""
    chance = random.Random(f"{seed}/{number}/{kind}")
    again = f"--only spark --seed {seed} (round {number}: {kind} on {master})"
    with scratch("virta-spark") as root:
        with virta.open(root / "log") as log:
            schema = {"n": int, "text": str}
            log.create_topic("source", schema, partitions=2, keys=["n"])
            log.create_topic("target", schema, partitions=3, keys=["n"])
        for life in range(lives):
            _grow(root, life)
            how, wrong = _live(root, kind, life, master, chance, spare=life == lives - 1)
            report.counts[f"{how} killed" if how else "ended"] += 1
            if wrong:
                report.violated(f"{kind}, life {life}: {wrong}", again)
                return
        report.counts["rounds"] += 1
        for complaint in checked(root, lives):
            report.violated(f"{kind}: {complaint}", again)


def _grow(root: Path, life: int) -> None:
    with virta.open(root / "log") as log:
        rows = [{"n": n, "text": _TEXT} for n in range(life * _ROWS, (life + 1) * _ROWS)]
        for start in range(0, _ROWS, 500):
            log.topic("source").append(rows[start : start + 500])


def checked(root: Path, lives: int) -> list[str]:
    """What is not as it must be."""
    found = []
    with virta.open(root / "log") as log:
        copied = Counter(log.topic("target").to_arrow()["n"].to_pylist())
        expected = Counter(range(lives * _ROWS))
        missing, doubled = expected - copied, copied - expected
        if missing:
            found.append(f"{len(missing)} rows are missing, {min(missing)} first")
        if doubled:
            found.append(f"{doubled.total()} rows are there again, {min(doubled)} first")
        found += [
            f"{name} does not verify" for name in ("source", "target") if not log.topic(name).verify().ok
        ]
    left = [path.name for path in (root / "log" / "staging").rglob("*.arrow")]
    if left:
        found.append(f"{len(left)} staged files are left")
    return found


# -- a life, from outside -----------------------------------------------------------------------


def _live(
    root: Path, kind: str, life: int, master: str, chance: random.Random, *, spare: bool
) -> tuple[str, str]:
    """What was killed, and what is wrong."""
    delay = chance.uniform(0, 6)
    with (root / "errors.txt").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(root), kind, str(life), master],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
        )
    assert process.stdout is not None
    overdue = threading.Timer(PATIENCE_SECONDS, process.kill)
    overdue.start()
    how = ""
    try:
        while (line := process.stdout.readline()) and not line.startswith(_AT_WORK):
            pass
        if not spare:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            if process.poll() is None:
                how = _kill(process.pid, chance)
        code = process.wait(PATIENCE_SECONDS)
        if not overdue.is_alive():
            return how, "it hangs"
    finally:
        overdue.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    if code and not how:
        said = (root / "errors.txt").read_text(errors="replace")
        return how, f"it ended with {code}: {said[-2000:]}"
    return how, ""


def _kill(driver: int, chance: random.Random) -> str:
    """Kill one of the processes of a life; an executor's and a worker's death Spark lives through."""
    below = descendants(driver)
    victims = {
        "Java": [pid for pid, line in below if "SparkSubmit" in line],
        "executor": [pid for pid, line in below if "CoarseGrainedExecutorBackend" in line],
        "worker": [pid for pid, line in below if "virta.spark.daemon" in line],
    }
    how = chance.choice(["driver", *(name for name, pids in victims.items() if pids)])
    with contextlib.suppress(ProcessLookupError):
        if how == "driver":
            os.killpg(driver, signal.SIGKILL)
        else:
            os.kill(chance.choice(sorted(victims[how])), signal.SIGKILL)
    return how


def descendants(pid: int) -> list[tuple[int, str]]:
    """The processes below one, with their command lines."""
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
    found: list[tuple[int, str]] = []
    level = {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        for child in level:
            with contextlib.suppress(OSError):
                found.append((child, Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")))
    return found


# -- a life, from inside ------------------------------------------------------------------------


def _main(root: Path, kind: str, life: int, master: str) -> None:
    from virta.spark import session

    conf = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    spark = session(master, memory="1g", fast_start=True, conf=conf)
    options = {"log": str(root / "log")}
    sys.stdout.write(_AT_WORK.decode() + "\n")
    sys.stdout.flush()
    if kind == "stream":
        frame = spark.readStream.format("virta").options(**options, maxRowsPerTrigger="700").load("source")
        query = (
            frame.select("n", "text")
            .writeStream.format("virta")
            .options(**options, topic="target", checkpointLocation=str(root / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return
    for number in range(life + 1):
        # each job again, as a scheduler would that does not know how far the last one came
        frame = spark.read.format("virta").options(**options, tasks=4).load("source")
        part = frame.where(f"n >= {number * _ROWS} and n < {(number + 1) * _ROWS}").select("n", "text")
        writer = part.write.format("virta").options(**options, transaction=f"part {number}")
        writer.mode("append").save("target")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
