"""Export and import: what goes out comes back the same; what was cut short is gone on with."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import virta
from virta.clock import SystemClock
from virta.errors import AlreadyExists, NotFound, SchemaMismatch, UsageError
from virta.exchange.export import STATE_FILE, export
from virta.exchange.load import create_from, load
from virta.log import Log

AWKWARD = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"unit": "pieces"}),
        pa.field("small", pa.uint8()),
        pa.field("second", pa.timestamp("s")),
        pa.field("nano", pa.timestamp("ns", tz="Europe/Helsinki")),
        pa.field("time", pa.time32("s")),
        pa.field("span", pa.duration("ns")),
        pa.field("price", pa.decimal128(38, 9)),
        pa.field("wide", pa.decimal256(60, 3)),
        pa.field("label", pa.dictionary(pa.int8(), pa.string())),
        pa.field("data", pa.binary()),
        pa.field("fixed", pa.binary(4)),
        pa.field("large", pa.large_string()),
        pa.field("half", pa.float16()),
        pa.field("day", pa.date64()),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("point", pa.list_(pa.float32(), 2)),
        pa.field("place", pa.struct([pa.field("lat", pa.float64(), nullable=False), ("raw", pa.binary())])),
        pa.field("counts", pa.map_(pa.string(), pa.int32())),
    ],
    metadata={"made": "by hand"},
)
ROW: dict[str, Any] = {
    "id": -(1 << 63),
    "small": 255,
    "second": datetime.datetime(1900, 1, 1),
    "nano": datetime.datetime(2026, 11, 18, 10, tzinfo=datetime.UTC),
    "time": datetime.time(23, 59, 59),
    "span": datetime.timedelta(microseconds=-1),
    "price": Decimal("12345678901234567890123456789.123456789"),
    "wide": Decimal("-1e50"),
    "label": "new",
    "data": b"\xff\x00",
    "fixed": b"abcd",
    "large": 'a,"b"\n\t\\N é 日本',
    "half": 1.5,
    "day": datetime.date(1969, 12, 31),
    "tags": ["a", ""],
    "point": [1.5, -0.0],
    "place": {"lat": 1.5, "raw": None},
    "counts": {"a": 1},
}


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with virta.open(tmp_path / "log") as opened:
        yield opened


def numbers(log: Log, count: int, name: str = "orders", step: int = 100) -> Any:
    topic = log.create_topic(name, {"id": int}, if_missing=True)
    for start in range(0, count, step):
        topic.append([{"id": number} for number in range(start, min(start + step, count))])
    return topic


def ids(topic: Any) -> list[int]:
    return topic[:].to_arrow()["id"].to_pylist()


def awkward(log: Log) -> Any:
    topic = log.create_topic("awkward", AWKWARD, headers=True)
    second = ROW | {"id": 2, "label": "", "_headers": {"trace": b"\x00\xff"}, "tags": [], "counts": {}}
    topic.append([ROW, second, {"id": 3}])
    topic.append({"id": 4, "label": "other"})
    return topic


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("split", [False, True])
def test_nothing_is_lost(log: Log, tmp_path: Path, form: str, split: bool) -> None:
    topic = awkward(log)
    out = tmp_path / ("folder" if split else f"rows.{form}")
    export(topic, out, form=form, rows_per_file=3 if split else None)
    copy = create_from(log, "copy", out)
    assert copy.schema.equals(topic.schema, check_metadata=True)
    assert load(copy, [out]).rows == 4
    left, right = topic[:].to_arrow(), copy[:].to_arrow()
    assert right.drop(["_timestamp"]).equals(left.drop(["_timestamp"]))


def test_offset_and_time_are_in_the_file(log: Log, tmp_path: Path) -> None:
    topic = awkward(log)
    export(topic[1:3], tmp_path / "rows.parquet")
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table["_offset"].to_pylist() == [1, 2]
    assert table["_timestamp"].equals(topic[1:3].to_arrow()["_timestamp"])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_text_forms_come_back(log: Log, tmp_path: Path, form: str) -> None:
    topic = awkward(log)
    out = tmp_path / f"rows.{form}"
    export(topic, out)
    copy = log.create_topic("copy", AWKWARD, headers=True)
    load(copy, [out])
    assert copy[:].to_arrow().drop(["_timestamp"]).equals(topic[:].to_arrow().drop(["_timestamp"]))
    with pytest.raises(UsageError, match="types"):
        create_from(log, "other", out)


class Days(SystemClock):
    """Every look at the clock is half a day later."""

    now = 1_790_000_000_000_000

    def now_us(self) -> int:
        self.now += 43_200_000_000
        return self.now


@pytest.mark.parametrize(
    ("unit", "pattern"), [("day", "day=*"), ("hour", "day=*/hour=*"), ("month", "month=*")]
)
def test_partitioned_by_time(tmp_path: Path, unit: str, pattern: str) -> None:
    with Log(tmp_path / "log", clock=Days()) as log:
        topic = numbers(log, 1000, step=10)
        report = export(topic, tmp_path / "out", partition_by=unit)
        folders = sorted((tmp_path / "out").glob(pattern))
        stamps = topic[:].to_arrow()["_timestamp"].to_pylist()
        letters = {"day": 10, "hour": 13, "month": 7}[unit]
        assert len(folders) == len({stamp.isoformat()[:letters] for stamp in stamps}) == report.files > 1
        for folder in folders:
            said = "T".join(part.partition("=")[2] for part in folder.relative_to(tmp_path / "out").parts)
            for file in folder.iterdir():
                for stamp in parquet.ParquetFile(file).read()["_timestamp"].to_pylist():
                    assert stamp.isoformat().startswith(said)
        copy = create_from(log, "copy", tmp_path / "out")
        load(copy, [tmp_path / "out"])
        assert ids(copy) == list(range(1000))


def test_where_and_columns(log: Log, tmp_path: Path) -> None:
    topic = log.create_topic("orders", {"id": int, "user": str})
    topic.append([{"id": number, "user": f"u{number % 2}"} for number in range(100)])
    chosen = topic.where("user = 'u1'").columns("id")
    report = export(chosen, tmp_path / "out", rows_per_file=20)
    assert (report.rows, report.files) == (50, 3)
    tables = [parquet.ParquetFile(file).read() for file in sorted((tmp_path / "out").iterdir())]
    assert pa.concat_tables(tables).to_pydict() == {"id": list(range(1, 100, 2))}


def test_an_empty_range(log: Log, tmp_path: Path) -> None:
    topic = numbers(log, 10)
    export(topic[10:], tmp_path / "rows.parquet")
    assert parquet.read_table(tmp_path / "rows.parquet").num_rows == 0
    assert export(topic[10:], tmp_path / "folder", partition_by="day").files == 0


class Stop(Exception):
    pass


def test_an_export_that_was_stopped_goes_on_with_the_same_rows(log: Log, tmp_path: Path) -> None:
    topic = numbers(log, 50_000, step=25_000)
    out = tmp_path / "out"
    with pytest.raises(Stop):
        export(topic, out, rows_per_file=7_000, progress=_raise)
    assert json.loads((out / STATE_FILE).read_text())["next"] == 21_000
    topic.append({"id": 50_000})
    with pytest.raises(AlreadyExists, match="interrupted"):
        export(topic, out, rows_per_file=8_000)
    report = export(topic, out, rows_per_file=7_000)
    assert report.rows == 50_000 and report.resumed_rows == 21_000
    assert not (out / STATE_FILE).exists() and not list(out.glob("*.part"))
    whole = tmp_path / "whole"
    export(topic[:50_000], whole, rows_per_file=7_000)
    for file in whole.iterdir():
        assert parquet.read_table(file).equals(parquet.read_table(out / file.name))
    assert len(list(out.iterdir())) == len(list(whole.iterdir())) == report.files
    with pytest.raises(AlreadyExists, match="not an empty folder"):
        export(topic, out, rows_per_file=7_000)


def _raise(*_: Any) -> None:
    raise Stop


def test_a_file_appears_only_when_it_is_whole(log: Log, tmp_path: Path) -> None:
    topic = numbers(log, 100)
    with pytest.raises(Stop):
        export(topic, tmp_path / "rows.parquet", progress=_raise)
    assert not list(tmp_path.glob("rows.*"))


EXPORT = """
import sys, virta
from virta.exchange.export import export
def told(rows, size):
    print("step", flush=True)
    sys.stdin.readline()
