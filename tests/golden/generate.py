"""How the golden files were made: `python tests/golden/generate.py DIRECTORY`.

They were written once, with format 1, and are never written again: the tests read what
is committed. A later format gets a directory of its own beside them. This script says
what is in them; run again, it gives a log with the same rows and events, but with other
ids, times, salts and hence hashes. It refuses to write over anything.

    example     one column, one block: the worked example of docs/format.md
    orders      every sort of column; two segments of schema 1, then columns added,
                widened and renamed: one segment of schema 2; statistics of the first
    Clicks/ää   untyped with headers, a name that has to be encoded, rolled by size
    packed      zstd, written by a named producer that was taken over once
    packed-lz4  lz4
    meter       two rows cut by a recovery, the evidence kept beside the files
    short       the oldest segment removed by retention, with its receipt
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

import virta
from tests.golden.contents import describe_log
from virta.log import Log
from virta.settings import Settings
from virta.steward.steward import Steward
from virta.storage import statistics

ZONED = datetime.timezone(datetime.timedelta(hours=2))
QUIET = Settings(sync_interval_seconds=3600.0)

ORDERS_1 = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("user", pa.string()),
        pa.field("amount", pa.decimal128(12, 2)),
        pa.field("at", pa.timestamp("ms", tz="Europe/Helsinki")),
        pa.field("state", pa.dictionary(pa.int32(), pa.string())),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([pa.field("lat", pa.float64()), pa.field("lon", pa.float64())])),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
        pa.field("day", pa.date32()),
        pa.field("paid", pa.bool_()),
        pa.field("ratio", pa.float32()),
        pa.field("trace", pa.uuid()),
        pa.field("raw", pa.large_binary()),
        pa.field("vector", pa.list_(pa.int16(), 3)),
    ],
    metadata={"owner": "golden"},
)
ORDERS_2 = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.string()),
        *list(ORDERS_1)[2:],
        pa.field("note", pa.string()),
    ]
)


def main(root: Path) -> None:
    if root.exists():
        sys.exit(f"{root} is there already: golden files are written once")
    with virta.open(root / "log", settings=QUIET) as log:
        example(log)
        orders(log)
        clicks(log)
        packed(log)
        short(log)
        log.create_topic("meter", {"n": int})
    meter(root / "log")
    with virta.open(root / "log", settings=QUIET) as log:
        document = describe_log(log)
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True)
    (root / "expected.json").write_text(text + "\n", encoding="utf-8")


def example(log: Log) -> None:
    log.create_topic("example", {"n": int}).append([{"n": 7}, {"n": -1}])


def order(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "user": f"user {number}",
        "amount": decimal.Decimal(number * 25) / 100,
        "at": datetime.datetime(2026, 11, 18, 10, number % 60, tzinfo=ZONED),
        "state": ("new", "paid", "sent")[number % 3],
        "tags": [f"t{n}" for n in range(number % 3)],
        "place": {"lat": 60.0 + number, "lon": None},
        "counts": {"seen": number},
        "day": datetime.date(2026, 11, 1 + number % 28),
        "paid": bool(number % 2),
        "ratio": number / 4,
        "trace": uuid.UUID(int=number),
        "raw": bytes([number % 256]) * 5,
        "vector": [number, -number, 0],
        **more,
    }


def orders(log: Log) -> None:
    topic = log.create_topic("orders", ORDERS_1, keys=["id"])
    topic.append([order(number) for number in range(5)])
    topic.append(order(5))
    topic.append({"id": 6})  # everything else is null
    with topic.partition(0).stored.writing() as committer:
        committer.roll()
    topic.append([order(number, state=None) for number in range(7, 10)])
    topic.alter(schema=ORDERS_2, renames={"user": "customer"})
    after = order(10, id=1 << 40, day=None, vector=None, ratio=None, trace=None, place=None)
    after["customer"] = after.pop("user")
    topic.append({**after, "note": "of schema 2"})
    with topic.partition(0).stored.view() as view:
        statistics.make(view.files, view.paths, view.segment(0))


def clicks(log: Log) -> None:
    topic = log.create_topic("Clicks/ää", segment_bytes="64KiB", topic_deletion=False)
    for number in range(9):
        rows = [
            {
                "key": b"key %d" % (number * 8 + at) if at % 4 else None,
                "value": b"%03d" % (number * 8 + at) * 330,
                "_headers": {"kind": b"click", "n": b"%d" % at} if at % 2 else None,
            }
            for at in range(8)
        ]
        topic.append(rows)
    topic.append({"key": b"last", "value": b""})


def packed(log: Log) -> None:
    topic = log.create_topic("packed", {"n": int, "text": str | None}, compression="zstd", durability="disk")
    with topic.writer(producer="importer-1", linger=0) as writer:
        for number in range(40):
            writer.send({"n": number, "text": "compress me " * 20})
        writer.flush()
        for number in range(40, 60):
            writer.send({"n": number, "text": None})
    with topic.partition(0).stored.writing() as committer:
        committer.roll()  # the snapshot of producers opens the new segment
    with topic.writer(producer="importer-1", linger=0) as writer:
        writer.send({"n": 60, "text": "by the second holder"})
    with topic.writer(producer="importer-2", linger=0) as writer:
        writer.send({"n": 0, "text": "by another one"})
    lz4 = log.create_topic("packed-lz4", {"n": int, "text": str | None}, compression="lz4")
    lz4.append([{"n": number, "text": "compress me " * 20} for number in range(20)])


def short(log: Log) -> None:
    topic = log.create_topic("short", {"n": int}, retention_rows=2)
    for number in range(3):
        topic.append([{"n": 10 * number + at} for at in range(3)])
        if number < 2:
            with topic.partition(0).stored.writing() as committer:
                committer.roll()
    report = Steward(log).run_once(topic="short")
    assert report.segments == 2, report


def meter(root: Path) -> None:
    """A process is killed, and the power loss that follows takes the end of its newest block."""
    child = os.fork()
    if child == 0:
        topic = virta.open(root, settings=QUIET).topic("meter")
        topic.append([{"n": 0}, {"n": 1}])
        topic.sync()
        topic.append({"n": 2})
        topic.append([{"n": 3}, {"n": 4}])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    data = root / "topics" / "meter" / "p0000" / f"{0:020d}.arrows"
    os.truncate(data, data.stat().st_size - 24)
    with virta.open(root, settings=QUIET) as log:
        log.topic("meter").append({"n": 5})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
