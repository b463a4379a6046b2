"""What the steward rewrites: small blocks are joined, update topics compacted, readers none the wiser."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from virta.errors import DamageError
from virta.log import Log
from virta.steward import compaction
from virta.steward.report import PartitionReport
from virta.steward.rewriting import Progress
from virta.steward.steward import Steward
from virta.storage.rewrite import rewriting_alone
from virta.topics.topic import Topic


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1e6


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[Log]:
    with Log(tmp_path / "log", clock=clock) as log:
        yield log


def roll(topic: Topic) -> None:
    with topic.partition(0).stored.writing() as committer:
        committer.roll()


def small_rows(log: Log, clock: Clock, rows: int = 300) -> Topic:
    """Rows that were appended one at a time, a second apart, in two segments."""
    topic = log.create_topic("orders", {"id": int, "user": str, "tags": list[str]}, keys=["id"])
    for number in range(rows):
        topic.append({"id": number, "user": f"u{number % 7}", "tags": ["x"] * (number % 3)})
        clock.now += 1_000_000
        if number == rows // 2:
            topic.alter(retention_age="90d")
    roll(topic)
    topic.append({"id": rows, "user": "last", "tags": []})
    return topic


def everything(topic: Topic) -> dict[str, Any]:
    """What readers see, by every way of reading."""
    partition = topic.partition(0)
    token, polled = partition.first_token, 0
    while True:
        blocks, following = partition.poll(token, max_bytes=1 << 30)
        if following == token:
            break
        token, polled = following, polled + sum(block.rows for block in blocks)
    return {
        "rows": topic[:].to_arrow().to_pylist(),
        "reversed": [row.offset for row in topic[-20:]],
        "range": topic[17:123].to_arrow().to_pylist(),
        "filtered": topic.where("user = 'u3' and id > 40").to_arrow().to_pylist(),
        "since": topic.since(1_700_000_100.5).to_arrow().to_pylist(),
        "until": topic.until(1_700_000_100.5).to_arrow().to_pylist(),
        "count": (topic.count(), topic[10:50].count(), len(topic)),
        "sql": log_sql(topic),
        "polled": polled,
        "tokens": [str(topic.token(offset)) for offset in range(topic.start_offset, topic.next_offset)],
        "next": (topic.next_offset, topic.start_offset),
    }


def log_sql(topic: Topic) -> Any:
    return topic.snapshot().dataset().to_table(columns=["id", "_offset"]).to_pylist()


def only(reports: tuple[PartitionReport, ...]) -> PartitionReport:
    (found,) = reports
    return found


# -- joining ----------------------------------------------------------------------------------------


def test_small_blocks_are_joined_and_nobody_sees_it(log: Log, clock: Clock) -> None:
    topic = small_rows(log, clock)
    before, head, size = everything(topic), topic.head, topic.stats().bytes
    hashes = [block.hash for block in topic.partition(0).fetch_batch(0, 300)]
    report = only(Steward(log, clock=clock).run_once().partitions)
    assert (report.reason, report.rows, report.from_offset, report.to_offset) == ("joined", 0, 0, 300)
    assert report.error is None and report.bytes > size / 2
    assert everything(topic) == before
    assert topic.stats().bytes < size / 2
    for hash_ in (hashes[0], hashes[150], hashes[-1]):
        assert topic.partition(0).find(hash_).rows > 100
    checked = topic.verify(against=head)
    assert checked.problems == () and checked.receipts[0].reason == "joined"
    assert Steward(log, clock=clock).run_once().partitions == ()
    assert [event["kind"] for event in log.topic("__events")][-1] == "joined"


def test_topics_that_do_not_want_it_are_left_alone(log: Log, clock: Clock) -> None:
    topic = small_rows(log, clock)
    topic.alter(join_blocks=False)
    assert Steward(log, clock=clock).run_once(force=True).partitions == ()


def test_a_dry_run_says_what_would_be_joined(log: Log, clock: Clock) -> None:
    topic = small_rows(log, clock)
    before = topic.stats()
    report = Steward(log, clock=clock).run_once(dry_run=True)
    assert (report.dry_run, only(report.partitions).reason) == (True, "joined")
    assert topic.stats() == before


def test_one_rewrites_at_a_time(log: Log, clock: Clock) -> None:
    stored = small_rows(log, clock).partition(0).stored
    with rewriting_alone(stored.files, stored.paths) as alone:
        assert alone
        assert Steward(log, clock=clock).run_once().partitions == ()
    assert Steward(log, clock=clock).run_once().partitions


def test_another_process_reads_on_over_a_rewrite(log: Log, clock: Clock, tmp_path: Path) -> None:
    topic = small_rows(log, clock)
    with Log(tmp_path / "log", clock=clock, files=type("Own", (type(log._files),), {})()) as other:
        there = other.topic("orders")
        tail = there[:].tail(stop_when_idle=0.0)
        first = [next(tail) for _ in range(10)]
        batches = there[:].batches()
        begun = next(batches)
        Steward(log, clock=clock).run_once()
        topic.append({"id": 500, "user": "after", "tags": []})
        rest = [*first, *tail]
        assert [row["id"] for row in rest] == [*range(301), 500]
        ids = begun["id"].to_pylist() + [value for batch in batches for value in batch["id"].to_pylist()]
        assert ids == list(range(301))
        there.verify()


# -- compaction --------------------------------------------------------------------------------------


def users(log: Log, *, rows: int = 4000, keys: int = 300, seed: int = 1, **options: Any) -> Topic:
    """An update topic of several segments, in which most rows are old."""
    topic = log.create_topic(
        "users",
        {"region": str, "id": int, "email": str | None},
        kind="update",
        keys=["region", "id"],
        **options,
    )
    rng = random.Random(seed)
    for at in range(0, rows, 200):
        if at and at % 1000 == 0:
            roll(topic)
        topic.append(
            [
                {
                    "region": "eu" if rng.random() < 0.5 else "ünited states",
                    "id": rng.randrange(keys),
                    "email": f"{at + number}@example.org" if rng.random() < 0.9 else None,
                }
                for number in range(200)
            ]
        )
    return topic


def truth(topic: Topic) -> dict[Any, Any]:
    """The newest row of each key, with its offset; without those that are deleted."""
    table = {}
    for batch in topic.snapshot().batches():
        for row in batch.to_pylist():
            key = row["region"], row["id"]
            if row.get("_deleted"):
                table.pop(key, None)
            else:
                table[key] = (row["_offset"], row["email"])
    return table


def test_compaction_keeps_the_newest_row_of_each_key(log: Log, clock: Clock) -> None:
    topic = users(log)
    before = truth(topic)
    tokens = [topic.token(offset) for offset in range(0, 4000, 37)]
    report = Steward(log, clock=clock).run_once(force=True)
    assert report.ok and {part.reason for part in report.partitions} == {"compacted"}
    assert truth(topic) == before
    assert len(topic) == topic.count() == len(before) == topic.stats().rows
    for token in tokens:
        blocks, following = topic.partition(0).poll(token)
        assert all(block.rows for block in blocks) and following.offset == 4000
    assert topic.verify().problems == ()
    assert Steward(log, clock=clock).run_once().partitions == ()
    topic.append({"region": "eu", "id": 1, "email": "new"})
    assert truth(topic)["eu", 1] == (4000, "new")


def test_readers_of_offsets_that_went(log: Log, clock: Clock) -> None:
    topic = users(log)
    Steward(log, clock=clock).run_once(force=True)
    kept = [row.offset for row in topic[:]]
    gone = next(offset for offset in range(4000) if offset not in kept)
    with pytest.raises(Exception, match="compacted away or erased"):
        topic[gone]
    assert topic[kept[3]].offset == kept[3]
    assert topic[kept[3] : kept[9]].count() == 6
    block = topic.partition(0).fetch(topic.token(gone))
    assert block.rows and block.base_offset <= gone
    assert [row.offset for row in topic[gone:].limit(2)] == [at for at in kept if at > gone][:2]
    assert topic.until(clock.now_us() / 1e6 + 1).count() == len(kept)


def test_rows_that_come_while_it_compacts_stay(
    log: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = users(log)
    real = compaction.scan

    def scan(*args: Any) -> Any:
        found = real(*args)
        topic.append([{"region": "eu", "id": number, "email": "late"} for number in range(300)])
        return found

    monkeypatch.setattr(compaction, "scan", scan)
    before = truth(topic)
    Steward(log, clock=clock).run_once(force=True)
    after = truth(topic)
    assert {key: row for key, row in before.items() if key[0] != "eu"} == {
        key: row for key, row in after.items() if key[0] != "eu"
    }
    assert all(after["eu", number][1] == "late" for number in range(300))


def delete(topic: Topic, keys: list[tuple[str, int]]) -> None:
    """Deletions as they are stored."""
    topic.append([{"region": region, "id": number, "_deleted": True} for region, number in keys])


def test_deletions_go_when_they_are_old_and_nothing_older_is_left(log: Log, clock: Clock) -> None:
    topic = users(log, tombstone_age="1h")
    gone = sorted(truth(topic))[:50]
    delete(topic, gone)
    roll(topic)
    steward = Steward(log, clock=clock)
    steward.run_once(force=True)
    before = truth(topic)
    assert len(topic) == len(before) + 50 and not set(gone) & set(before)
    clock.now += 2 * 3600 * 1_000_000
    topic.append({"region": "eu", "id": 10_000, "email": None})
    before = truth(topic)
    steward.run_once(force=True)
    assert truth(topic) == before and len(topic) == len(before)
    assert topic.verify().ok


@pytest.mark.parametrize("seed", range(4))
def test_compaction_of_many_rounds_is_the_same_table(log: Log, clock: Clock, seed: int) -> None:
    rng = random.Random(seed)
    topic = users(log, rows=600, keys=40, seed=seed, tombstone_age="1m")
    steward = Steward(log, clock=clock)
    expected = {key: row[1] for key, row in truth(topic).items()}
    for _ in range(12):
        clock.now += rng.choice((1, 30, 120)) * 1_000_000
        if rng.random() < 0.3 and expected:
            going = rng.sample(sorted(expected), min(5, len(expected)))
            delete(topic, going)
            for key in going:
                del expected[key]
        rows = [{"region": "eu", "id": rng.randrange(60), "email": f"{rng.random()}"} for _ in range(20)]
        topic.append(rows)
        expected.update({(row["region"], row["id"]): row["email"] for row in rows})
        if rng.random() < 0.5:
            roll(topic)
        steward.run_once(force=rng.random() < 0.6)
        assert {key: row[1] for key, row in truth(topic).items()} == expected
    assert topic.verify().problems == ()


def test_progress_and_the_room_that_is_freed(log: Log, clock: Clock) -> None:
    topic = log.create_topic(
        "wide", {"id": int, "text": str}, kind="update", keys=["id"], segment_bytes="8MiB"
    )
    for round_ in range(5):
        topic.append(pa.table({"id": range(40_000), "text": [os.urandom(40).hex() + str(round_)] * 40_000}))
    seen: list[Progress] = []
    before = topic.stats().bytes
    report = Steward(log, clock=clock).run_once(progress=seen.append)
    assert report.ok and report.rows == 4 * 40_000
    live = 40_000 * (8 + 8 + 8 + 1 + 4 + 81)
    assert topic.stats().bytes < 1.3 * live < before
    assert seen and seen[-1].reason == "compacted" and seen[-1].bytes <= seen[-1].total_bytes


def test_a_key_that_was_changed_takes_no_row_with_it(tmp_path: Path, clock: Clock) -> None:
    """A flipped bit makes key 2 look like key 3, whose row is in the segment to be compacted."""
    marked = 1_000_002
    with Log(tmp_path / "log", clock=clock) as log:
        topic = log.create_topic("users", {"id": int, "name": str}, kind="update", keys=["id"])
        for number in range(50):
            topic.append([{"id": 1, "name": f"old {number}"}, {"id": marked + 1, "name": "stays"}])
        roll(topic)
        topic.append([{"id": marked, "name": "newer"}])
        log.sync()
        data = sorted(topic.partition(0).stored.paths.root.glob("*.arrows"))[-1]
    whole = data.read_bytes()
    place = whole.index(marked.to_bytes(8, "little"))
    data.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with Log(tmp_path / "log", clock=clock) as log:
        partition = log.topic("users").partition(0).stored
        with pytest.raises(DamageError):
            compaction.scan(partition, log.topic("users").config, clock.now)
    data.write_bytes(whole)
    with Log(tmp_path / "log", clock=clock) as log:
        Steward(log, clock=clock).run_once(force=True)
        assert log.topic("users").get({"id": marked + 1})["name"] == "stays"
