"""`virta read` and `virta tail`: ranges, forms, filters; and how a tail ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.conftest import Cli

IDS = "id"


def ids(cli: Cli, *arguments: str) -> list[int]:
    return [row["id"] for row in cli.ok("read", *arguments, "--columns", IDS).rows]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("orders", [1, 2, 3]),
        ("orders@:", [1, 2, 3]),
        ("orders@1:", [2, 3]),
        ("orders@:1", [1]),
        ("orders@-2:", [2, 3]),
        ("orders@-3:-1", [1, 2]),
        ("orders@1", [2]),
        ("orders@-1", [3]),
        ("orders@:end", [1, 2, 3]),
        ("orders@end:", []),
        ("orders@end", []),
        ("orders@-1h:", [1, 2, 3]),
        ("orders@:-1h", []),
        ("orders@2020-01-01:2021-01-01", []),
        ("orders@2020-01-01", [1]),
    ],
)
def test_ranges(orders: Cli, rows: str, expected: list[int]) -> None:
    assert ids(orders, rows) == expected


def test_a_hash_names_a_block(orders: Cli) -> None:
    with orders.open() as log:
        partition = log.topic("orders").partition(0)
        first, second = partition.fetch_batch(0, 3)
    assert ids(orders, f"orders@#{first.hash}") == [1, 2]
    assert ids(orders, f"orders@#{second.hash[:12]}:") == [3]
    assert ids(orders, f"orders@:#{first.hash}") == [1, 2]
    assert orders("read", "orders@#" + "0" * 16).code == 3


@pytest.mark.parametrize("rows", ["orders@9", "orders@-9", "nothing", "orders@0:1@2"])
def test_what_is_not_there(orders: Cli, rows: str) -> None:
    assert orders("read", rows).code in (2, 3)


def test_where_columns_limit_and_count(orders: Cli) -> None:
    assert ids(orders, "orders", "--where", "amount > 5") == [1, 3]
    assert ids(orders, "orders", "--where", "amount > 5", "--where", "user = 'zoë'") == [3]
    assert ids(orders, "orders", "--limit", "2") == [1, 2]
    assert orders.ok("read", "orders", "--count").out == "3\n"
    assert orders.ok("read", "orders@1:", "--count", "--where", "user is null").out == "1\n"
    assert orders.ok("read", "orders", "-q").out == "0\n1\n2\n"
    done = orders("read", "orders", "--columns", "id,usr")
    assert done.code == 3 and "user" in done.err
    assert orders("read", "orders", "--where", "amount >").code == 2


def test_forms_of_text(orders: Cli) -> None:
    columns = ["--columns", "id,user,amount"]
    assert orders.ok("read", "orders", *columns, "-o", "csv").out == (
        "id,user,amount\n1,ada,9.5\n2,,3.0\n3,zoë,7.25\n"
    )
    assert orders.ok("read", "orders", *columns, "-o", "tsv", "--no-header").out == (
        "1\tada\t9.5\n2\t\\N\t3.0\n3\tzoë\t7.25\n"
    )
    assert orders.ok("read", "orders", *columns, "-o", "table").out == (
        "id  user  amount\n 1  ada      9.5\n 2           3.0\n 3  zoë     7.25\n"
    )
    assert orders.ok("read", "orders@0", *columns, "-o", "md").out == (
        "| id | user | amount |\n| --- | --- | --- |\n| 1 | ada | 9.5 |\n"
    )
    assert json.loads(orders.ok("read", "orders", *columns, "-o", "json").out)[1] == {
        "id": 2,
        "user": None,
        "amount": 3.0,
    }
    assert orders.ok("read", "orders@end:", "-o", "json").out == "[]\n"
    assert orders.ok("read", "orders@end:", "-o", "csv", "--columns", "id").out == "id\n"


def test_a_file_gets_its_name_when_it_is_whole(orders: Cli, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    orders.ok("read", "orders", "--out", file)
    assert parquet.read_table(file).column("id").to_pylist() == [1, 2, 3]
    orders.ok("read", "orders", "-o", "arrow", "--out", tmp_path / "rows.bin")
    with pa.OSFile(str(tmp_path / "rows.bin")) as source:
        assert pa.ipc.open_stream(source).read_all().num_rows == 3
    before = file.read_bytes()
    assert orders("read", "orders", "--columns", "nope", "--out", file).code == 3
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "rows.bin", "rows.parquet"]


def test_values_never_steer_the_terminal(cli: Cli) -> None:
    cli.ok("topic", "create", "evil", "text:str")
    cli.ok("append", "evil", stdin=json.dumps({"text": "\x1b[2J\x9b\u202e\r\n"}))
    for form in ("table", "md", "jsonl"):
        out = cli.ok("read", "evil", "-o", form, "--columns", "text").out
        assert not set(out) & set("\x1b\x9b\u202e\r")
    (row,) = cli.ok("read", "evil").rows
    assert row["text"] == "\x1b[2J\x9b\u202e\r\n"


def test_binary_forms_refuse_a_terminal(orders: Cli, terminal: Callable[..., tuple[str, int]]) -> None:
    out, code = terminal("read", "orders", "-o", "arrow")
    assert code == 2
    assert "--out rows.arrow" in out


def test_a_terminal_gets_a_table_cut_to_its_width(
    orders: Cli, terminal: Callable[..., tuple[str, int]]
) -> None:
    out, code = terminal("read", "orders", columns=40)
    assert code == 0
    lines = out.splitlines()
    assert "\x1b[1m_offset" in lines[0]
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 40 for line in lines)
    assert lines[-1] == "(3 rows)"


# -- tail ---------------------------------------------------------------------------------------


def test_a_tail_that_stops_when_idle(orders: Cli) -> None:
    done = orders.ok("tail", "orders@-2:", "--stop-when-idle", "10ms", "--columns", "id", "-o", "jsonl")
    assert done.rows == [{"id": 2}, {"id": 3}]
    assert orders.ok("tail", "orders", "--limit", "1", "--columns", "id").rows == [{"id": 1}]
    arguments = ["--since", "-1h", "--where", "id > 1", "--stop-when-idle", "10ms", "-q"]
    assert orders.ok("tail", "orders", *arguments).out == "1\n2\n"
    assert orders("tail", "orders", "--stop-when-idle", "soon").code == 2
    assert orders("tail").code == 2


@pytest.mark.parametrize("end", [1, 2, 3])
def test_a_tail_up_to_an_offset_ends_there(orders: Cli, end: int) -> None:
    done = orders.ok("tail", f"orders@:{end}", "--columns", "id", "-o", "jsonl")
    assert done.rows == [{"id": n} for n in range(1, end + 1)]


def test_several_topics_at_once(orders: Cli) -> None:
    orders.ok("gen", "clicks", "--template", "clicks", "--create", "--count", "2", "-q")
    rows = orders.ok("tail", "orders", "clicks", "--stop-when-idle", "50ms", "-o", "jsonl").rows
    assert sorted(row["_topic"] for row in rows) == ["clicks", "clicks", "orders", "orders", "orders"]
    assert next(row for row in rows if row["_topic"] == "orders")["user"] == "ada"
    done = orders.ok("tail", "orders", "clicks", "--stop-when-idle", "50ms", "-o", "csv")
    assert done.out.splitlines()[0] == "_topic,_offset,_timestamp,row"
    assert orders("tail", "orders", "clicks", "-o", "parquet").code == 2
    assert orders("tail", "orders", "nothing").code == 3


@pytest.fixture
def tailing(orders: Cli) -> subprocess.Popen[bytes]:
    """A tail in another process that has printed what is there."""
    process = orders.process("tail", "orders", "--columns", "id")
    assert process.stdout is not None
    assert [json.loads(process.stdout.readline())["id"] for _ in range(3)] == [1, 2, 3]
    return process


def test_a_tail_prints_each_row_as_it_comes(orders: Cli, tailing: subprocess.Popen[bytes]) -> None:
    with tailing:
        orders.ok("append", "orders", "-", stdin='{"id": 4, "amount": 1.0}')
        assert tailing.stdout is not None
        assert json.loads(tailing.stdout.readline())["id"] == 4
        tailing.kill()


def test_ctrl_c_ends_a_tail_quietly(tailing: subprocess.Popen[bytes]) -> None:
    with tailing:
        tailing.send_signal(signal.SIGINT)
        out, err = tailing.communicate(timeout=30)
        assert (tailing.returncode, out, err) == (130, b"", b"")


def test_ctrl_c_makes_a_json_array_whole(orders: Cli) -> None:
    with orders.process("tail", "orders", "-o", "json", "--columns", "id") as process:
        assert process.stdout is not None
        begun = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert len(json.loads(begun + process.stdout.read())) == 3
        assert process.wait(30) == 130


def test_a_tail_ends_when_nobody_reads_it(tailing: subprocess.Popen[bytes]) -> None:
    with tailing:
        assert tailing.stdout is not None and tailing.stderr is not None
        tailing.stdout.close()
        assert tailing.wait(30) == 0
        assert tailing.stderr.read() == b""


def test_a_reader_that_has_seen_enough(orders: Cli) -> None:
    orders.ok("gen", "orders", "--count", "20000", "-q")
    with orders.process("read", "orders") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


def test_a_full_disk_is_an_error(orders: Cli) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with Path("/dev/full").open("wb") as full, orders.process("read", "orders", stdout=full) as process:
        assert process.wait(30) == 1
        assert process.stderr is not None
        assert b"No space left on device" in process.stderr.read()


def test_tail_into_append_copies_live(orders: Cli) -> None:
    orders.ok("topic", "create", "copy", "id:int", "user:str?", "amount:float")
    tail = orders.process("tail", "orders", "-o", "jsonl")
    append = orders.process("append", "copy", "-", stdin=tail.stdout)
    with tail, append:
        orders.ok("append", "orders", "-", stdin='{"id": 4, "amount": 1.5}')
        end = time.monotonic() + 30
        while orders.ok("read", "copy", "--count").out != "4\n":
            assert time.monotonic() < end
            time.sleep(0.02)
        tail.send_signal(signal.SIGINT)
        assert append.wait(30) == 0
    with orders.open() as log:
        columns = ["id", "user", "amount"]
        copied, source = (log.topic(name)[:].columns(*columns).to_arrow() for name in ("copy", "orders"))
        assert copied.equals(source)


def test_output_is_utf_8_whatever_the_locale(orders: Cli) -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}
    done = orders.run("read", "orders@2", "--columns", "user", env=environment)
    assert done.stdout.decode() == '{"user":"zoë"}\n'
