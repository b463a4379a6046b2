"""`virta demo`: it works from end to end, and says so when it does not."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import virta
from tests.cli.conftest import Cli
from virta.cli.demo.life import HEIGHT, WIDTH, Cells, drawn, generations, next_generation

cells = st.frozensets(st.tuples(st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1)), max_size=200)


@pytest.mark.slow
def test_it_works_from_end_to_end(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "demo"
    done = cli.run("demo", place, "--seconds", "0.5", "--engine", "local")
    out = done.stdout.decode()
    assert done.returncode == 0, out + done.stderr.decode()
    assert "All of it worked" in out and "DAMAGED" in out and "\x1b" not in out
    cli.ok("-l", place / "events", "verify", "-q")
    with virta.open(place / "events") as log:
        assert set(log.topics()) == {"orders", "sensors", "life"}
        assert log.topic("life").config.kind == "update"
    assert cli("demo", place).code == 2


@pytest.mark.slow
def test_it_tells_when_something_is_wrong(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virta.cli.demo.first_look._flip_a_byte", lambda copy: (copy, 0))
    done = cli("demo", tmp_path / "demo", "--seconds", "0.1", "--engine", "local")
    assert done.code == 1
    assert "Something went wrong: the change was found" in done.out


@pytest.mark.slow
def test_on_a_terminal_it_stays_until_ctrl_c_and_leaves_no_process(tmp_path: Path) -> None:
    place = tmp_path / "demo"
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "virta", "demo", str(place), "--engine", "local"]
    running = subprocess.Popen(words, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown = b""
    try:
        deadline = time.monotonic() + 120
        while b"behind" not in shown.partition(b"Ctrl-C ends the demo")[2] and time.monotonic() < deadline:
            shown += os.read(ours, 65536)
        assert b"virta group show billing orders" in shown, shown.decode()
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(60) == 0
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        os.close(ours)
    assert not _processes_with(str(place))


def _processes_with(word: str) -> list[str]:
    """Command lines of living processes that name it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().decode(errors="replace")
        except OSError:  # gone meanwhile
            continue
        if word in line:
            found.append(line)
    return found


# -- life -------------------------------------------------------------------------------------------


def neighbours(alive: Cells, x: int, y: int) -> int:
    around = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy]
    return sum(((x + dx) % WIDTH, (y + dy) % HEIGHT) in alive for dx, dy in around)


@given(cells)
def test_a_generation_follows_the_rules(alive: Cells) -> None:
    after = next_generation(alive)
    for x in range(WIDTH):
        for y in range(HEIGHT):
            count = neighbours(alive, x, y)
            assert ((x, y) in after) == (count == 3 or (count == 2 and (x, y) in alive))


def test_rows_tell_what_changed_and_nothing_else() -> None:
    board: dict[tuple[int, int], bool] = {}
    for number, rows in enumerate(islice(generations(seed=3), 60)):
        assert rows and {row["generation"] for row in rows} == {number}
        for row in rows:
            assert board.get((row["x"], row["y"]), False) != row["alive"]
            board[row["x"], row["y"]] = row["alive"]


def test_a_board_is_drawn_two_cells_to_a_sign() -> None:
    assert drawn(frozenset({(0, 0), (1, 1), (2, 0), (2, 1)}), columns=4, lines=2) == ["▀▄█"]