with virta.open(sys.argv[1]) as log:
    export(log.topic("orders"), sys.argv[2], form="jsonl", rows_per_file=10_000, progress=told)
"""
LOAD = """
import sys, virta
from virta.exchange.load import load
def told(rows, size):
    print("step", flush=True)
    sys.stdin.readline()
with virta.open(sys.argv[1]) as log:
    load(log.topic("copy"), [sys.argv[2]], batch_rows=100, progress=told)
"""


def kill_after(program: str, steps: int, *arguments: Path) -> None:
    """Kill the program after so many steps; it waits for a line after each."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        for step in range(steps):
            assert process.stdout.readline() == "step\n"
            if step < steps - 1:
                process.stdin.write("\n")
                process.stdin.flush()
        os.kill(process.pid, signal.SIGKILL)


def test_a_killed_export_is_finished(log: Log, tmp_path: Path) -> None:
    topic = numbers(log, 200_000, step=20_000)
    for steps in (1, 1):
        kill_after(EXPORT, steps, log.path, tmp_path / "out")
    assert (tmp_path / "out" / STATE_FILE).exists()
    report = export(topic, tmp_path / "out", form="jsonl", rows_per_file=10_000)
    files = sorted((tmp_path / "out").iterdir())
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert [json.loads(line)["id"] for line in lines] == list(range(200_000))
    assert report.resumed_rows > 0


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_killed_import_doubles_nothing(log: Log, tmp_path: Path, form: str) -> None:
    topic = numbers(log, 20_000, step=20_000)
    out = tmp_path / f"rows.{form}"
    export(topic, out)
    copy = log.create_topic("copy", {"id": int})
    for steps in (1, 3, 40):
        kill_after(LOAD, steps, log.path, out)
    there = copy.count()
    assert 0 < there < 20_000
    report = load(copy, [out], batch_rows=333)
    assert (report.known, report.rows) == (there, 20_000 - there)
    assert ids(copy) == list(range(20_000))
    assert load(copy, [out]).rows == 0


