"""The checker of the network campaign finds what it is there to find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import virta
from virta.testing.faults.history import Acknowledged, Held, History, Seen, check


def good(path: Path) -> History:
    """Two producers on two partitions, a consumer and a group, all of it true."""
    history = History(tried={"p": 6, "q": 4}, flushed={"q": 4}, named={"q"})
    with virta.open(path) as log:
        orders = log.create_topic("orders", {"producer": str, "n": int}, partitions=2)
        for n in range(0, 6, 2):
            ack = orders.append([{"producer": "p", "n": n}, {"producer": "p", "n": n + 1}], partition=0)
            history.acknowledged.append(
                Acknowledged(producer="p", n=n, rows=2, partition=0, offset=ack.first_offset)
            )
        orders.append([{"producer": "q", "n": n} for n in range(4)], partition=1)
    history.seen = [Seen(consumer="c", partition=0, offset=n, producer="p", n=n) for n in range(6)]
    history.held = [
        Held(member="a", partition=0, epoch=1, first=0, last=3),
        Held(member="b", partition=0, epoch=2, first=2, last=5),
        Held(member="a", partition=1, epoch=1, first=0, last=3),
    ]
    return history


def test_what_is_true_is_not_complained_of(tmp_path: Path) -> None:
    assert check(tmp_path / "log", good(tmp_path / "log"), group=True) == []


SPOILED: dict[str, Callable[[History], object]] = {
    "is lost": lambda h: h.acknowledged.append(
        Acknowledged(producer="p", n=9, rows=1, partition=0, offset=9)
    ),
    "was acknowledged at 1": lambda h: h.acknowledged.append(
        Acknowledged(producer="p", n=0, rows=1, partition=0, offset=1)
    ),
    "never sent": lambda h: h.tried.update(p=5),
    "are lost": lambda h: h.flushed.update(q=5),
    "and not 3": lambda h: h.seen.pop(3),
    "which is not at": lambda h: h.seen.append(Seen(consumer="d", partition=0, offset=0, producer="p", n=1)),
    "ended at offset 5": lambda h: h.seen.pop(),
    "in epoch 2": lambda h: h.held.append(Held(member="a", partition=0, epoch=2, first=5, last=5)),
    "never given offset 0 of 0": lambda h: h.held.pop(0),
}


@pytest.mark.parametrize("said", SPOILED)
def test_what_is_not_true_is(tmp_path: Path, said: str) -> None:
    history = good(tmp_path / "log")
    SPOILED[said](history)
    assert any(said in complaint for complaint in check(tmp_path / "log", history, group=True))


def test_rows_that_are_there_twice_or_in_another_order(tmp_path: Path) -> None:
    history = good(tmp_path / "log")
    with virta.open(tmp_path / "log") as log:
        log.topic("orders").append({"producer": "p", "n": 3}, partition=0)
    complaints = check(tmp_path / "log", history)
    assert any("is there 2 times" in each for each in complaints)
    assert any("behind row 5" in each for each in complaints)
