"""`virta sql`: queries from every place, forms, parameters, errors; and the shell on a terminal."""

from __future__ import annotations

import os
import pty
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from virta.cli.invocation import Invocation
from virta.cli.shell import Shell, is_complete

pytest.importorskip("duckdb")


def test_a_query_from_every_place(orders: Cli, tmp_path: Path) -> None:
    query = "select sum(id) s, count(user) n from orders"
    file = tmp_path / "query.sql"
    file.write_text(query + ";\n")
    expected = [{"s": 6, "n": 2}]
    assert orders.ok("sql", query).rows == expected
    assert orders.ok("sql", "-", stdin=query).rows == expected
    assert orders.ok("sql", stdin=query).rows == expected
    assert orders.ok("sql", "-f", file).rows == expected
    assert orders("sql", "select 1", "-f", file).code == 2


def test_forms(orders: Cli, tmp_path: Path) -> None:
    query = "select id, user from orders order by id desc limit 2"
    assert orders.ok("sql", query, "-o", "csv").out == "id,user\n3,zoë\n2,\n"
    assert orders.ok("sql", query, "-o", "table").out.split() == ["id", "user", "3", "zoë", "2"]
    assert orders.ok("sql", query, "-q").out == "3\n2\n"
    out = tmp_path / "rows.parquet"
    orders.ok("sql", query, "--out", out)
    assert orders.ok("sql", f"select max(id) m from '{out}'", "--external-access").rows == [{"m": 3}]
    assert orders.ok("sql", "select 170141183460469231731687303715884105727::hugeint h").rows == [
        {"h": "170141183460469231731687303715884105727"}
    ]


def test_parameters(orders: Cli) -> None:
    query = "select id from orders where amount > $least and user = $who"
    assert orders.ok("sql", query, "-p", "least=7.5", "-p", "who=ada").rows == [{"id": 1}]
    done = orders("sql", query, "-p", "least")
    assert done.code == 2 and "-p name=value" in done.err


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("select * from ordres", 3, "virta sql 'select * from orders'"),
        ("drop table orders", 2, "they only read"),
        ("selct", 2, "syntax error"),
        ("select * from 'x.csv'", 2, "disabled"),
    ],
)
def test_errors(orders: Cli, query: str, code: int, words: str) -> None:
    done = orders("sql", query)
    assert done.code == code and words in done.err and not done.out


def test_nothing_is_left_on_stderr(orders: Cli) -> None:
    done = orders.run("sql", "from orders")
    assert done.returncode == 0 and done.stderr == b"" and done.stdout.count(b"\n") == 3


# -- the shell ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complete"),
    [("select 1;", True), ("select 1", False), ("select ';", False), ("select ';';", True), ("-- a;", False),
     ("select 1; -- done", True), ('select ";"', False), ("/* ;", False), ("select 1;\n", True)],
)  # fmt: skip
def test_where_a_query_ends(text: str, complete: bool) -> None:
    assert is_complete(text) == complete


@pytest.fixture
def shell(orders: Cli) -> Iterator[Shell]:
    with orders.open() as log:
        yield Shell(Invocation(), log)


def test_lines_become_a_query(shell: Shell, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for line in (
        ".mode csv",
        "",
        "select id",
        "from orders",
        "order by id limit 1;",
        ".tables",
        ".schema orders",
    ):
        assert shell.take(line)
    printed = capfdbinary.readouterr().out.decode()
    assert printed.startswith("id\n1\norders\n")
    assert "user,VARCHAR\n" in printed
    assert not shell.take(".quit")


def test_an_error_leaves_the_shell_open(shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    for line in ("select nope from orders;", ".nope", ".mode parquet", ".schema", "select * from ordres;"):
        assert shell.take(line)
    assert capfd.readouterr().err.count("error:") == 5


def test_completion(shell: Shell) -> None:
    assert shell.complete("ord", "select * from ord") == ["order", "orders"]
    assert shell.complete("am", "select am") == ["amount"]
    assert shell.complete(".s", ".s") == [".schema"]
    assert "sum" in shell.complete("SU", "select SU")


def test_on_a_terminal(
    orders: Cli, terminal: Callable[..., tuple[str, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    printed, code = terminal("sql", keys="select 41 + 1 as answer;\n\x04", after="virta> ")
    assert code == 0 and "answer" in printed and "42" in printed and "(1 row" in printed
    assert "answer" in (tmp_path / "virta" / "sql_history").read_text()


def test_ctrl_c_cancels_the_query_and_keeps_the_shell(
    orders: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "virta", "sql"])
    printed = b""

    def wait_for(text: bytes) -> None:
        nonlocal printed
        deadline = time.monotonic() + 30
        while text not in printed and time.monotonic() < deadline:
            printed += os.read(terminal, 65536)
        assert text in printed
        printed = printed.partition(text)[2]

    wait_for(b"virta> ")
    os.write(terminal, b"select 'begun'; \n")
    wait_for(b"(1 row")
    wait_for(b"virta> ")
    os.write(terminal, b"select count(*) from range(1000000000) a, range(1000) b;\n")
    wait_for(b"b;")
    time.sleep(0.3)
    os.write(terminal, b"\x03")
    wait_for(b"cancelled")
    wait_for(b"virta> ")
    os.write(terminal, b"\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)
