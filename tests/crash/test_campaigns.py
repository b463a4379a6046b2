"""Short slices of the fault campaigns: the same seeds every time, a few seconds together."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from virta.testing import power
from virta.testing.faults import (
    errors,
    groups,
    kill,
    kill_points,
    loop,
    mutate,
    pipelines,
    powerloss,
    powerloss_log,
)
from virta.testing.faults.__main__ import main
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch
from virta.testing.files import Fault
from virta.types import Durability

# forking is what the campaigns are about; the children touch nothing that a thread of ours may hold
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def assert_clean(report: Report) -> None:
    assert report.ok, "\n".join(report.lines())


def test_every_state_of_a_short_history_after_a_power_loss() -> None:
    report = Report("power", 1)
    with scratch("virta-power") as root:
        powerloss.one_history(report, root, 1, 0, time.monotonic() + 3, steps=2)
    assert_clean(report)
    assert report.counts["states"] > 50


@pytest.mark.parametrize("seed", range(3))
def test_states_of_longer_histories(seed: int) -> None:
    report = Report("power", seed)
    with scratch("virta-power") as root:
        rng = random.Random(seed)
        record = powerloss.make_history(root / "live", rng, 12)
        for state in power.sample(record, rng, 60):
            complaints = powerloss.check_state(state, root / "cut", rng, report, again=rng.random() < 0.1)
            assert complaints == [], (state.cut, state.fates)


def test_a_whole_log_after_a_power_loss() -> None:
    with scratch("virta-power") as root:
        rng = random.Random(5)
        record = powerloss_log.make_history(root / "live", rng, 12)
        for state in power.sample(record, rng, 60):
            assert powerloss_log.check_state(state, root / "cut") == [], (state.cut, state.fates)


def test_a_change_that_another_process_finishes_outlasts_a_power_loss() -> None:
    """Killed anywhere in a change; somebody else then appends, which finishes it; then the power goes."""
    rng = random.Random(1)
    for kill_in in range(40):
        with scratch("virta-power") as root:
            record = powerloss_log.change_cut_short(root / "live", kill_in)
            if record is None:
                break
            for state in itertools.chain(
                power.sample(record, rng, 4), (power.after_all(record, rng) for _ in range(8))
            ):
                assert powerloss_log.check_state(state, root / "cut") == [], (kill_in, state.fates)
    assert 5 < kill_in < 39


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("how", ["refused", "half", "after"])
def test_operations_that_fail(durability: Durability, how: str) -> None:
    """Every operation in turn takes minutes; these are every 23rd, from another one on for each."""
    first = 1 + (len(durability) * 7 + len(how)) % 23
    for at in range(first, 400, 23):
        with scratch("virta-errors") as root:
            fault = Fault(at, how=how)  # type: ignore[arg-type]
            assert errors.one_fault(root, durability, fault) == [], fault.hit


@pytest.mark.parametrize("at", [12, 31, 47, 66, 85, 104, 123, 140])
def test_killed_at_an_operation_while_another_process_looks_on(at: int) -> None:
    with scratch("virta-points") as root:
        _, complaints = kill_points.one_point(root, Durability.DISK, "killed", at)
        assert complaints == []


@pytest.mark.slow
def test_killed_at_random() -> None:
    report = Report("kill", 1)
    with scratch("virta-kill") as root:
        kill.one_round(report, root, 1, 0, 2.0)
    assert_clean(report)
    assert report.counts["writers killed"] > 3


@pytest.mark.slow
def test_members_of_groups_killed_at_random() -> None:
    report = groups.run(3, 7.0)
    assert_clean(report)
    assert report.counts["assignments"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked", "parquet upsert"])
def test_pipelines_killed_at_random(kind: str) -> None:
    report = Report("pipelines", 1)
    pipelines.one_round(report, kind, 1, 0, lives=4)
    assert_clean(report)
    assert report.counts["drivers killed"] >= 1


@pytest.mark.slow
def test_a_pipeline_on_spark_killed_at_random(spark: object) -> None:
    """`spark` is not used: where it cannot start, this cannot either."""
    report = Report("pipelines", 3)
    pipelines.one_round(report, "masked", 3, 0, master="local[2,4]", lives=2)
    assert_clean(report)


def test_mutations(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    rng = random.Random(4)
    for target in (mutate.PartitionTarget(tmp_path / "partition"), mutate.LogTarget(tmp_path / "log")):
        for _ in range(150):
            mutation = mutate.mutate(target.files, rng)
            assert target.attempt(mutation, rng, counts) == []
    assert counts["readers told of damage"] > 50


def test_the_loop_device_campaign_says_why_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.os, "geteuid", lambda: 1000)
    report = loop.run(1, 1.0)
    assert report.ok and report.lines() == ["  skipped: a loop device needs root"]


def test_the_command_tells_what_was_violated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(seed: int, seconds: float) -> Report:
        report = Report("loop", seed)
        report.violated("a row is gone", "--seed 3")
        return report

    monkeypatch.setattr(loop, "run", run)
    assert main(["--only", "loop", "--seed", "3", "--seconds", "1"]) == 1
    said = capsys.readouterr().out
    assert "seed 3" in said and "VIOLATION a row is gone" in said and "again: --seed 3" in said
