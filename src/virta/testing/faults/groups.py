"""The groups campaign: members in processes of their own, local and at a broker, killed and stopped.

Two groups read one topic while a writer appends to it: "noting" works row by row and notes
every batch with its partition and the epoch it held it by, "causing" sends what it reads into
another topic, exactly once. Members are killed at random moments, stopped for longer than
their session and woken again, and started anew; so is the broker. Then what is left is read to
its end, and held against the notes:

 - every row was worked on by "noting";
 - "causing" caused each row once, whoever died in between;
 - in one epoch a partition had one member, by the notes and by the rows of `__offsets`;
 - committed positions never went back, and neither did their epochs;
 - every chain verifies.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import virta
from virta.errors import Fenced, UnavailableError
from virta.log import Log
from virta.metadata.internal import OFFSETS
from virta.testing.faults.brokers import Broker
from virta.testing.faults.processes import fork, in_child, kill
from virta.testing.faults.report import Report
from virta.testing.faults.rounds import in_rounds

ROUND_SECONDS = 6.0
PARTITIONS = 4
MEMBERS = 3  # of each group
SESSION_SECONDS = 0.6
GROUPS = ("noting", "causing")
# A round that cannot be read to its end within this time, with nobody in its way, is stuck.
_LIVENESS_SECONDS = 60.0


def run(seed: int, seconds: float) -> Report:
    report = Report("groups", seed)

    def one_round(root: Path, number: int, seconds: float) -> None:
        _Round(report, root, seed, number).run(seconds)

    return in_rounds(report, seconds, ROUND_SECONDS, one_round)


@dataclass(slots=True)
class _Child:
    name: str
    group: str
    stopped_until: float = 0.0


@dataclass(slots=True)
class _Round:
    report: Report
    root: Path
    seed: int
    number: int
    rng: random.Random = field(init=False)
    broker: Broker | None = field(init=False)
    children: dict[int, _Child] = field(default_factory=dict)
    started: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/{self.number}")
        # by turns: processes alone on a directory, and with a broker among them
        self.broker = Broker(self.root / "events") if self.number % 2 == 0 else None

    def run(self, seconds: float) -> None:
        in_child(lambda: _prepare(self.root))
        if self.broker is not None:
            self.broker.start()
        writer = fork(lambda: _complaining(self.root, "writer", lambda: _write(self.root)))
        try:
            for group in GROUPS * MEMBERS:
                self._start(group)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(self.rng.uniform(0.02, 0.25))
                self._disturb()
        finally:
            for pid in [*self.children, writer]:
                kill(pid)
            if self.broker is not None and self.broker.is_alive():
                self.broker.end(signal.SIGKILL)
        self._check()

    def _start(self, group: str) -> None:
        self.started += 1
        name = f"{group}-{self.started}"
        address = str(self.root / "events")
        if self.broker is not None and self.rng.random() < 0.6:
            address = f"virta://127.0.0.1:{self.broker.port}?timeout=20s"
        member = _note if group == "noting" else _cause
        pid = fork(lambda: _complaining(self.root, name, lambda: member(self.root, address, name)))
        self.children[pid] = _Child(name, group)

    def _disturb(self) -> None:
        now = time.monotonic()
        for pid, child in self.children.items():
            if child.stopped_until and child.stopped_until <= now:
                os.kill(pid, signal.SIGCONT)
                child.stopped_until = 0.0
        pid = self.rng.choice(list(self.children))
        child = self.children[pid]
        chance = self.rng.random()
        if chance < 0.55:
            kill(pid)
            del self.children[pid]
            self._start(child.group)
            self.report.counts["members killed"] += 1
        elif chance < 0.8 and not child.stopped_until:
            os.kill(pid, signal.SIGSTOP)
            child.stopped_until = now + self.rng.uniform(0.1, 3 * SESSION_SECONDS)
            self.report.counts["members stopped"] += 1
        elif chance < 0.85 and self.broker is not None:
            self.broker.end(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
            self.broker.start()
            self.report.counts["brokers ended"] += 1

    def _check(self) -> None:
        replay = (
            f"--only groups --seed {self.seed} (round {self.number}; real processes, "
            "so it may take several tries)"
        )
        in_child(lambda: _complaining(self.root, "drain", lambda: _drain(self.root)))
        in_child(lambda: _complaining(self.root, "check", lambda: _check(self.root)))
        for path in sorted(self.root.glob("*.count")):
            self.report.counts[path.stem] += int(path.read_text())
        for path in sorted(self.root.glob("*.complaint")):
            self.report.violated(f"{path.stem}: {path.read_text().strip()}", replay)


# -- in children -----------------------------------------------------------------------------------


def _complaining(root: Path, name: str, act: Callable[[], None]) -> None:
    # that partitions move is what is wanted here
    logging.getLogger("virta.groups").setLevel(logging.ERROR)
    try:
        act()
    except Exception:
        (root / f"{name}.complaint").write_text(traceback.format_exc())


def _prepare(root: Path) -> None:
    with Log(root / "events") as log:
        log.create_topic("numbers", {"n": int}, partitions=PARTITIONS, keys=["n"])
        log.create_topic("caused", {"n": int}, partitions=2, keys=["n"])


def _write(root: Path) -> None:
    with Log(root / "events") as log:
        numbers = log.topic("numbers")
        n = 0
        while True:
            numbers.append([{"n": n + more} for more in range(20)])
            n += 20
            time.sleep(0.004)


def _opened(address: str, act: Callable[[Any], None]) -> None:
    """Read until killed. A broker that is away, or a session that ended, begins anew."""
    while True:
        try:
            with virta.open(address) as log:
                act(log)
        except (UnavailableError, Fenced):
            time.sleep(0.05)


def _note(root: Path, address: str, name: str) -> None:
    notes = os.open(root / f"{name}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def read(log: Any) -> None:
        with log.topic("numbers").reader(group="noting", session_timeout=SESSION_SECONDS) as reader:
            for batch in reader.batches(50):
                _note_batch(notes, reader, batch)

    _opened(address, read)


def _note_batch(notes: int, reader: Any, batch: Any) -> None:
    """Before the batch is finished: one write, whole or not there."""
    number = reader.partition
    rows = " ".join(map(str, batch.column("n").to_pylist()))
    os.write(notes, f"{number} {reader.epochs[number]} {reader.member} {rows}\n".encode())


def _cause(_: Path, address: str, name: str) -> None:  # noqa: ARG001 - as the others have it
    def read(log: Any) -> None:
        numbers, caused = log.topic("numbers"), log.topic("caused")
        with numbers.reader(group="causing", into=caused, session_timeout=SESSION_SECONDS) as reader:
            for batch in reader.batches(50):
                reader.send(batch.select(["n"]))

    _opened(address, read)


# -- afterwards ------------------------------------------------------------------------------------


def _drain(root: Path) -> None:
    """Nobody is in the way any more: both groups come to the end."""
    notes = os.open(root / "drain.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    deadline = time.monotonic() + _LIVENESS_SECONDS
    with Log(root / "events") as log:
        numbers, caused = log.topic("numbers"), log.topic("caused")
        for group in GROUPS:
            into = caused if group == "causing" else None
            with numbers.reader(group=group, into=into, session_timeout=SESSION_SECONDS) as reader:
                while len(reader.partitions) < PARTITIONS or reader.lag:
                    for batch in reader.batches(500, stop_when_idle=0.2):
                        if into is None:
                            _note_batch(notes, reader, batch)
                        else:
                            reader.send(batch.select(["n"]))
                    if time.monotonic() > deadline:
                        raise TimeoutError(
                            f"group {group!r} did not come to the end: {reader!r} {reader.lag}"
                        )


def _check(root: Path) -> None:
    complaints: list[str] = []
    noted: set[int] = set()
    holders: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    for path in root.glob("*.notes"):
        for line in path.read_text().splitlines():
            number, epoch, member, *rows = line.split(" ")
            holders[int(number), int(epoch)].add(member)
            noted.update(map(int, rows))
    with Log(root / "events") as log:
        there = set(log.topic("numbers").to_arrow()["n"].to_pylist())
        caused = log.topic("caused").to_arrow()["n"].to_pylist()
        complaints += _positions(log, holders)
        for name in ("numbers", "caused"):
            report = log.topic(name).verify()
            if not report.ok:
                complaints.append(f"{name}: verify says {report.problems}")
    if missing := there - noted:
        complaints.append(f"{len(missing)} rows were never worked on: {sorted(missing)[:5]}")
    if len(caused) != len(set(caused)):
        twice = sorted(n for n in set(caused) if caused.count(n) > 1)
        complaints.append(f"{len(twice)} rows were caused more than once: {twice[:5]}")
    if set(caused) != there:
        complaints.append(
            f"{len(there - set(caused))} rows were never caused, {len(set(caused) - there)} never there"
        )
    (root / "rows.count").write_text(str(len(there)))
    (root / "assignments.count").write_text(str(len(holders)))
    if complaints:
        raise AssertionError("\n".join(complaints))


def _positions(log: Log, holders: defaultdict[tuple[int, int], set[str]]) -> list[str]:
    complaints: list[str] = []
    if OFFSETS not in log.topics(internal=True):
        return complaints  # the round was over before there was a row
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    committing: defaultdict[tuple[str, int, int], set[str]] = defaultdict(set)
    for row in log.topic(OFFSETS):
        place = row["group"], row["partition"]
        before = offsets.get(place, (0, 0))
        now = row["epoch"], row["offset"]
        if now[0] < before[0] or now[1] < before[1]:
            complaints.append(f"a position of {place} went back: {before} to {now} (epoch, offset)")
        offsets[place] = now
        committing[*place, row["epoch"]].add(row["member"])
        if row["group"] == "noting":
            holders[row["partition"], row["epoch"]].add(row["member"])
    for held, members in [*holders.items(), *committing.items()]:
        if len(members) > 1:
            complaints.append(f"{held} (partition, epoch) was held by {sorted(members)}")
    return complaints
