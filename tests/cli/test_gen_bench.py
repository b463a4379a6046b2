"""`virta gen`, `bench` and `completion`."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from virta.errors import UsageError
from virta.exchange.templates import BUILT_IN, FUNCTIONS, compile_template, read_template


def rows_of(document: Any, count: int = 20, seed: int = 1) -> list[Any]:
    make, chance = compile_template(document), random.Random(seed)
    return [make(chance, row) for row in range(count)]


def test_a_function_alone_keeps_its_type_and_inside_text_becomes_text() -> None:
    (row,) = rows_of(
        {"n": "{{count 5}}", "t": "n{{count}}, {{choice a}}", "k": 7, "l": ["{{count}}", None]}, 1
    )
    assert row == {"n": 5, "t": "n0, a", "k": 7, "l": [0, None]}


def test_functions_keep_to_their_bounds() -> None:
    for row in rows_of(
        {"i": "{{int 3 5}}", "f": "{{float 1 2}}", "m": "{{maybe 0.5 choice 'a b'}}", "b": "{{bool}}"}
    ):
        assert 3 <= row["i"] <= 5 and 1 <= row["f"] <= 2
        assert row["m"] in (None, "a b") and row["b"] in (True, False)


def test_the_same_seed_gives_the_same_rows() -> None:
    template = {name: "{{" + name + "}}" for name in FUNCTIONS if name not in ("now", "choice", "maybe")}
    assert rows_of(template, seed=3) == rows_of(template, seed=3) != rows_of(template, seed=4)


@pytest.mark.parametrize(
    "text",
    ["x", "[1]", '{"a": "{{nope}}"}', '{"a": "{{int x}}"}', '{"a": "{{int 5 3}}"}', '{"a": "{{choice}}"}',
     '{"a": "{{int 1 2 3}}"}', '{"a": "{{maybe 0.5}}"}', '{"a": "{{}}"}'],
)  # fmt: skip
def test_templates_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        read_template(text)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_templates_make_their_topic(cli: Cli, name: str) -> None:
    cli.ok("gen", name, "--template", name, "--create", "--count", "50", "-q")
    assert cli.ok("read", name, "--count").out == "50\n"


def test_rows_from_the_columns_of_any_topic(cli: Cli) -> None:
    words = (
        "id:int small:int8 user:str? email:str city:str ratio:float flag:bool raw:bytes four:bytes(4) "
        "at:datetime naive:timestamp(ms) day:date clock:time32(s) span:duration(s) price:decimal(10,2) "
        "whole:decimal(5,0) key:uuid kind:label tags:str[] pair:int[2] place:{lat:float,lon:float?} "
        "attributes:map<str,int> big:uint64"
    )
    cli.ok("topic", "create", "all", *words.split(), "--headers")
    cli.ok("gen", "all", "--count", "30")
    cli.ok("topic", "create", "raw")
    cli.ok("gen", "raw", "--count", "30")
    assert cli.ok("read", "all", "--count").out == cli.ok("read", "raw", "--count").out == "30\n"


def test_a_dry_run_prints_what_it_would_append(orders: Cli) -> None:
    arguments = ["gen", "orders", "--count", "2", "--seed", "1", "--dry-run"]
    done = orders.ok(*arguments)
    assert [sorted(row) for row in done.rows] == [["amount", "id", "user"]] * 2
    assert orders.ok(*arguments).out == done.out
    assert orders.ok("read", "orders", "--count").out == "3\n"


def test_a_template_from_a_file_and_one_that_does_not_fit(orders: Cli, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"id": "{{count 10}}", "amount": 1.5}')
    orders.ok("gen", "orders", "--template", f"@{tmp_path / 't.json'}", "--count", "2")
    assert [row["id"] for row in orders.ok("read", "orders@3:").rows] == [10, 11]
    assert orders("gen", "orders", "--template", '{"nope": 1}').code == 2
    assert orders("gen", "orders", "--template", '{"id": 1}', "--create").code == 2
    assert orders("gen", "orders", "--rate", "fast").code == 2


def test_a_rate_goes_on_until_ctrl_c(orders: Cli) -> None:
    with orders.process("gen", "orders", "--rate", "200") as making:
        with orders.process("tail", "orders", "--limit", "10") as tail:
            assert len(tail.communicate(timeout=30)[0].splitlines()) == 10
        making.send_signal(signal.SIGINT)
        _, err = making.communicate(timeout=30)
        assert making.returncode == 130
        assert err.startswith(b"appended ")


# -- bench ----------------------------------------------------------------------------------------


def test_bench_measures_and_leaves_nothing(orders: Cli, tmp_path: Path) -> None:
    for command in (["append"], ["read", "--rows", "1000"], ["read", "orders"], ["latency"]):
        figures = orders.ok("bench", *command, "--seconds", "0.05", "-o", "jsonl").rows
        for figure in figures:
            assert all(value is None or value > 0 for name, value in figure.items() if name != "work")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert orders.ok("read", "orders", "--count").out == "3\n"


# -- completion ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_code(cli: Cli, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = cli.ok("completion", shell).out
    assert "_VIRTA_COMPLETE" in code
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    assert cli.ok("completion").out == code
    monkeypatch.setenv("SHELL", "/bin/other")
    assert cli("completion").code == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("virta read or", ["orders"]),
        ("virta tail orders ", ["odd name", "orders"]),
        ("virta topic show o", ["odd name", "orders"]),
        ("virta read orders --columns us", ["user"]),
        ("virta read orders@-10: --columns id,am", ["id,amount"]),
        ("virta -l {elsewhere} read ", []),
        ("virta topic al", ["alter"]),
    ],
)
def test_names_complete(orders: Cli, tmp_path: Path, words: str, expected: list[str]) -> None:
    orders.ok("topic", "create", "odd name", "-q")
    words = words.format(elsewhere=tmp_path / "none")
    environment = os.environ | {
        "_VIRTA_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = orders.run(env=environment)
    assert [line.partition(",")[2] for line in done.stdout.decode().split("\n") if line] == expected


def test_topics_complete_without_arrow(orders: Cli) -> None:
    program = (
        "import sys, os\n"
        "from virta.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('pyarrow' in sys.modules)\n"
    )
    environment = os.environ | {
        "_VIRTA_COMPLETE": "bash_complete",
        "COMP_WORDS": "virta read o",
        "COMP_CWORD": "2",
    }
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["plain,orders", "False"]


def test_json_is_one_line_per_row_for_machines(orders: Cli) -> None:
    assert json.loads(orders.ok("topic", "ls", "-o", "json").out)[0]["topic"] == "orders"