def test_files_are_told_apart_by_name_and_content(log: Log, tmp_path: Path) -> None:
    topic = log.create_topic("orders", {"id": int})
    for name, text in (("a.jsonl", '{"id":1}\n'), ("b.jsonl", '{"id":1}\n')):
        (tmp_path / name).write_text(text)
    assert load(topic, [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]).rows == 2
    (tmp_path / "a.jsonl").write_text('{"id":2}\n')
    assert load(topic, [tmp_path / "a.jsonl"]).rows == 1
    assert ids(topic) == [1, 1, 2]


def test_refusals_name_the_line(log: Log, tmp_path: Path) -> None:
    topic = log.create_topic("orders", {"id": int})
    (tmp_path / "rows.jsonl").write_text('{"id":1}\n{"id":"x"}\n')
    with pytest.raises(SchemaMismatch, match=r"rows\.jsonl:2"):
        load(topic, [tmp_path / "rows.jsonl"])
    with pytest.raises(NotFound):
        load(topic, [tmp_path / "nothing.csv"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no file"):
        load(topic, [tmp_path / "empty"])
    with pytest.raises(UsageError, match="not by"):
        export(topic, tmp_path / "out", partition_by="week")
    with pytest.raises(UsageError, match="is a folder"):
        export(topic, tmp_path / "empty")
