"""Positions of streams as values, and how a limit is shared."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as some

from virta.spark.positions import Positions, from_json, lag, share
from virta.types import Token


def test_positions_are_one_text() -> None:
    tokens = {number: Token(partition=number, offset=7, hash=bytes(32)) for number in (10, 2, 0)}
    document = Positions(tokens=tokens).to_json()
    assert list(document) == ["0", "2", "10"]
    back = from_json(json.loads(json.dumps(document)))
    assert back.tokens == tokens
    assert json.dumps(back.to_json()) == json.dumps(document)


@given(some.dictionaries(some.integers(0, 9), some.integers(0, 1000), max_size=6), some.integers(1, 2000))
def test_a_limit_is_shared_whole(backlog: dict[int, int], most: int) -> None:
    shares = share(backlog, most)
    assert sum(shares.values()) == min(most, sum(backlog.values()))
    assert all(0 <= shares[number] <= rows for number, rows in backlog.items())


def test_lag_of_a_report() -> None:
    source = {
        "endOffset": {"0": {"head": "", "offset": 5}},
        "latestOffset": {"0": {"head": "", "offset": 9}, "1": {"head": "", "offset": 3}},
    }
    assert lag({"sources": [source, {"endOffset": None, "latestOffset": None}]}) == 7
