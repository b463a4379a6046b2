"""The pipeline campaign: runs killed at random, again and again, until one comes to its end.

A round is one kind of pipeline over a source that grows from life to life. A life is a process
that runs the pipeline and tells of each step it reaches; the campaign kills it at a step drawn
by lot, some milliseconds later. On Spark it kills the driver with all that belongs to it, its
Java, an executor, or a worker's Python. The last life is left alone. Then source and sink are
held against each other, row by row:

 - each row of the source is in the sink as it must be there, once, and nothing else is;
 - of a topic that is compacted or erased, all other rows are as they were, every chain
   verifies, and nothing that was erased is in any file.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

import virta
from virta import contexts
from virta.errors import VirtaError
from virta.pipelines import Pipeline, Step
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch

KEY = "a secret that stays in production"
LIVES = 5
# A life that hangs is a violation; Spark alone takes half a minute on a busy machine.
PATIENCE_SECONDS = 300.0
LOCAL = "topic", "masked", "files", "sql", "python"
LAKES = "parquet", "parquet upsert", "delta", "delta upsert", "iceberg", "iceberg upsert"
ON_SPARK = "topic", "masked", "files", "sql", "jdbc", "parquet", "delta upsert", "compact", "erase"
# Driver and executors as processes of their own, on this machine.
CLUSTER = "local-cluster[2,1,512]"
_ROWS, _MORE, _BATCH = 2000, 150, 300
_RULES = [
    {"columns": "id", "mask": "hash"},
    {"columns": "email", "mask": "email"},
    {"columns": "*", "mask": "keep"},
]


def run(seed: int, seconds: float) -> Report:
    """Rounds in this process's children; on Spark too, where there is time and a Java."""
    report = Report("pipelines", seed)
    deadline = time.monotonic() + seconds
    chance = random.Random(seed)
    kinds = [*LOCAL, *LAKES]
    number = 0
    while number == 0 or (time.monotonic() < deadline and report.ok):
        if number % len(kinds) == 0:
            chance.shuffle(kinds)
        one_round(report, kinds[number % len(kinds)], seed, number)
        if seconds >= 600 and number % 4 == 0:
            one_round(report, chance.choice(ON_SPARK), seed, number, master=CLUSTER)
        number += 1
    return report


def one_round(
    report: Report, kind: str, seed: int, number: int, *, master: str | None = None, lives: int = LIVES
) -> None:
    """One kind of pipeline, killed in all lives but the last."""
    chance = random.Random(f"{seed}/{number}/{kind}/{master}")
    where = "" if master is None else f" on {master}"
    again = f"--only pipelines --seed {seed} (round {number}: {kind}{where})"
    with scratch("virta-pipelines") as root:
        for life in range(lives):
            is_last = life == lives - 1
            ended = _Life(root, kind, life, master, chance, spare=is_last).run()
            report.counts[f"{ended.how}s killed" if ended.how else "runs that ended"] += 1
            if ended.wrong:
                report.violated(f"{kind}{where}, life {life}: {ended.wrong}", again)
                return
        report.counts["rounds"] += 1
        for complaint in _checked(root, kind, lives):
            report.violated(f"{kind}{where}: {complaint}", again)


# -- a life: a process that runs, and how it ends --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    how: str = ""  # what was killed
    wrong: str = ""


