"""The power-loss campaign: every state a cut may leave is opened with the real code.

A history of appends, syncs and rolls is recorded once. Each state made from it is put
into a directory and opened under another boot id:

 1. a reader that opens it before any writer sees the first k rows, all whole;
 2. a writer opens it: what was acknowledged at `disk` before the cut is there, every
    link holds, and appending goes on;
 3. the reader sees what it saw, and the new row;
 4. sometimes the power fails again during all that.
"""

from __future__ import annotations

import random
import time
import traceback
from pathlib import Path

from virta.errors import VirtaError
from virta.testing import power
from virta.testing.faults import powerloss_log
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch
from virta.testing.files import Killed, Record, RecordingFiles
from virta.testing.rig import ReadOut, Rig, check_chain
from virta.types import Durability

_BOOTS = [bytes([number]) * 16 for number in range(1, 5)]
SEGMENT_BYTES = 2400  # four or five blocks


def run(seed: int, seconds: float) -> Report:
    report = Report("power", seed)
    deadline = time.monotonic() + seconds
    number = 0
    while number == 0 or (time.monotonic() < deadline and len(report.violations) < 50):
        with scratch("virta-power") as root:
            if number % 3 == 2:
                one_log_history(report, root, seed, number, deadline)
            else:
                one_history(report, root, seed, number, min(deadline, time.monotonic() + seconds / 4))
        number += 1
    return report


def one_history(report: Report, root: Path, seed: int, number: int, deadline: float, steps: int = 0) -> None:
    rng = random.Random(f"{seed}/{number}")
    record = make_history(root / "live", rng, steps or (4 if number % 2 == 0 else rng.randint(5, 14)))
    report.counts["histories"] += 1
    report.counts["recorded events"] += len(record.events)
    found = list(power.states(record, rng, samples=6))
    if number:
        rng.shuffle(found)  # when time is short, a fair sample
    for index, state in enumerate(found):
        if time.monotonic() > deadline and index > 50:
            return
        replay = f"--only power --seed {seed}, history {number}, cut {state.cut}, {state.fates}"
        report.counts["states"] += 1
        again = rng.random() < 0.1
        for complaint in check_state(state, root / "cut", rng, report, again=again):
            report.violated(complaint, replay)


def one_log_history(report: Report, root: Path, seed: int, number: int, deadline: float) -> None:
    rng = random.Random(f"{seed}/{number}")
    record = powerloss_log.make_history(root / "live", rng, rng.randint(8, 25))
    report.counts["histories of whole logs"] += 1
    report.counts["recorded events"] += len(record.events)
    for index, state in enumerate(power.sample(record, rng, 400)):
        if time.monotonic() > deadline and index > 20:
            return
        report.counts["states of whole logs"] += 1
        replay = f"--only power --seed {seed}, history {number}, cut {state.cut}, {state.fates}"
        for complaint in powerloss_log.check_state(state, root / "cut"):
            report.violated(complaint, replay)


def make_history(root: Path, rng: random.Random, steps: int) -> Record:
    """Row n is at offset n; each disk acknowledgement leaves a mark with the rows it covers."""
    root.mkdir(parents=True)
    files = RecordingFiles(root, boot_id=_BOOTS[0])
    rig = Rig(root / "p", files, segment_bytes=SEGMENT_BYTES).create()
    files.sync_directory(root)
    files.mark(0)
    written = 0
    for step in range(steps):
        if rng.random() < 0.2:
            files.kill_in = rng.randrange(40)
        try:
            written = _one_step(rig, files, rng, written, step)
        except Killed:
            rig.abandon()
            files.revive()
            with rig.partition.writing():
                pass  # recovery may bring rows back
            written = rig.partition.next_offset
            rig.abandon()
        if rng.random() < 0.15:  # another process takes over
            rig.abandon()
    rig.abandon()
    return files.record


def _one_step(rig: Rig, files: RecordingFiles, rng: random.Random, written: int, step: int) -> int:
    rows = rng.choice((1, 1, 2, 5, 40))
    durability = rng.choice((Durability.OS, Durability.DISK))
    rig.append(range(written, written + rows), durability)
    written += rows
    if durability is Durability.DISK:
        files.mark(written)
    if rng.random() < 0.15:
        rig.claim(f"name-{step % 2}")
    if rng.random() < 0.1:
        rig.partition.sync()
        files.mark(written)
    return written


def check_state(
    state: power.State, root: Path, rng: random.Random, report: Report, *, again: bool = False, boot: int = 1
) -> list[str]:
    """What is wrong with the log after this power loss: nothing, it is hoped."""
    state.materialise(root)
    if not state.marks:
        return []  # the partition was not finished, so nobody was told that it is there
    promised = max(state.marks)
    complaints: list[str] = []
    files = RecordingFiles(root, boot_id=_BOOTS[boot])
    reader = Rig(root / "p", files, segment_bytes=SEGMENT_BYTES)
    writer = Rig(root / "p", files, segment_bytes=SEGMENT_BYTES)
    try:
        before = _look(reader, "before recovery", complaints)
        if before is not None and len(before.numbers) < promised:
            complaints.append(f"before recovery {len(before.numbers)} rows, promised {promised}")
        kept = _write_on(writer, promised, files, complaints)
        after = _look(reader, "after recovery", complaints)
        if (
            before is not None
            and after is not None
            and after.numbers[: len(before.numbers)] != before.numbers
        ):
            complaints.append("rows that a reader saw before recovery are gone")
        if after is not None and len(after.numbers) != kept + 3:
            complaints.append(f"the reader sees {len(after.numbers)} rows, the writer {kept + 3}")
    except (VirtaError, OSError, AssertionError, ValueError) as error:
        complaints.append(f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}")
    finally:
        reader.abandon()
        writer.abandon()
    if again and not complaints and boot + 1 < len(_BOOTS):
        complaints += _lose_power_again(files.record, promised, root, rng, report, boot + 1)
    return complaints


def _look(rig: Rig, when: str, complaints: list[str]) -> ReadOut | None:
    try:
        found = rig.read_out()
    except (VirtaError, OSError) as error:
        complaints.append(
            f"reading {when}: {type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}"
        )
        return None
    if found.numbers != tuple(range(len(found.numbers))):
        complaints.append(f"{when} the rows are not the first ones: {found.numbers[:20]}…")
    return found


def _write_on(writer: Rig, promised: int, files: RecordingFiles, complaints: list[str]) -> int:
    """Open for writing, check what is there, append three rows; how many rows were kept."""
    with writer.partition.writing():
        pass  # recovery
    found = _look(writer, "in the recovered log", complaints)
    kept = len(found.numbers) if found is not None else 0
    if kept < promised:
        complaints.append(f"{promised} rows were acknowledged at disk, but {kept} are there after recovery")
    check_chain(writer.partition)
    writer.append([kept], Durability.DISK)
    files.mark(kept + 1)
    writer.append([kept + 1, kept + 2], Durability.OS)
    check_chain(writer.partition)
    return kept


def _lose_power_again(
    record: Record, promised: int, root: Path, rng: random.Random, report: Report, boot: int
) -> list[str]:
    complaints = []
    for state in power.sample(record, rng, 6):
        state.marks.insert(0, promised)
        report.counts["states of a second loss"] += 1
        inner = root.with_name(f"{root.name}-{boot}")
        found = check_state(state, inner, rng, report, again=rng.random() < 0.2, boot=boot)
        complaints += [f"after another loss at {state.cut} ({state.fates}): {what}" for what in found]
    return complaints
