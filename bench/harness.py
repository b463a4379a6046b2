"""Rounds: lets contenders take turns, keeps every figure, compares the best ones.

Contenders of a contest run round-robin, and each round begins with another one, so
that a slow minute of the machine hits all of them. Every figure of every round goes
into the JSON; the table shows the best. A contender times only the work itself,
warms up before it, and checks afterwards that no row was lost: that is an error,
a slow run never is.

This file knows nothing of Virta, its peers or any workload.
"""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


class LostRows(Exception):
    """A contender does not hold the rows it took."""


class Unavailable(Exception):
    """This contender cannot take part here: not installed, or not able to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What a figure measures, and whether more of it is better."""

    name: str
    more_is_better: bool

    def best(self, values: Sequence[float]) -> float:
        return max(values) if self.more_is_better else min(values)

    def times_better(self, ours: float, theirs: float) -> float:
        """How many times better `ours` is; below 1 it is worse."""
        above, below = (ours, theirs) if self.more_is_better else (theirs, ours)
        return above / below if below else float("inf")


ROWS_PER_SECOND = Metric(name="rows/s", more_is_better=True)
MICROSECONDS = Metric(name="µs", more_is_better=False)
P50_MICROSECONDS = Metric(name="p50 µs", more_is_better=False)
P99_MICROSECONDS = Metric(name="p99 µs", more_is_better=False)
MILLISECONDS = Metric(name="ms", more_is_better=False)
MEBIBYTES = Metric(name="MiB", more_is_better=False)
MEBIBYTES_PER_SECOND = Metric(name="MiB/s", more_is_better=True)
TIMES_LIVE = Metric(name="× live rows", more_is_better=False)
CPU_PERCENT = Metric(name="idle CPU %", more_is_better=False)

Sample = Mapping[Metric, float]
Runner = Callable[[], Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What DESIGN asks of one contender: a ratio to another, or a limit of its own.

    Exactly one of the three bounds is set. The ratios need `against`: how many times
    better at least, or how many times its cost (for metrics where less is better) at most.
    """

    metric: Metric
    contender: str = "virta"
    against: str | None = None
    times_better: float | None = None
    times_cost: float | None = None
    limit: float | None = None

    def text(self) -> str:
        if self.times_better is not None:
            return f"{self.contender} ≥ {self.times_better:g}× {self.against} in {self.metric.name}"
        if self.times_cost is not None:
            return f"{self.contender} ≤ {self.times_cost:g}× {self.against} in {self.metric.name}"
        sign = "≥" if self.metric.more_is_better else "≤"
        return f"{self.contender} {sign} {self.limit:,.10g} {self.metric.name}"

    def judge(self, best: Mapping[str, Sample]) -> tuple[float, bool] | None:
        """The value reached and whether it is enough; nothing when a side did not run."""
        ours = best.get(self.contender, {}).get(self.metric)
        if ours is None:
            return None
        if self.against is None:
            return ours, self._within_limit(ours)
        theirs = best.get(self.against, {}).get(self.metric)
        if theirs is None:
            return None
        if self.times_cost is not None:
            return ours / theirs, ours <= self.times_cost * theirs
        assert self.times_better is not None
        ratio = self.metric.times_better(ours, theirs)
        return ratio, ratio >= self.times_better

    def _within_limit(self, value: float) -> bool:
        assert self.limit is not None
        return value >= self.limit if self.metric.more_is_better else value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One piece of work and those who do it."""

    workload: str
    title: str
    conditions: str  # durability, the form of the rows: whatever makes it a fair fight
    runners: Mapping[str, Runner]
    targets: Sequence[Target] = ()
    notes: Sequence[str] = ()
    rounds: int | None = None  # where one round is long enough


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a contest gave."""

    contest: Contest
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def best(self) -> dict[str, dict[Metric, float]]:
        return {
            name: {metric: metric.best([sample[metric] for sample in samples]) for metric in samples[0]}
            for name, samples in self.samples.items()
            if samples and name not in self.errors
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for."""

    directory: Path
    quick: bool = False
    rounds: int = 5
    scale: float = 1.0  # of the rows and keys that a workload names
    seconds: float = 15.0  # of what runs at a steady rate
    rows: int | None = None  # where a suite lets that be chosen


class Bench:
    """One run of the suite: hands out scratch directories and holds the contests."""

    def __init__(self, options: Options, report: Callable[[Outcome], None]) -> None:
        self.options = options
        self.outcomes: list[Outcome] = []
        self._report = report

    @property
    def quick(self) -> bool:
        return self.options.quick

    def scaled(self, count: int, *, least: int = 1000) -> int:
        """A number of rows or keys, in whole thousands, as large as this run wants it."""
        return max(least, int(count * self.options.scale) // 1000 * 1000)

    @property
    def rows(self) -> int | None:
        return self.options.rows

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A fresh directory on the file system under test, removed afterwards."""
        self.options.directory.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(dir=self.options.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def compete(self, contest: Contest) -> Outcome:
        """Run all rounds of a contest and report it."""
        outcome = Outcome(contest=contest)
        names = list(contest.runners)
        for number in range(contest.rounds or self.options.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                self._run_one(outcome, name)
        self.outcomes.append(outcome)
        self._report(outcome)
        return outcome

    def _run_one(self, outcome: Outcome, name: str) -> None:
        if name in outcome.errors or name in outcome.absent:
            return
        gc.collect()
        try:
            sample = outcome.contest.runners[name]()
        except (Unavailable, ImportError) as error:
            outcome.absent[name] = str(error)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            outcome.errors[name] = f"{type(error).__name__}: {error}"
        else:
            outcome.samples.setdefault(name, []).append(sample)

    @property
    def failed(self) -> bool:
        """Whether a contender lost rows or broke; timings never count."""
        return any(outcome.errors for outcome in self.outcomes)


def percentiles(nanoseconds: Sequence[int]) -> dict[Metric, float]:
    """p50 and p99 of single latencies, in microseconds."""
    values = np.asarray(nanoseconds, dtype=np.float64) / 1000
    return {
        P50_MICROSECONDS: float(np.percentile(values, 50)),
        P99_MICROSECONDS: float(np.percentile(values, 99)),
    }


def expect_rows(who: str, expected: int, found: int) -> None:
    """Raise when a contender does not hold what it took."""
    if expected != found:
        raise LostRows(f"{who} took {expected:,} rows and holds {found:,}")


def result(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain data for the JSON file."""
    contest, best = outcome.contest, outcome.best()
    return {
        "workload": contest.workload,
        "title": contest.title,
        "conditions": contest.conditions,
        "notes": list(contest.notes),
        "contenders": {
            name: {
                metric.name: {
                    "best": best[name][metric],
                    "rounds": [sample[metric] for sample in outcome.samples[name]],
                }
                for metric in best[name]
            }
            for name in best
        },
        "absent": outcome.absent,
        "errors": outcome.errors,
        "targets": [_judged(target, best) for target in contest.targets],
    }


def _judged(target: Target, best: Mapping[str, Sample]) -> dict[str, Any]:
    verdict = target.judge(best)
    return {
        "target": target.text(),
        "value": verdict[0] if verdict else None,
        "reached": verdict[1] if verdict else None,
    }
