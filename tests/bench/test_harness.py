"""The measuring itself: turns, best rounds, verdicts, and what counts as a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness import (
    MICROSECONDS,
    ROWS_PER_SECOND,
    Bench,
    Contest,
    LostRows,
    Options,
    Outcome,
    Runner,
    Sample,
    Target,
    Unavailable,
    expect_rows,
    result,
)


def bench(tmp_path: Path, rounds: int = 3) -> Bench:
    return Bench(Options(directory=tmp_path, rounds=rounds), lambda outcome: None)


def contest(runners: dict[str, Runner], *targets: Target) -> Contest:
    return Contest(workload="test", title="test", conditions="none", runners=runners, targets=targets)


def constant(rows_per_second: float) -> Runner:
    return lambda: {ROWS_PER_SECOND: rows_per_second}


def test_contenders_take_turns_and_each_round_begins_with_another(tmp_path: Path) -> None:
    order: list[str] = []

    def runner(name: str) -> Runner:
        def run() -> Sample:
            order.append(name)
            return {ROWS_PER_SECOND: 1.0}

        return run

    bench(tmp_path).compete(contest({name: runner(name) for name in "abc"}))
    assert "".join(order) == "abcbcacab"


def test_the_best_round_counts_in_the_metric_s_own_direction(tmp_path: Path) -> None:
    rates, times = iter((1.0, 3.0, 2.0)), iter((5.0, 4.0, 6.0))
    runner: Runner = lambda: {ROWS_PER_SECOND: next(rates), MICROSECONDS: next(times)}  # noqa: E731
    outcome = bench(tmp_path).compete(contest({"virta": runner}))
    assert outcome.best() == {"virta": {ROWS_PER_SECOND: 3.0, MICROSECONDS: 4.0}}
    rounds = result(outcome)["contenders"]["virta"]["rows/s"]["rounds"]
    assert rounds == [1.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("target", "value", "reached"),
    [
        (Target(metric=ROWS_PER_SECOND, against="peer", times_better=10), 20.0, True),
        (Target(metric=ROWS_PER_SECOND, against="peer", times_better=21), 20.0, False),
        (Target(metric=MICROSECONDS, against="peer", times_better=2), 4.0, True),
        (Target(metric=MICROSECONDS, against="peer", times_cost=0.2), 0.25, False),
        (Target(metric=ROWS_PER_SECOND, limit=100), 200.0, True),
        (Target(metric=MICROSECONDS, limit=1), 2.0, False),
    ],
)
def test_a_target_is_judged_from_the_best_figures(target: Target, value: float, reached: bool) -> None:
    best = {
        "virta": {ROWS_PER_SECOND: 200.0, MICROSECONDS: 2.0},
        "peer": {ROWS_PER_SECOND: 10.0, MICROSECONDS: 8.0},
    }
    assert target.judge(best) == (value, reached)


def test_a_target_is_not_judged_without_the_other_side(tmp_path: Path) -> None:
    target = Target(metric=ROWS_PER_SECOND, against="peer", times_better=10)
    outcome = bench(tmp_path).compete(contest({"virta": constant(5)}, target))
    assert result(outcome)["targets"][0]["reached"] is None


def test_lost_rows_fail_the_run_and_the_figures_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose() -> Sample:
        expect_rows("peer", 10, 9)
        return {}

    running = bench(tmp_path)
    outcome = running.compete(contest({"peer": lose, "virta": constant(1)}))
    assert running.failed
    assert "took 10 rows and holds 9" in outcome.errors["peer"]
    assert list(outcome.best()) == ["virta"]
    assert LostRows.__name__ in capsys.readouterr().err


def test_an_absent_contender_and_a_missed_target_fail_nothing(tmp_path: Path) -> None:
    def absent() -> Sample:
        raise Unavailable("not installed")

    running = bench(tmp_path)
    target = Target(metric=ROWS_PER_SECOND, limit=100)
    outcome: Outcome = running.compete(contest({"peer": absent, "virta": constant(1)}, target))
    assert outcome.absent == {"peer": "not installed"}
    assert result(outcome)["targets"][0]["reached"] is False
    assert not running.failed


def test_scratch_directories_go_away(tmp_path: Path) -> None:
    with bench(tmp_path).scratch() as directory:
        (directory / "file").write_text("x")
    assert not list(tmp_path.iterdir())