class _Life:
    def __init__(
        self, root: Path, kind: str, life: int, master: str | None, chance: random.Random, *, spare: bool
    ) -> None:
        self._words = [str(root), kind, str(life), master or ""]
        self._spark = master is not None
        self._chance = chance
        tells_little = kind in ("compact", "erase")
        self._steps = -1 if spare else 0 if tells_little else chance.randrange(0, 14)
        self._delay = chance.uniform(0, 4.0 if tells_little else 0.6 if self._spark else 0.02)
        self._root = root

    def run(self) -> _End:
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(self._root / "config"),
            "VIRTA_MASKING_KEY": KEY,
            "PYTHONWARNINGS": "ignore",
        }
        with (self._root / "errors.txt").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "virta.testing.faults.pipelines", *self._words],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        try:
            how = self._kill_when_due(process)
            code = process.wait(PATIENCE_SECONDS)
        except (subprocess.TimeoutExpired, TimeoutError):
            return _End(wrong="it hangs")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if how or not code:
            return _End(how=how)
        said = (self._root / "errors.txt").read_text(errors="replace")
        return _End(wrong=f"it ended with {code}: {said[-2000:]}")

    def _kill_when_due(self, process: subprocess.Popen[bytes]) -> str:
        """Wait for the step, then for the delay. Nothing is killed in a life that is spared."""
        if self._steps < 0:
            return ""
        assert process.stdout is not None
        for seen, _ in enumerate(_lines(process.stdout)):
            if seen >= self._steps:
                time.sleep(self._delay)
                break
        if process.poll() is not None:
            return ""
        return self._kill(process.pid)

    def _kill(self, driver: int) -> str:
        found = _below(driver)
        victims = {
            "driver": [],
            "java": [pid for pid, line in found if "SparkSubmit" in line],
            "executor": [pid for pid, line in found if "CoarseGrainedExecutorBackend" in line],
            "worker": [pid for pid, line in found if "virta.spark.daemon" in line],
        }
        how = self._chance.choice([name for name in victims if victims[name] or name == "driver"])
        with contextlib.suppress(ProcessLookupError):
            if how == "driver":
                os.killpg(driver, signal.SIGKILL)
            else:
                os.kill(self._chance.choice(sorted(victims[how])), signal.SIGKILL)
        return how


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines as they come; an end is an end. A process that says nothing for too long hangs."""
    while True:
        ready, _, _ = select.select([file], [], [], PATIENCE_SECONDS)
        if not ready:
            raise TimeoutError
        line = file.readline()
        if not line:
            return
        if line.startswith(b"step"):
            yield line


def _below(pid: int) -> list[tuple[int, str]]:
    """The processes that descend from one, with their command lines."""
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
    found, known = [], {pid}
    for _ in range(8):  # generations
        new = {child for child, parent in parents.items() if parent in known} - known
        known |= new
        for child in new:
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
                found.append((child, line.decode(errors="replace")))
    return found


# -- inside of a life -----------------------------------------------------------------------------------


def live(root: Path, kind: str, life: int, master: str | None) -> None:
    """Let the source grow, then run; every step is told."""
    if kind in ("compact", "erase"):
        _keep_up(root, kind, master or "local[2,4]")
        return
    _grow(root, kind, life, master)
    _say()
    pipeline(root, kind, master).run(watch=lambda step: _say(step))


def _say(step: Step | None = None) -> None:
    print("step", step.what if step else "begin", flush=True)


def order(number: int, text: str = "") -> dict[str, Any]:
    return {
        "id": number,
        "user_id": number % 7,
        "email": f"customer.{number}{text}@corporation.org",
        "amount": number / 2,
    }


def _numbers(life: int) -> range:
    first = 0 if life == 0 else _ROWS + (life - 1) * _MORE
    return range(first, _ROWS + life * _MORE)


def is_table(kind: str) -> bool:
    return kind.endswith("upsert") or kind in ("masked", "compact", "erase")


def _grow(root: Path, kind: str, life: int, master: str | None) -> None:
    """More rows. A life may grow the source twice, so what is there is left."""
    if kind == "files":
        _write_file(root / "in", life)
    elif kind == "jdbc":
        _insert(root, life, master)
    elif is_table(kind):
        _change_table(root, life)
    else:
        with virta.open(root / "log") as log:
            schema = {"id": int, "user_id": int, "email": str, "amount": float}
            log.create_topic("orders", schema, if_missing=True).append(
                [order(number) for number in _numbers(life)]
            )


def _change_table(root: Path, life: int) -> None:
    """Rows that are new, changed and deleted; in the log @up, which stands above @down."""
    contexts.add("up", str(root / "log"), environment="prod", replace=True)
    contexts.add("down", str(root / "down"), environment="dev", replace=True)
    with virta.open(root / "log") as log:
        schema = {"id": int, "user_id": int, "email": str, "amount": float}
        table = log.create_topic(
            "orders",
            schema,
            kind="update",
            keys=["id"],
            partitions=2,
            segment_bytes=64 * 1024,
            row_deletion=True,
            if_missing=True,
        )
        chance = random.Random(life)
        table.append([order(number) for number in _numbers(life)])
        table.append([order(chance.randrange(_ROWS), f".{life}") for _ in range(200)])
        table.delete([{"id": chance.randrange(_ROWS)} for _ in range(30)])


def _write_file(folder: Path, life: int) -> None:
    import pyarrow.parquet

    folder.mkdir(exist_ok=True)
    aside = folder.parent / "aside.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist([order(number) for number in _numbers(life)]), aside)
    aside.rename(folder / f"{life}.parquet")


def _insert(root: Path, life: int, master: str | None) -> None:
    """Into a table of Derby, whose driver comes with Spark."""
    from virta.spark import session

    spark = session(master, fast_start=True, memory="512m", conf=_SPARK)
    rows = [(number, order(number)["email"]) for number in _numbers(life)]
    frame = spark.createDataFrame(rows, "id int, email string").coalesce(1)
    frame.write.format("jdbc").option("url", _derby(root)).option("dbtable", "orders").mode("append").save()


def _derby(root: Path) -> str:
    return f"jdbc:derby:{root}/shop;create=true"


_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.task.maxFailures": "4",
}


def pipeline(root: Path, kind: str, master: str | None) -> Pipeline:
    """The pipeline of a kind."""
    written: dict[str, Any] = {
        "name": "kill",
        "engine": "local" if master is None else "spark",
        "batch_rows": _BATCH if master is None else 3 * _BATCH,
        "log": str(root / "log"),
        "spark": _SPARK,
    }
    if master is not None:
        written["master"] = master
    if kind == "masked":
        written["demote"] = {
            "from": "@up",
            "to": "@down",
            "topics": ["orders"],
            "key": {"env": "VIRTA_MASKING_KEY"},
            "mask": _RULES,
        }
        return Pipeline.of(written, base=root)
    source: dict[str, Any] = {"topic": "orders"}
    flow: dict[str, Any] = {"name": "flow", "source": source, "sink": _sink(root, kind)}
    if kind == "files":
        flow["source"] = {"files": str(root / "in" / "*.parquet")}
    elif kind == "jdbc":
        flow["source"] = {"jdbc": _derby(root), "table": "orders", "column": "id"}
    elif kind == "sql":
        flow["sql"] = "select id, user_id, upper(email) as email, amount from rows where user_id <> 3"
    elif kind == "python":
        flow["python"] = halved
    return Pipeline.of({**written, "flow": [flow]}, base=root)


def _sink(root: Path, kind: str) -> dict[str, Any]:
    form, _, mode = kind.partition(" ")
    words = {"mode": "upsert", "keys": ["id"]} if mode else {}
    if form == "iceberg":
        return {"iceberg": "lake.orders", "catalog": _catalog(root), **words}
    if form in ("parquet", "delta"):
        return {form: str(root / form), **words}
    return {"topic": "copy"}


def _catalog(root: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}


def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A transformation: half of the rows, with other amounts."""
    kept = batch.filter(pa.array([number % 2 == 0 for number in batch.column("id").to_pylist()]))
    amounts = pa.array([value + 1 for value in kept.column("amount").to_pylist()], pa.float64())
    return kept.set_column(kept.schema.get_field_index("amount"), "amount", amounts)


