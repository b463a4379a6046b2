"""The power-loss campaign on a whole log: topics that are made, altered and written to side by side.

As `powerloss`, but through the library's front door: whatever the catalog, the topics
and their partitions write is recorded together. What was answered before the cut has
to be there afterwards: a topic that was made, rows acknowledged at `disk`.
"""

from __future__ import annotations

import contextlib
import random
import traceback
from pathlib import Path

from virta.errors import VirtaError
from virta.log import Log
from virta.memory.registry import registry
from virta.settings import Settings
from virta.storage.files import Files
from virta.testing import power
from virta.testing.files import Killed, Record, RecordingFiles

# Nothing happens by itself at moments that differ from run to run.
_QUIET = Settings(dump_interval_ms=3_600_000, sync_interval_seconds=3600.0)
_FIRST_BOOT, _NEXT_BOOT = b"\x01" * 16, b"\x02" * 16
_SMALLEST_SEGMENT = 64 * 1024
_TEXT = "some text that fills a segment in a few rows " * 220


def open_log(root: Path, files: Files) -> Log:
    return Log(root / "log", files=files, settings=_QUIET)


def make_history(root: Path, rng: random.Random, steps: int) -> Record:
    """Marks are (topic, rows that are promised); row n has offset n."""
    root.mkdir(parents=True)
    files = RecordingFiles(root, boot_id=_FIRST_BOOT)
    log = open_log(root, files)
    written: dict[str, int] = {}
    for _ in range(steps):
        if rng.random() < 0.25:
            files.kill_in = rng.randrange(30)
        try:
            _one_step(log, files, rng, written)
        except Killed:
            _abandon(log)
            files.revive()
            log = open_log(root, files)
            for name in log.topics():
                with log.topic(name).partition(0).stored.writing():
                    pass  # recovery may bring rows back
                written[name] = log.topic(name).next_offset
    files.kill_in = None
    record = _recorded(files)
    log.close()
    return record


def _recorded(files: RecordingFiles) -> Record:
    """What has been recorded so far."""
    record = files.record
    return Record(record.root, record.directories, record.names, record.contents, list(record.events))


def change_cut_short(root: Path, kill_in: int) -> Record | None:
    """A change killed at its n-th operation, and a row somebody else appends; None if it came through."""
    root.mkdir(parents=True)
    files = RecordingFiles(root, boot_id=_FIRST_BOOT)
    log = open_log(root, files)
    name = "changed"
    topic = log.create_topic(name, {"n": int, "text": str}, durability="disk", segment_bytes="64 KiB")
    topic.append({"n": 0, "text": _TEXT})
    files.mark((name, 1))
    files.kill_in = kill_in
    try:
        topic.alter(retention_rows=1000)
    except Killed:
        _abandon(log)
        files.revive()
    else:
        files.kill_in = None
        log.close()
        return None
    log = open_log(root, files)
    log.topic(name).append({"n": 1, "text": _TEXT})
    files.mark((name, 2))
    record = _recorded(files)
    log.close()
    return record


def _one_step(log: Log, files: RecordingFiles, rng: random.Random, written: dict[str, int]) -> None:
    chance = rng.random()
    if len(written) < 2 or (chance < 0.1 and len(written) < 4):
        name = f"topic {len(written)}"
        durability = "os" if len(written) % 2 else "disk"
        log.create_topic(name, {"n": int, "text": str}, durability=durability, segment_bytes="64 KiB")
        written[name] = 0
        files.mark((name, 0))
        return
    name = rng.choice(list(written))
    if chance < 0.2:
        log.topic(name).alter(retention_rows=rng.randint(1000, 10_000))
        return
    count = rng.choice((1, 1, 3))
    ack = log.topic(name).append([{"n": written[name] + n, "text": _TEXT} for n in range(count)])
    written[name] += count
    if ack.durability == "disk":
        files.mark((name, written[name]))


def _abandon(log: Log) -> None:
    """Let go of everything, as the end of a process does."""
    for key in log._held:
        with contextlib.suppress(Killed):
            registry.release_partition(key)
    log._held.clear()
    log.close()


def check_state(state: power.State, root: Path) -> list[str]:
    """What is wrong with the log after this power loss."""
    promised: dict[str, int] = {}
    for name, rows in state.marks:
        promised[name] = max(rows, promised.get(name, 0))
    if not promised:
        return []
    state.materialise(root)
    complaints: list[str] = []
    log = None
    try:
        log = open_log(root, RecordingFiles(root, boot_id=_NEXT_BOOT))
        for name, rows in promised.items():
            complaints += _check_topic(log, name, rows)
    except (VirtaError, OSError, AssertionError, ValueError, LookupError):
        complaints.append(traceback.format_exc(limit=-6))
    finally:
        if log is not None:
            log.close()
    return complaints


def _check_topic(log: Log, name: str, promised: int) -> list[str]:
    topic = log.topic(name)
    before = topic.to_arrow()["n"].to_pylist()
    if before != list(range(len(before))):
        return [f"{name}: the rows are not the first ones: {before}"]
    if len(before) < promised:
        return [f"{name}: {promised} rows were acknowledged at disk, but {len(before)} are there"]
    topic.append({"n": len(before), "text": _TEXT})
    after = topic.to_arrow()["n"].to_pylist()
    if after != list(range(len(before) + 1)):
        return [f"{name}: after one more row the rows are {after}"]
    report = topic.verify()
    return [] if report.ok else [f"{name}: verify says {report.problems}"]
