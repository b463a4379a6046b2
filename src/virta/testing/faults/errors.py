"""The error campaign: a fixed scenario, run once for every file operation in it, which then fails.

The scenario appends at every durability, rolls, claims a producer name, is closed and
opened again. Whatever fails, and however:

 - the caller gets an UnavailableError, or the failure was harmless;
 - nothing acknowledged is lost, nothing is there twice, nothing half;
 - a failed sync stops all writing until the failure was seen to;
 - afterwards the log opens, every link holds, and appending goes on.
"""

from __future__ import annotations

import errno
import random
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from virta.errors import StorageFailed, UnavailableError, VirtaError
from virta.storage import state
from virta.storage.files import OperatingSystemFiles
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch
from virta.testing.files import Fault, FaultyFiles
from virta.testing.rig import Rig, check_chain
from virta.types import Durability

SEGMENT_BYTES = 3000
_HOWS = (("refused", errno.EIO), ("refused", errno.ENOSPC), ("half", errno.ENOSPC), ("after", errno.EIO))


@dataclass(slots=True)
class Outcome:
    """What the scenario's caller was told."""

    acknowledged: list[int] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)  # the caller was told that they are
    tried: list[int] = field(default_factory=list)
    refused: int = 0
    complaints: list[str] = field(default_factory=list)


def run(seed: int, seconds: float) -> Report:
    report = Report("errors", seed)
    deadline = time.monotonic() + seconds
    plans = list(_plans())
    random.Random(seed).shuffle(plans)
    for number, (durability, how, error) in enumerate(plans):
        if number and time.monotonic() > deadline:
            break
        one_plan(report, seed, durability, how, error, deadline)
        report.counts["plans"] += 1
    return report


def _plans() -> Iterator[tuple[Durability, str, int]]:
    for durability in Durability:
        for how, error in _HOWS:
            yield durability, how, error


def one_plan(
    report: Report, seed: int, durability: Durability, how: str, error: int, deadline: float = float("inf")
) -> None:
    """Fail operation 1, 2, 3, … until the scenario ends before it."""
    for times in (1, 3):
        at = 0
        while time.monotonic() < deadline:
            at += 1
            fault = Fault(at, error=error, how=how, times=times)  # type: ignore[arg-type]
            with scratch("virta-errors") as root:
                complaints = one_fault(root, durability, fault)
            report.counts["failed operations"] += bool(fault.hit)
            what = f"{fault.hit} ({errno.errorcode[error]}, {how}, {times} in a row) at {durability}"
            for complaint in complaints:
                report.violated(
                    f"{what}: {complaint}", f"--only errors --seed {seed}, operation {at} of {what}"
                )
            if not fault.hit:
                break


def one_fault(root: Path, durability: Durability, fault: Fault) -> list[str]:
    path = root / "p"
    Rig(path, OperatingSystemFiles()).create()
    files = FaultyFiles(fault)
    outcome = Outcome()
    try:
        _scenario(path, files, durability, outcome)
    except (OSError, AssertionError, LookupError, ValueError, TypeError, AttributeError):
        outcome.complaints.append("the caller got no error of ours:\n" + traceback.format_exc(limit=-8))
    return outcome.complaints + _afterwards(path, fault, outcome)


def _scenario(path: Path, files: FaultyFiles, durability: Durability, outcome: Outcome) -> None:
    for life in range(2):
        rig = Rig(path, files, segment_bytes=SEGMENT_BYTES)
        try:
            _life(rig, life, durability, outcome)
        except VirtaError as error:
            _judge(error, outcome)
        try:
            rig.close()
        except VirtaError as error:
            _judge(error, outcome)
            _note_lost(error, outcome)
        finally:
            rig.abandon()


def _life(rig: Rig, life: int, durability: Durability, outcome: Outcome) -> None:
    producer = None
    for step in range(8):
        first = 100 * life + 10 * step
        numbers = list(range(first, first + 1 + step % 3))
        if step == 3:
            try:
                producer = rig.claim(f"name {life}")
            except VirtaError as error:
                _judge(error, outcome)
        use_producer = producer if step == 4 else None
        outcome.tried += numbers
        for _ in range(3):  # as a writer does that tries again
            try:
                rig.append(numbers, durability, producer=use_producer)
            except VirtaError as error:
                _judge(error, outcome)
                _note_lost(error, outcome)
                if use_producer is None:
                    break
            else:
                outcome.acknowledged += numbers
                break
        if step == 5:
            try:
                rig.partition.dump()
                rig.read_out()
            except VirtaError as error:
                _judge(error, outcome)
                _note_lost(error, outcome)


def _judge(error: VirtaError, outcome: Outcome) -> None:
    outcome.refused += 1
    if not isinstance(error, UnavailableError):
        text = "".join(traceback.format_exception(error, limit=-8))
        outcome.complaints.append(f"not an UnavailableError, but {type(error).__name__}:\n{text}")


def _note_lost(error: VirtaError, outcome: Outcome) -> None:
    """Rows acknowledged in memory may be lost when the caller is told so."""
    if isinstance(error, StorageFailed) and "are lost" in error.message:
        outcome.lost.update(outcome.acknowledged)


def _afterwards(path: Path, fault: Fault, outcome: Outcome) -> list[str]:
    """The fault is gone: what is there, and does it go on?"""
    complaints: list[str] = []
    rig = Rig(path, OperatingSystemFiles(), segment_bytes=SEGMENT_BYTES)
    try:
        failed = bool(rig.partition._view.state.flags & state.FAILED)
        # with more faults than one, the note itself may have failed
        if fault.hit.startswith("sync") and ".stats" not in fault.hit and fault.times == 1 and not failed:
            complaints.append("a failed sync is not noted for every process")
        if not failed:
            with rig.partition.writing():
                pass
        found = rig.read_out()
        complaints += _compare(found.numbers, outcome)
        if failed:
            complaints += _expect_refusal(rig)
        else:
            rig.append([9999], Durability.DISK)
            if rig.read_out().numbers != (*found.numbers, 9999):
                complaints.append("appending does not go on as it should")
        check_chain(rig.partition)
    except (VirtaError, OSError) as error:
        complaints.append("afterwards:\n" + "".join(traceback.format_exception(error, limit=-8)))
    finally:
        rig.abandon()
    return complaints


def _expect_refusal(rig: Rig) -> list[str]:
    try:
        rig.append([9999], Durability.OS)
    except StorageFailed:
        return []
    return ["a row was appended after a failed sync"]


def _compare(numbers: tuple[int, ...], outcome: Outcome) -> list[str]:
    complaints = []
    there = set(numbers)
    if len(there) != len(numbers):
        complaints.append(f"rows are there twice: {numbers}")
    missing = [n for n in outcome.acknowledged if n not in there and n not in outcome.lost]
    if missing:
        complaints.append(f"acknowledged rows are missing: {missing}")
    if not there <= set(outcome.tried):
        complaints.append(f"rows nobody wrote: {sorted(there - set(outcome.tried))}")
    if list(numbers) != sorted(numbers):
        complaints.append(f"rows are out of order: {numbers}")
    return complaints
