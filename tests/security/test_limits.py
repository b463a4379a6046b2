"""Buckets and books, with a clock that the test holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virta.security.limits import Failures, Limits, Places, Rates, TokenBucket


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 500)), max_size=50))
def test_who_waits_as_told_never_exceeds_the_rate(steps: list[tuple[float, int]]) -> None:
    bucket, now, taken = TokenBucket(100), 1000.0, 0
    for pause, amount in steps:
        now += pause + bucket.take(0, now + pause)
        assert bucket.take(0, now) < 1e-9
        bucket.take(amount, now)
        taken += amount
        # A burst of one second, and what is one step over it.
        assert taken - amount <= 100 + (now - 1000.0) * 100 + 1e-6


def test_debts_are_paid_by_waiting() -> None:
    bucket = TokenBucket(100)
    assert bucket.take(100, 0.0) == 0
    assert bucket.take(300, 0.0) == pytest.approx(3.0)
    assert bucket.take(0, 2.0) == pytest.approx(1.0)
    assert bucket.take(0, 3.0) == 0
    assert not bucket.try_take(1, 3.0) and bucket.try_take(1, 3.5)
    assert bucket.wait(60, 3.5) == pytest.approx(0.11)


def test_a_clock_that_steps_back_gives_nothing() -> None:
    bucket = TokenBucket(10)
    bucket.take(10, 100.0)
    assert bucket.take(1, 50.0) == pytest.approx(0.1)
    assert bucket.take(0, 100.1) == pytest.approx(0.0, abs=1e-9)


def test_the_stricter_rate_decides() -> None:
    own, user = TokenBucket(100), TokenBucket(10)
    rates = Rates(own, None, user)
    assert rates.take(100, 0.0) == pytest.approx(9.0)
    assert Rates(None).take(10**12, 0.0) == 0


def test_failures_of_an_address_make_it_wait() -> None:
    failures = Failures(per_minute=3)
    for _ in range(3):
        assert failures.wait("one", 0.0) == 0
        failures.note("one", 0.0)
    assert failures.wait("one", 0.0) == pytest.approx(20.0)
    assert failures.wait("two", 0.0) == 0
    assert failures.wait("one", 20.0) == pytest.approx(0.0, abs=1e-6)


def test_failures_are_bounded() -> None:
    failures = Failures(per_minute=1)
    for number in range(Failures.MOST + 10):
        failures.note(str(number), 0.0)
    assert failures.wait("0", 0.0) == 0 and failures.wait(str(Failures.MOST), 0.0) > 0


def test_places() -> None:
    places = Places()
    assert places.take("a", 2) and places.take("a", 2) and not places.take("a", 2)
    assert places.take("b", 0) is False and places.take("b", None)
    places.give_back("a")
    assert places.held("a") == 1
    places.give_back("a")
    assert places.held("a") == 0
    with pytest.raises(KeyError):
        places.give_back("a")


def test_limits_change_by_name() -> None:
    assert Limits().changed(connections=7).connections == 7
    with pytest.raises(TypeError):
        Limits().changed(conections=7)