def _keep_up(root: Path, kind: str, master: str) -> None:
    """Compaction and erasure of whole topics; what there was is noted by the first life."""
    from virta.pipelines.upkeep import Upkeep
    from virta.spark import session

    noted = root / "noted.json"
    if not noted.exists():
        for earlier in range(LIVES):
            _change_table(root, earlier)
        with virta.open(root / "log") as log:
            rows = _plain(log.topic("orders").table().to_arrow().to_pylist())
        aside = root / "noted.part"
        aside.write_text(json.dumps(rows))
        aside.rename(noted)
    spark = session(master, fast_start=True, memory="512m", conf=_SPARK)
    with Upkeep(root / "log", spark=spark) as upkeep:
        _say()
        if kind == "compact":
            upkeep.compact("orders", force=True, progress=lambda _: _say())
        else:
            upkeep.erase("orders", where="user_id = 3", progress=lambda _: _say())


# -- the check --------------------------------------------------------------------------------------------


def _checked(root: Path, kind: str, lives: int) -> list[str]:
    """What is wrong, as a process that never ran a pipeline sees it."""
    before = {name: os.environ.get(name) for name in ("XDG_CONFIG_HOME", "VIRTA_MASKING_KEY")}
    os.environ.update(XDG_CONFIG_HOME=str(root / "config"), VIRTA_MASKING_KEY=KEY)
    try:
        return list(_complaints(root, kind, lives))
    except (VirtaError, OSError, LookupError, ValueError):
        return [traceback.format_exc()]
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _complaints(root: Path, kind: str, lives: int) -> Iterator[str]:
    if kind in ("compact", "erase"):
        yield from _upkept(root, kind)
        return
    expected, found = _expected(root, kind, lives), _found(root, kind)
    if expected != found:
        yield _difference(expected, found)
    left = list((root / ".virta-kill").rglob("*.arrows"))
    if left:
        yield f"staged rows are left: {left[0]}"


