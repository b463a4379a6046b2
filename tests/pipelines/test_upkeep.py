"""The steward's work on Spark: the same results, receipts and reports as the steward's own."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import virta
from virta.errors import Denied, UsageError
from virta.log import Log
from virta.pipelines.upkeep import Upkeep, compaction, verification
from virta.pipelines.upkeep.erasure import TaskEraser
from virta.pipelines.upkeep.pieces import all_segments
from virta.pipelines.upkeep.tasks import in_this_process
from virta.steward import compaction as stewards
from virta.steward.steward import Steward
from virta.types import Receipt

pytest.importorskip("pyspark", reason="PySpark is not installed")

SMALL = {"segment_bytes": 64 * 1024}


def fill(log: Log, seed: int, *, partitions: int = 1, tombstone_age: str = "7d") -> None:
    """An update topic over several segments, with deletions and keys that come again and again."""
    chance = random.Random(seed)
    schema = {"region": str, "id": int, "email": str}
    users = log.create_topic(
        "users",
        schema,
        kind="update",
        keys=["region", "id"],
        partitions=partitions,
        row_deletion=True,
        tombstone_age=tombstone_age,
        **SMALL,
    )
    for turn in range(40):
        rows = [
            {
                "region": chance.choice(["eu", "us"]),
                "id": chance.randrange(300),
                "email": f"{turn}-{n}-{chance.randbytes(40).hex()}",
            }
            for n in range(100)
        ]
        users.append(rows)
        users.delete([{"region": "eu", "id": chance.randrange(300)} for _ in range(4)])


def rows(log: Log, topic: str) -> list[dict[str, Any]]:
    return log.topic(topic)[:].to_arrow().to_pylist()


def told(receipts: tuple[Receipt, ...]) -> list[tuple[Any, ...]]:
    return [(r.partition, r.reason, r.from_offset, r.to_offset, r.rows_removed) for r in receipts]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Callable[..., tuple[Log, Log]]]:
    """The same log twice."""
    opened: list[Log] = []

    def make(seed: int = 7, **options: Any) -> tuple[Log, Log]:
        with virta.open(tmp_path / "one") as log:
            fill(log, seed, **options)
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        opened.extend(virta.open(tmp_path / name) for name in ("one", "two"))
        return opened[-2], opened[-1]

    yield make
    for log in opened:
        log.close()


def same(first: Log, second: Log, topic: str = "users") -> None:
    """The same rows, and the same story of how they came to be so few."""
    assert rows(first, topic) == rows(second, topic)
    reports = [log.topic(topic).verify() for log in (first, second)]
    assert all(report.ok and not report.problems for report in reports), reports
    assert told(reports[0].receipts) == told(reports[1].receipts)
    assert reports[0].rows == reports[1].rows


def events(log: Log, kind: str) -> list[tuple[Any, ...]]:
    found = [row for row in log.topic("__events")[:].to_pylist() if row["kind"] == kind]
    return [(row["topic"], row["partition"], row["from_offset"], row["to_offset"]) for row in found]


# -- compaction ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compaction_on_spark_is_the_stewards(spark: Any, pair: Any) -> None:
    own, other = pair(partitions=2, tombstone_age="1ms")
    time.sleep(0.01)
    assert Steward(own).run_once(force=True, topic="users").rows > 1000
    with Upkeep(other, spark=spark) as upkeep:
        report = upkeep.compact("users", force=True)
        assert report.rows > 1000
        same(own, other)
        assert events(own, "compacted") == events(other, "compacted") != []
        assert not upkeep.compact("users").partitions, "there is nothing left to do"
        assert not list(other.path.glob(".upkeep-*"))
    other.topic("users").append([{"region": "eu", "id": 1, "email": "still@open"}])


def scanned_here(partition: Any, config: Any, now_us: int, scratch: Path) -> list[stewards.Found]:
    """`SparkScan` without Spark: its functions, one after the other."""
    segments = all_segments(partition)
    schema = segments[-1].schema
    kinds = [(schema.field(key).type, schema.field(key).nullable) for key in config.keys]
    scan = compaction._Scan(
        keys=config.keys,
        seed=bytes(32),
        exact=stewards.always_exact(kinds),
        deletions_before_us=now_us - int(config.tombstone_age_seconds * 1_000_000),
        parts=5,
    )
    sealed = compaction._count_rewritable(segments)
    batches = [
        batch
        for number, segment in enumerate(segments)
        for batch in compaction.keys_of(
            scan, compaction._KeysOf(number=number, segment=segment, is_sealed=number < sealed)
        )
    ]
    writer = compaction._MeetingWriter(scratch)
    table = pa.Table.from_batches(batches)
    messages = [
        writer.write(iter(table.filter(pa.compute.equal(table["part"], part)).to_batches()))
        for part in range(5)
    ]
    writer.commit(messages)
    return compaction._gathered([segment.open() for segment in segments[:sealed]], scratch)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("age", ["1ms", "7d"])
def test_the_shuffle_finds_what_the_steward_finds(tmp_path: Path, seed: int, age: str) -> None:
    with virta.open(tmp_path / "log") as log:
        fill(log, seed, tombstone_age=age)
        topic = log.topic("users")
        stored = topic.partition(0).stored
        now = time.time_ns() // 1000 + 1_000_000
        own = stewards.scan(stored, topic.config, now)
        (tmp_path / "scratch").mkdir()
        other = scanned_here(stored, topic.config, now, tmp_path / "scratch")
        assert len(own) == len(other) > 2
        for force in (False, True):
            chosen = stewards.choose(own, force=force)
            theirs = stewards.choose(other, force=force)
            assert [each.entry for each in chosen] == [each.entry for each in theirs] != []
            assert [each.live.tobytes() for each in chosen] == [each.live.tobytes() for each in theirs]
            assert [each.dead for each in chosen] == [each.dead for each in theirs]


# -- erasure ------------------------------------------------------------------------------------------


def here(topic: Any) -> Any:
    def make(*arguments: Any) -> TaskEraser:
        return TaskEraser(*arguments, run=in_this_process)

    return lambda **words: topic._erase_by(make, **words)


@pytest.mark.parametrize(
    "which",
    [
        {"where": "email like '1%'"},
        {"where": "region = 'us' and id < 20"},
        {"keys": [{"region": "eu", "id": n} for n in range(30)]},
        {"where": "id = -5"},
    ],
)
def test_erasure_by_tasks_is_the_topics_own(pair: Any, which: dict[str, Any]) -> None:
    own, other = pair(partitions=2)
    before = own.topic("users").erase(**which, dry_run=True)
    assert here(other.topic("users"))(**which, dry_run=True) == before
    done = own.topic("users").erase(**which)
    assert here(other.topic("users"))(**which) == done
    same(own, other)
    assert events(own, "rows erased") == events(other, "rows erased")


@pytest.mark.slow
def test_erasure_on_spark_leaves_nothing(spark: Any, pair: Any) -> None:
    own, other = pair()
    own.topic("users").erase(where="id < 100")
    with Upkeep(other, spark=spark) as upkeep:
        upkeep.erase("users", where="id < 100")
        same(own, other)
        other.topic("users").alter(row_deletion=False)
        with pytest.raises(Denied, match="does not allow"):
            upkeep.erase("users", where="id < 5")


# -- verification -------------------------------------------------------------------------------------


def flip(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


def cut(path: Path, at: float) -> None:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * at)])


DAMAGES: dict[str, Callable[[list[Path], list[Path]], Any]] = {
    "none": lambda data, chains: None,
    "a bit of a sealed block": lambda data, chains: flip(data[2], 0.5),
    "a bit at the front": lambda data, chains: flip(data[1], 0.001),
    "a bit of the newest": lambda data, chains: flip(data[-1], 0.5),
    "a header": lambda data, chains: flip(chains[3], 0.4),
    "the last header": lambda data, chains: flip(chains[3], 0.999),
    "a chain file gone": lambda data, chains: chains[2].unlink(),
    "a data file gone": lambda data, chains: data[4].unlink(),
    "a data file cut": lambda data, chains: cut(data[2], 0.7),
    "a chain file cut": lambda data, chains: cut(chains[2], 0.7),
    "two files change places": lambda data, chains: (
        data[1].rename(data[1].with_name("x")),
        data[2].rename(data[1]),
        data[1].with_name("x").rename(data[2]),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_verification_by_tasks_reports_what_the_topic_reports(tmp_path: Path, damage: str) -> None:
    with virta.open(tmp_path / "log") as log:
        fill(log, 3)
        Steward(log).run_once(force=True)
        for turn in range(30):
            log.topic("users").append(
                [{"region": "eu", "id": n, "email": f"late {turn} {n} {'x' * 40}"} for n in range(200)]
            )
        log.topic("users").sync()
        head, topic = log.topic("users").head, log.topic("users")
        stored = topic.partition(0).stored
        root = stored.paths.root
        data, chains = (sorted(root.glob(f"*.{kind}")) for kind in ("arrows", "chain"))
        assert len(data) > 5
        heads = {0: [head, "00" * 32]}
        DAMAGES[damage](data, chains)
        steps: list[Any] = []
        other = verification.verify([stored], in_this_process, against=heads, progress=steps.append)
        assert other == topic.verify(against=heads)
        assert other.ok is False, "one of the heads is in no chain"
        assert steps


@pytest.mark.slow
def test_verification_on_spark(spark: Any, tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        fill(log, 5, partitions=2)
        heads = log.topic("users").heads
        with Upkeep(log, spark=spark) as upkeep:
            report = upkeep.verify("users", against=heads)
            assert report == log.topic("users").verify(against=heads)
            assert report.ok
            flip(sorted((log.path / "topics").glob("users/p0001/*.arrows"))[1], 0.5)
            assert not upkeep.verify("users").ok
            assert upkeep.verify("users") == log.topic("users").verify()


def test_a_served_log_is_refused(tmp_path: Path) -> None:
    from tests.served import Served

    server = Served(tmp_path / "log")
    try:
        with pytest.raises(UsageError, match="is served"):
            Upkeep(server.address)
    finally:
        server.stop()
