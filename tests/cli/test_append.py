"""`virta append`: every form comes in, what a read prints is taken back, refusals name the line."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cli.conftest import Cli

FORMS = ["jsonl", "json", "csv", "tsv", "parquet", "arrow"]

EVERYTHING = {
    "n": int,
    "text": str | None,
    "data": bytes | None,
    "at": datetime.datetime | None,
    "nano": pa.timestamp("ns"),
    "day": datetime.date | None,
    "clock": datetime.time | None,
    "span": datetime.timedelta | None,
    "price": Decimal | None,
    "ratio": float | None,
    "flag": bool | None,
    "tags": list[str | None] | None,
    "place": pa.struct([("lat", pa.float64()), ("raw", pa.binary())]),
    "label": pa.dictionary(pa.int32(), pa.string()),
    "counts": pa.map_(pa.string(), pa.int64()),
}

ROWS: list[dict[str, Any]] = [
    {
        "n": -(1 << 63),
        "text": 'a,"b"\n\t\\N é 日本',
        "data": b"\xff\x00",
        "at": datetime.datetime(2026, 11, 18, 10, 0, 0, 1, tzinfo=datetime.UTC),
        "nano": datetime.datetime(2026, 11, 18, 10),
        "day": datetime.date(1969, 12, 31),
        "clock": datetime.time(23, 59, 59, 999999),
        "span": datetime.timedelta(microseconds=-1),
        "price": Decimal("12.000000001"),
        "ratio": 0.1,
        "flag": False,
        "tags": ["a", None, ""],
        "place": {"lat": 1.5, "raw": b"\xfe"},
        "label": "new",
        "counts": {"a": 1},
    },
    {"n": 1, "text": "", "data": b"", "ratio": float("inf"), "tags": [], "counts": {}, "label": ""},
    {"n": 2, "text": "null", "data": b'{"$binary": "AA=="}', "ratio": float("nan"), "flag": True},
    {"n": 3},
]


def everything(cli: Cli) -> pa.Table:
    with cli.open() as log:
        topic = log.create_topic("everything", EVERYTHING, headers=True)
        topic.append(ROWS)
        topic.append({"n": 4, "_headers": {"trace": b"\xff", "text": b"abc"}})
        return topic[:].to_arrow().drop_columns(["_offset", "_timestamp"])


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_is_taken_back_unchanged(cli: Cli, form: str, tmp_path: Path) -> None:
    before = everything(cli)
    with cli.open() as log:
        log.create_topic("copy", EVERYTHING, headers=True)
        log.create_topic("piped", EVERYTHING, headers=True)
    file = tmp_path / f"rows.{form}"
    cli.ok("read", "everything", "--out", file)
    cli.ok("append", "copy", file)
    cli.ok("append", "piped", "-", stdin=file.read_bytes())  # the form is told by its first bytes
    with cli.open() as log:
        for name in ("copy", "piped"):
            after = log.topic(name)[:].to_arrow().drop_columns(["_offset", "_timestamp"])
            # compared as text, because a nan does not equal itself
            assert str(after.to_pylist()) == str(before.to_pylist())


@pytest.fixture
def numbers(cli: Cli) -> Cli:
    cli.ok("topic", "create", "numbers", "n:int", "text:str?", "-q")
    return cli


def rows_of(cli: Cli, topic: str = "numbers") -> list[dict[str, Any]]:
    return cli.ok("read", topic, "-o", "jsonl", "--columns", "n,text").rows


def test_lines_from_a_pipe(numbers: Cli) -> None:
    done = numbers.ok("append", "numbers", "-", stdin='{"n": 1}\n\n{"text": "b", "n": 2}')
    assert done.out == ""
    assert done.err == 'appended 2 rows to "numbers": offsets 0 to 1, written\n'
    assert rows_of(numbers) == [{"n": 1, "text": None}, {"n": 2, "text": "b"}]


def test_several_files_of_several_forms(numbers: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "b.json").write_text('[{"n": 2}, {"n": 3}]')
    (tmp_path / "c.csv").write_text('n,text\n4,"a\nb"\n5,\n6,""\n')
    (tmp_path / "d.tsv").write_text("n\ttext\n7\t\\N\n8\ta\\tb\n")
    files = [tmp_path / name for name in ("a.jsonl", "b.json", "c.csv", "d.tsv")]
    numbers.ok("append", "numbers", *files)
    assert [row["n"] for row in rows_of(numbers)] == list(range(1, 9))
    texts = [row["text"] for row in rows_of(numbers)]
    assert texts == [None, None, None, "a\nb", None, "", None, "a\tb"]


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        ('{"n": 1}\n{"n": "x"}\n', "stdin:2: column \"n\" is int64, which 'x' does not fit"),
        ('{"n": 1}\n{"m": 1}\n', 'stdin:2: there is no column "m"'),
        ('{"n": 1}\n{"n": 2\n', "stdin:2: not JSON"),
        ('{"n": 1}\n[1]\n', "stdin:2: a row is a JSON object, not list"),
        ('{"n": 1}\n\n{"text": "x"}\n', "stdin:3: column 'n' is int and not null"),
        ('{"n": 9223372036854775808}', "stdin:1: column \"n\""),
        (b'{"n": 1}\n{"text": "\xff"}\n', "stdin:2: not UTF-8, at byte 11"),
        ("n,m\n1,2\n", "cannot tell what form"),
        ("[" * 100_000, "nested too deeply"),
        ('{"n":' + "[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_line_and_nothing_is_appended(
    numbers: Cli, stdin: str | bytes, said: str
) -> None:
    done = numbers("append", "numbers", "-", stdin=stdin)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert rows_of(numbers) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "n,m\n1,2\n", 'a.csv:1: there is no column "m"'),
        ("a.csv", "n,n\n1,2\n", 'a.csv:1: column "n" is there twice'),
        ("a.csv", "n,text\n1,a\nx,b\n", "a.csv:row 2: column \"n\" is int64, which 'x' does not fit"),
        ("a.csv", "n,text\n1,a\n2,b,c\n", "Expected 2 columns, got 3"),
        ("a.tsv", "n\ttext\n1\n", "a.tsv:2: the line has 1 cells, but the first has 2"),
        ("a.parquet", "n\n", "not readable as parquet"),
        ("a.arrow", "n\n", "not readable as arrow"),
        ("a.json", '{"n": 1', "not JSON"),
    ],
)
def test_files_that_cannot_be_read(numbers: Cli, tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    done = numbers("append", "numbers", tmp_path / name)
    assert done.code == 2
    assert said in done.err


def test_arrow_rows_that_do_not_fit_are_named(numbers: Cli, tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, 2, None])})
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as file:
        file.write_table(table)
    done = numbers("append", "numbers", tmp_path / "rows.arrow", "--batch", "2")
    assert done.code == 2
    assert "rows.arrow:row 3: column 'n' is int and not null" in done.err
    assert "2 rows before it were appended" in done.err


def test_a_missing_file(numbers: Cli) -> None:
    done = numbers("append", "numbers", "no-such-file.jsonl")
    assert done.code == 1
    assert "no-such-file.jsonl" in done.err


def test_an_empty_input_appends_nothing(numbers: Cli) -> None:
    assert "appended 0 rows" in numbers.ok("append", "numbers", "-", stdin="").err


def test_a_dry_run_checks_every_row_and_appends_none(numbers: Cli) -> None:
    lines = '{"n": 1}\n{"n": 2}\n'
    assert "2 rows would fit" in numbers.ok("append", "numbers", "-", "--dry-run", stdin=lines).err
    assert numbers("append", "numbers", "-", "--dry-run", stdin=lines + "{}").code == 2
    assert rows_of(numbers) == []


def test_an_expected_offset(numbers: Cli) -> None:
    numbers.ok("append", "numbers", "-", "--if-offset", "0", "--batch", "1", stdin='{"n": 1}\n{"n": 2}\n')
    done = numbers("append", "numbers", "-", "--if-offset", "1", stdin='{"n": 3}')
    assert done.code == 7
    assert "expected next offset 1, but it is 2" in done.err
    assert numbers("append", "numbers", "-", "--if-offset", "1", stdin="").code == 7
    assert [row["n"] for row in rows_of(numbers)] == [1, 2]


def test_a_producer_run_again_appends_only_what_is_new(numbers: Cli) -> None:
    first = "".join(f'{{"n": {n}}}\n' for n in range(25))
    both = first + '{"n": 25}\n'
    numbers.ok("append", "numbers", "--producer", "p", "--batch", "10", stdin=first)
    done = numbers.ok("append", "numbers", "--producer", "p", "--batch", "10", stdin=both)
    assert 'appended 1 row to "numbers": offsets 25 to 25' in done.err
    assert "25 rows were there already" in done.err
    assert [row["n"] for row in rows_of(numbers)] == list(range(26))
    assert numbers("append", "numbers", "--producer", "p", "--if-offset", "0").code == 2


def test_the_acknowledgement_as_json(numbers: Cli) -> None:
    said = json.loads(numbers.ok("append", "numbers", "-o", "json", stdin='{"n": 1}').out)
    with numbers.open() as log:
        assert said["head"] == log.topic("numbers").head
    assert (said["rows"], said["first_offset"], said["last_offset"], said["durability"]) == (1, 0, 0, "os")


def test_a_live_pipe_is_appended_as_it_comes(numbers: Cli) -> None:
    import subprocess

    with numbers.process("append", "numbers", "-", stdin=subprocess.PIPE) as appending:
        assert appending.stdin is not None
        for n in range(3):
            appending.stdin.write(b'{"n": %d}\n' % n)
            appending.stdin.flush()
            wait_until(lambda n=n: len(rows_of(numbers)) == n + 1)  # type: ignore[misc]
        appending.stdin.close()
        assert appending.wait(30) == 0


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_an_untyped_topic_takes_key_and_value(cli: Cli) -> None:
    cli.ok("topic", "create", "raw")
    line = {"key": "a", "value": {"$binary": "/w=="}, "_headers": {"h": "1"}}
    cli.ok("append", "raw", stdin=json.dumps(line))
    (row,) = cli.ok("read", "raw", "--columns", "key,value,_headers").rows
    assert row == line
