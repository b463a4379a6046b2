"""The kill campaign: eight writers and three readers on one directory, killed at random moments.

Every writer is a process of its own. It notes in a file what it is about to append and,
after the acknowledgement, that it was acknowledged; those files outlive it. Its next
life goes on where the last one stopped: plain writers with new rows, named producers by
asking for `last_sequence`. Readers follow the end, check every block and note what they
saw. At the end of a round all are killed and the directory is held against the notes:

 - every acknowledged row is there once, and each writer's rows are in its order;
 - what was tried in one append is there whole or not at all;
 - a named producer's rows are exactly 0, 1, 2, …, whatever was sent twice;
 - what a reader ever saw is still there, at its place, under its hash;
 - every chain verifies and appending goes on.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virta.errors import Conflict, VirtaError
from virta.log import Log
from virta.settings import Settings
from virta.testing.faults import kill_points
from virta.testing.faults.processes import fork, in_child, kill
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch
from virta.topics.topic import Topic

WRITERS = 8
READERS = 3
ROUND_SECONDS = 4.0
DURABILITY = {"os": "os", "disk": "disk", "memory": "memory"}
SAFE = ("os", "disk")  # acknowledged there means: survives the process
_SCHEMA = {"writer": int, "n": int, "named": bool, "text": str}
# Dumps and syncs by the background happen many times in a short life.
_HASTY = Settings(dump_interval_ms=3, sync_interval_seconds=0.02)


def run(seed: int, seconds: float) -> Report:
    report = Report("kill", seed)
    deadline = time.monotonic() + seconds
    kill_points.run(report, seed, seconds / 3)
    number = 0
    while number == 0 or (time.monotonic() + 2 < deadline and report.ok):
        with scratch("virta-kill") as root:
            length = max(1.0, min(ROUND_SECONDS, deadline - time.monotonic() - 1.0))
            one_round(report, root, seed, number, length)
        number += 1
    return report


def one_round(report: Report, root: Path, seed: int, number: int, seconds: float) -> None:
    rng = random.Random(f"{seed}/{number}")
    replay = f"--only kill --seed {seed} (round {number}; real processes, so it may take several tries)"
    in_child(lambda: _prepare(root))
    children: dict[int, tuple[str, int, int]] = {}  # pid → kind, number, life
    for index in range(WRITERS):
        children[_start_writer(root, rng, index, 0)] = ("writer", index, 0)
    for index in range(READERS):
        children[_start_reader(root, index, 0)] = ("reader", index, 0)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            time.sleep(rng.uniform(0.002, 0.12))
            kinds = ["writer"] * 9 + ["reader"]
            kind = rng.choice(kinds)
            pid = rng.choice([pid for pid, child in children.items() if child[0] == kind])
            kill(pid)
            report.counts[f"{kind}s killed"] += 1
            _, index, life = children.pop(pid)
            if kind == "writer":
                children[_start_writer(root, rng, index, life + 1)] = ("writer", index, life + 1)
            else:
                children[_start_reader(root, index, life + 1)] = ("reader", index, life + 1)
    finally:
        for pid in children:
            kill(pid)
    report.counts["rounds"] += 1
    complaint = root / "complaints"
    in_child(lambda: _check(root, complaint))
    for path in [*sorted(root.glob("*.complaint")), complaint]:
        for text in path.read_text().split("\0") if path.exists() else ["the check did not finish"]:
            if text.startswith("count "):
                report.counts[text[6:].partition(" ")[2]] += int(text.split()[1])
            elif text:
                report.violated(text, replay)


# -- processes --------------------------------------------------------------------------------


def _start_writer(root: Path, rng: random.Random, index: int, life: int) -> int:
    seed = rng.random()
    name = f"writer-{index}-{life}"
    return fork(lambda: _complaining(root, name, lambda: _write(root, index, life, seed)))


def _start_reader(root: Path, index: int, life: int) -> int:
    return fork(lambda: _complaining(root, f"reader-{index}-{life}", lambda: _read(root, index, life)))


def _complaining(root: Path, name: str, act: Callable[[], None]) -> None:
    """An error in a writer or reader is a violation: nothing in this campaign may fail."""
    try:
        act()
    except Exception:
        (root / f"{name}.complaint").write_text(f"{name}: {traceback.format_exc()}")


def _prepare(root: Path) -> None:
    with Log(root / "log") as log:
        for name, durability in DURABILITY.items():
            log.create_topic(name, _SCHEMA, durability=durability, segment_bytes="64 KiB")


# -- writers -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Note:
    """One append: the rows `first` to `first + count` of a writer in a topic."""

    topic: str
    first: int
    count: int
    acknowledged: bool = False


class Notes:
    """What a writer's lives did, kept outside of them."""

    def __init__(self, root: Path, index: int) -> None:
        self._file = os.open(root / f"writer-{index}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tried(self, topic: str, first: int, count: int) -> None:
        os.write(self._file, f"t {topic} {first} {count}\n".encode())

    def acknowledged(self, topic: str, first: int, count: int) -> None:
        os.write(self._file, f"a {topic} {first} {count}\n".encode())


def read_notes(root: Path, index: int) -> list[Note]:
    path = root / f"writer-{index}.notes"
    found: list[Note] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        what, topic, first, count = line.split()
        if what == "t":
            found.append(Note(topic, int(first), int(count)))
        else:
            assert (found[-1].topic, found[-1].first) == (topic, int(first))
            found[-1].acknowledged = True
    return found


def _row(writer: int, number: int, named: bool) -> dict[str, Any]:
    return {"writer": writer, "n": number, "named": named, "text": _text(writer, number)}


def _text(writer: int, number: int) -> str:
    return f"{writer}/{number} " + "y" * (number * 31 % 400)


def _write(root: Path, index: int, life: int, seed: float) -> None:
    rng = random.Random(f"{seed}/{index}/{life}")
    notes = Notes(root, index)
    following: Counter[str] = Counter()
    for note in read_notes(root, index):
        following[note.topic] = max(following[note.topic], note.first + note.count)
    log = Log(root / "log", settings=_HASTY)
    if index < 3:
        _write_named(log.topic(SAFE[index % 2]), notes, index, rng)
    hammers = index in (3, 4)  # one row after another into one topic: two that meet all the time
    while True:
        topic = log.topic("os" if hammers else rng.choice(list(DURABILITY)))
        count = 1 if hammers else rng.choice((1, 1, 1, 3, 30))
        first = following[topic.name]
        following[topic.name] += count
        notes.tried(topic.name, first, count)
        if _append(topic, [_row(index, first + n, False) for n in range(count)], rng):
            notes.acknowledged(topic.name, first, count)
        if index == 7 and rng.random() < 0.01:
            topic.alter(retention_rows=rng.randint(10**8, 10**9))
        if rng.random() < 0.02:
            topic.sync()


def _append(topic: Topic, rows: list[dict[str, Any]], rng: random.Random) -> bool:
    if rng.random() > 0.1:
        topic.append(rows[0] if len(rows) == 1 else rows)
        return True
    try:
        topic.append(rows, if_next_offset=topic.next_offset)
    except Conflict:
        return False
    return True


def _write_named(topic: Topic, notes: Notes, index: int, rng: random.Random) -> None:
    """Sends rows 0, 1, 2, … for ever; what the topic has already is left out."""
    with topic.writer(producer=f"producer {index}", max_rows=7, linger=0.001 if index else 0) as writer:
        number = writer.last_sequence + 1
        while True:
            count = rng.choice((1, 5, 20))
            notes.tried(topic.name, number, count)
            if rng.random() < 0.3:
                writer.send_batch([_row(index, number + n, True) for n in range(count)])
            else:
                for n in range(count):
                    writer.send(_row(index, number + n, True))
                writer.flush()
            number += count
            if writer.last_sequence + 1 != number:
                raise AssertionError(f"after row {number - 1} the last sequence is {writer.last_sequence}")
            notes.acknowledged(topic.name, number - count, count)


# -- readers -----------------------------------------------------------------------------------------


def _read(root: Path, index: int, life: int) -> None:
    """Follow a topic's end; what was seen is noted as offset and hash."""
    name = list(DURABILITY)[(index + life) % len(DURABILITY)]
    seen = os.open(root / f"seen-{name}-{index}-{life}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = Log(root / "log", settings=_HASTY)
    partition = log.topic(name).partition(0)
    token = partition.first_token if life % 2 else partition.last_token
    newest: dict[tuple[int, bool], int] = {}
    offset = token.offset
    while True:
        blocks, token = partition.long_poll(token, timeout=0.5)
        for block in blocks:
            if block.base_offset != offset:
                raise AssertionError(f"after offset {offset} comes a block at {block.base_offset}")
            block.verify()
            _check_rows(block.to_arrow().to_pylist(), newest, ordered=True)
            offset += block.rows
            os.write(seen, f"{block.base_offset} {block.hash}\n".encode())
        if token.offset != offset:
            raise AssertionError(f"the token says {token.offset}, the blocks end at {offset}")


def _check_rows(rows: list[dict[str, Any]], newest: dict[tuple[int, bool], int], *, ordered: bool) -> None:
    for row in rows:
        writer = (row["writer"], row["named"])
        if row["text"] != _text(row["writer"], row["n"]):
            raise AssertionError(f"a row's text is not its own: {row}")
        if ordered and row["n"] <= newest.get(writer, -1):
            raise AssertionError(f"row {row['n']} of writer {writer} comes after {newest[writer]}")
        newest[writer] = row["n"]


# -- the check ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Checked:
    complaints: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def _check(root: Path, complaint: Path) -> None:
    checked = Checked()
    try:
        with Log(root / "log", settings=_HASTY) as log:
            for name in DURABILITY:
                _check_topic(root, log.topic(name), checked)
    except (VirtaError, OSError, AssertionError, LookupError, ValueError):
        checked.complaints.append(traceback.format_exc())
    counts = [f"count {count} {what}" for what, count in checked.counts.items()]
    complaint.write_text("\0".join(checked.complaints + counts))


def _check_topic(root: Path, topic: Topic, checked: Checked) -> None:
    rows = topic.to_arrow().to_pylist()
    checked.counts["rows"] += len(rows)
    if [row["_offset"] for row in rows] != list(range(len(rows))):
        checked.complaints.append(f"{topic.name}: offsets have gaps")
    _check_rows(rows, {}, ordered=True)
    times = Counter((row["writer"], row["named"], row["n"]) for row in rows)
    twice = [row for row, count in times.items() if count > 1]
    if twice:
        checked.complaints.append(f"{topic.name}: rows are there twice: {twice[:5]}")
    for index in range(WRITERS):
        _check_notes(topic.name, index, read_notes(root, index), set(times), checked)
    report = topic.verify()
    if not report.ok:
        checked.complaints.append(f"{topic.name}: verify says {report.problems}")
    _check_seen(root, topic, checked)
    topic.append(_row(99, 0, False))
    if topic[-1:].to_pylist()[0]["writer"] != 99:
        checked.complaints.append(f"{topic.name}: appending does not go on")


def _check_notes(
    topic: str, index: int, notes: list[Note], there: set[tuple[int, bool, int]], checked: Checked
) -> None:
    named = index < 3
    mine = [note for note in notes if note.topic == topic]
    for note in mine:
        rows = [(index, named, note.first + n) in there for n in range(note.count)]
        checked.counts["acknowledged appends"] += note.acknowledged
        if note.acknowledged and topic in SAFE and not all(rows):
            checked.complaints.append(f"{topic}: writer {index}'s acknowledged {note} is not all there")
        if not named and any(rows) and not all(rows):
            checked.complaints.append(f"{topic}: half of {note} of writer {index} is there")
    own = {n for writer, is_named, n in there if writer == index and is_named == named}
    if named and own != set(range(len(own))):
        checked.complaints.append(f"{topic}: producer {index}'s rows have gaps")
    if own - {note.first + n for note in mine for n in range(note.count)}:
        checked.complaints.append(f"{topic}: rows of writer {index} that it never tried to write")


def _check_seen(root: Path, topic: Topic, checked: Checked) -> None:
    """Nothing a reader saw was contradicted later."""
    hashes = {}
    partition = topic.partition(0)
    token = partition.first_token
    while True:
        blocks, token = partition.poll(token)
        if not blocks:
            break
        hashes.update({str(block.base_offset): block.hash for block in blocks})
    for path in root.glob(f"seen-{topic.name}-*"):
        for line in path.read_text().splitlines():
            offset, _, hash_ = line.partition(" ")
            checked.counts["blocks seen by readers"] += 1
            if hashes.get(offset) != hash_:
                checked.complaints.append(f"{topic.name}: a reader saw another block at offset {offset}")
                return