def _difference(expected: list[Any], found: list[Any]) -> str:
    missing = [row for row in expected if row not in found]
    odd = [row for row in found if row not in expected]
    return f"{len(found)} rows for {len(expected)}; missing {missing[:3]}, too many {odd[:3]}"


def _plain(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return sorted([row["id"], row["user_id"], row["email"], row["amount"]] for row in rows)


def _expected(root: Path, kind: str, lives: int) -> list[list[Any]]:
    numbers = range(_ROWS + (lives - 1) * _MORE)
    if kind == "jdbc":
        return [[number, order(number)["email"]] for number in numbers]
    if kind == "files":
        return _plain([order(number) for number in numbers])
    with virta.open(root / "log") as log:
        topic = log.topic("orders")
        if not is_table(kind):
            rows = topic.to_arrow().to_pylist()
            if kind == "sql":
                rows = [{**row, "email": row["email"].upper()} for row in rows if row["user_id"] != 3]
            if kind == "python":
                rows = [{**row, "amount": row["amount"] + 1} for row in rows if row["id"] % 2 == 0]
            return _plain(rows)
        table = topic.table().to_arrow()
    if kind == "masked":
        from virta.security.masking import MaskingKey, MaskPolicy

        batch = table.combine_chunks().to_batches()[0]
        own = batch.select([name for name in batch.schema.names if not name.startswith("_")])
        plan = MaskPolicy.of(_RULES).plan("orders", own.schema, MaskingKey.of(KEY))
        return _plain(plan.apply(own).to_pylist())
    return _plain(table.to_pylist())


def _found(root: Path, kind: str) -> list[list[Any]]:
    form = kind.partition(" ")[0]
    if form == "parquet":
        import pyarrow.dataset

        return _plain(pyarrow.dataset.dataset(root / "parquet" / "current").to_table().to_pylist())
    if form == "delta":
        from deltalake import DeltaTable

        return _plain(DeltaTable(root / "delta").to_pyarrow_table().to_pylist())
    if form == "iceberg":
        from pyiceberg.catalog import load_catalog

        catalog: Any = load_catalog("default", **_catalog(root))
        try:
            return _plain(catalog.load_table("lake.orders").scan().to_arrow().to_pylist())
        finally:
            catalog.close()
    with virta.open(root / ("down" if kind == "masked" else "log")) as log:
        topic = log.topic("orders" if kind == "masked" else "copy")
        if not topic.verify().ok:
            raise ValueError(f"topic {topic.name} does not verify: {topic.verify().problems}")
        rows = (topic.table() if kind == "masked" else topic[:]).to_arrow().to_pylist()
    if kind == "jdbc":
        return sorted([row["ID"], row["EMAIL"]] if "ID" in row else [row["id"], row["email"]] for row in rows)
    return _plain(rows)


def _upkept(root: Path, kind: str) -> Iterator[str]:
    before = json.loads((root / "noted.json").read_text())
    expected = [row for row in before if kind == "compact" or row[1] != 3]
    with virta.open(root / "log") as log:
        topic = log.topic("orders")
        found, report = _plain(topic.table().to_arrow().to_pylist()), topic.verify()
        if kind == "compact" and topic[:].count() >= 2 * _ROWS:
            yield f"it was not compacted: {topic[:].count()} rows are left"
    if expected != found:
        yield _difference(expected, found)
    if not report.ok:
        yield f"it does not verify: {report.problems}"
    if kind == "erase":
        data = b"".join(path.read_bytes() for path in (root / "log").rglob("*") if path.is_file())
        gone = [row[2] for row in before if row[1] == 3]
        there = [text for text in gone if text.encode() in data]
        if there:
            yield f"{len(there)} erased values are still in a file: {there[:3]}"


def main(words: list[str]) -> int:
    root, kind, life, master = words
    live(Path(root), kind, int(life), master or None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
