"""Killed at every file operation in turn, while another process looks on and then takes over.

The victim runs a fixed scenario (appends, rolls, a claim, a producer's rows) and dies at
its n-th file operation, or in the middle of its n-th write. The other process has the
partition open all the time, for reading and for writing; what it knows is as old as the
victim's start or as its latest step. It has to see a valid history, go on appending, and
find all that was acknowledged; so has a third one that opens the directory afterwards.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
from pathlib import Path

from virta.errors import VirtaError
from virta.storage.files import OperatingSystemFiles
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch
from virta.testing.files import Fault, FaultyFiles
from virta.testing.rig import Rig, check_chain
from virta.types import Durability

SEGMENT_BYTES = 3000
_STEPS = 12


def run(report: Report, seed: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    plans = [(durability, how) for durability in Durability for how in ("killed", "half killed")]
    random.Random(seed).shuffle(plans)
    for durability, how in plans:
        at = 0
        while time.monotonic() < deadline:
            at += 1
            with scratch("virta-points") as root:
                survived, complaints = one_point(root, durability, how, at)
            report.counts["operations killed at"] += not survived
            for complaint in complaints:
                report.violated(
                    f"{how} at operation {at}, {durability}: {complaint}", f"--only kill --seed {seed}"
                )
            if survived:
                break


def one_point(root: Path, durability: Durability, how: str, at: int) -> tuple[bool, list[str]]:
    """Whether the victim lived to the end, and what is wrong afterwards."""
    path = root / "p"
    Rig(path, OperatingSystemFiles()).create()
    victim = os.fork()
    if not victim:
        _die(path, durability, how, at)
    observer = Rig(path, OperatingSystemFiles(), segment_bytes=SEGMENT_BYTES)
    complaints: list[str] = []
    try:
        _look_on(observer, victim, complaints)
        survived = _wait_for(victim) == 0
        complaints += _take_over(observer, root, durability)
    except (VirtaError, OSError, AssertionError, ValueError):
        complaints.append(traceback.format_exc(limit=-8))
        survived = False
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
    finally:
        observer.abandon()
    return survived, complaints


def _wait_for(victim: int) -> int:
    """Its exit status; it has been killed, or ends soon."""
    _, status = os.waitpid(victim, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return -1
    if status:
        raise AssertionError(f"the victim ended with {status}")
    return 0


# -- the victim -------------------------------------------------------------------------------------


def _die(path: Path, durability: Durability, how: str, at: int) -> None:
    """The scenario, in a child. It stops before each step until the other has looked (a file says so)."""
    code = 1
    try:
        kind = "write" if how == "half killed" else "*"
        files = FaultyFiles(Fault(at, kind=kind, how=how))  # type: ignore[arg-type]
        rig = Rig(path, files, segment_bytes=SEGMENT_BYTES)
        notes = os.open(path.parent / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        number = 0
        producer = None
        for step in range(_STEPS):
            if step == 4:
                producer = rig.claim("victim")
            numbers = range(number, number + 1 + step % 3)
            number = numbers.stop
            os.write(notes, f"t {numbers.start} {numbers.stop}\n".encode())
            if step == 5 and producer is not None:
                rig.append(numbers, durability, producer=producer)
            else:
                rig.append(numbers, durability)
            os.write(notes, f"a {numbers.start} {numbers.stop}\n".encode())
        rig.partition.sync()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


# -- the one who takes over ---------------------------------------------------------------------------


def _look_on(observer: Rig, victim: int, complaints: list[str]) -> None:
    """Read, and write a little, while the victim is at it."""
    before: tuple[int, ...] = ()
    marked = -1
    for _ in range(3):
        found = observer.read_out().numbers
        if found[: len(before)] != before:
            complaints.append(f"{found[:30]} after {before[:30]}")
        before = found
        observer.append([marked])
        marked -= 1
        before = observer.read_out().numbers
        if os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return


def _take_over(observer: Rig, root: Path, durability: Durability) -> list[str]:
    observer.append([-100])
    found = observer.read_out().numbers
    complaints = _compare(found, root / "notes", durability)
    check_chain(observer.partition)
    with observer.partition.view() as view:
        known = view.head
    third = Rig(observer.paths.root, OperatingSystemFiles(), segment_bytes=SEGMENT_BYTES)
    try:
        if third.read_out().numbers != found:
            complaints.append(f"another process sees {third.read_out().numbers}, this one {found}")
        with third.partition.view() as view:
            if view.head != known:
                complaints.append("another process sees another head")
        third.append([-200], Durability.DISK)
    finally:
        third.abandon()
    observer.append([-300], Durability.DISK)
    if observer.read_out().numbers != (*found, -200, -300):
        complaints.append("appending in turn does not go on as it should")
    check_chain(observer.partition)
    return complaints


def _compare(found: tuple[int, ...], notes: Path, durability: Durability) -> list[str]:
    complaints = []
    there = [number for number in found if number >= 0]
    if there != sorted(set(there)):
        complaints.append(f"rows out of order, or twice: {there}")
    last = None
    for line in notes.read_text().splitlines() if notes.exists() else ():
        what, start, stop = line.split()
        rows = set(range(int(start), int(stop)))
        here = rows & set(there)
        if what == "a" and here != rows and durability is not Durability.MEMORY:
            complaints.append(f"acknowledged rows {start} to {stop} are not all there: {there}")
        if here and here != rows:
            complaints.append(f"half of the rows {start} to {stop} is there: {there}")
        last = int(stop)
    if there and last is not None and there[-1] >= last:
        complaints.append(f"rows nobody wrote: {there}")
    return complaints
