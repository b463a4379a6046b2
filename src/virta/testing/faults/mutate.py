"""The mutation campaign: damage of every kind in every kind of file, in great numbers.

A small log (sealed segments, control blocks, everything synced) is damaged in one place:
bits flip, ranges are cut, swapped, repeated, zeroed, files take each other's content.
Then

 - reading gives what was written, or a DamageError; never other rows, another kind of
   error, a crash, a hang, or gigabytes of memory;
 - `verify` finds every mutation that keeps a reader from seeing what was written;
 - sometimes a writer opens it, and does not make it worse.

Workers are processes of their own: one that crashes or hangs is a violation, and what
it was doing stands in a file.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virta.errors import DamageError, VirtaError
from virta.log import Log
from virta.settings import Settings
from virta.steward.steward import Steward
from virta.storage.chain import HEADER_SIZE
from virta.storage.commit import TopicChanged
from virta.storage.files import OperatingSystemFiles
from virta.storage.verify import verify_partition
from virta.testing.faults.report import Report
from virta.testing.faults.scratch import scratch
from virta.testing.rig import SCHEMA, Rig
from virta.topics.topic import Topic
from virta.types import Durability

WORKERS = 2
SEGMENT_BYTES = 2600
_SHARES = (0.84, 0.06, 0.1)  # of the targets
_HANG_SECONDS = 20
_MEMORY_BYTES = 3 << 30
_QUIET = Settings(dump_interval_ms=3_600_000, sync_interval_seconds=3600.0)


def run(seed: int, seconds: float) -> Report:
    report = Report("mutate", seed)
    with scratch("virta-mutate") as root:
        deadline = time.monotonic() + seconds
        workers = {_start(root, seed, number, deadline): number for number in range(WORKERS)}
        for pid, number in workers.items():
            _, status = os.waitpid(pid, 0)
            _gather(report, root, seed, number, status)
    return report


def _start(root: Path, seed: int, number: int, deadline: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        result = work(root / f"worker-{number}", f"{seed}/{number}", deadline)
        (root / f"result-{number}").write_text(json.dumps(result))
        code = 0
    except BaseException:
        (root / f"result-{number}").write_text(json.dumps({"complaints": [traceback.format_exc()]}))
    finally:
        os._exit(code)


def _gather(report: Report, root: Path, seed: int, number: int, status: int) -> None:
    doing = root / f"worker-{number}" / "doing"
    what = doing.read_text().rstrip("\0 ") if doing.exists() else "starting"
    replay = f"--only mutate --seed {seed}, worker {number}"
    result = root / f"result-{number}"
    if os.WIFSIGNALED(status) or not result.exists():
        report.violated(f"the worker ended with {status} (a crash, or a hang) while {what}", replay)
        return
    found = json.loads(result.read_text())
    report.counts.update(found.get("counts", {}))
    for complaint in found["complaints"]:
        report.violated(complaint, replay)


def work(root: Path, seed: str, deadline: float) -> dict[str, Any]:
    """Mutations until the time is over; counts and complaints."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    rng = random.Random(seed)
    root.mkdir(parents=True)
    doing = os.open(root / "doing", os.O_RDWR | os.O_CREAT)
    targets: list[Target] = [
        PartitionTarget(root / "partition"),
        LogTarget(root / "log"),
        RewrittenTarget(root / "rewritten"),
    ]
    counts: Counter[str] = Counter()
    complaints: list[str] = []
    while time.monotonic() < deadline and len(complaints) < 20:
        # a whole log is slower to open, and what is special about it is small
        (target,) = rng.choices(targets, _SHARES)
        mutation = mutate(target.files, rng)
        os.pwrite(doing, f"{mutation.what}".ljust(300).encode()[:300], 0)
        signal.alarm(_HANG_SECONDS)
        complaints += target.attempt(mutation, rng, counts)
        signal.alarm(0)
        counts["mutations"] += 1
    return {"counts": counts, "complaints": complaints}


# -- mutations ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Mutation:
    name: str
    data: bytes | None  # None: the file is gone
    what: str


def mutate(files: dict[str, bytes], rng: random.Random) -> Mutation:
    """One damage in one file."""
    kinds: dict[str, list[str]] = {}
    for name in files:
        kinds.setdefault(Path(name).suffix or Path(name).name, []).append(name)
    name = rng.choice(kinds[rng.choice(sorted(kinds))])
    data = files[name]
    act = rng.choice(_ACTS)
    damaged, how = act(data, rng, files)
    return Mutation(name, damaged, f"{name}: {how}")


def _flip(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    changed = bytearray(data)
    places = [rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 1, 2, 8)))] if data else []
    for at in places:
        changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed), f"bits flipped at {places}"


def _set(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    start, stop = _range(data, rng)
    value = rng.choice((b"\0", b"\xff", rng.randbytes(1)))
    return data[:start] + value * (stop - start) + data[stop:], f"[{start}:{stop}] set to {value!r}"


def _scramble(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    start, stop = _range(data, rng)
    return data[:start] + rng.randbytes(stop - start) + data[stop:], f"[{start}:{stop}] scrambled"


def _number(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    """A length or an offset somewhere becomes a hostile one."""
    size = rng.choice((2, 4, 8))
    if len(data) < size:
        return data, "nothing"
    at = rng.randrange(0, len(data) - size + 1) & ~3
    value = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 8, 2**63 - 1, 2**64 - 8, rng.getrandbits(63)))
    raw = (value % (1 << 8 * size)).to_bytes(size, "little")
    return data[:at] + raw + data[at + size :], f"{value} in {size} bytes at {at}"


def _cut(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    at = _border(data, rng)
    return data[:at], f"cut off at {at}"


def _take_out(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    start, stop = _range(data, rng)
    return data[:start] + data[stop:], f"[{start}:{stop}] taken out"


def _repeat(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    start, stop = _range(data, rng)
    return data[:stop] + data[start:stop] + data[stop:], f"[{start}:{stop}] repeated"


def _append(data: bytes, rng: random.Random, files: dict[str, bytes]) -> tuple[bytes, str]:
    source = rng.choice(sorted(files))
    start, stop = _range(files[source], rng)
    return data + files[source][start:stop], f"[{start}:{stop}] of {source} appended"


def _swap(data: bytes, rng: random.Random, _: dict[str, bytes]) -> tuple[bytes, str]:
    size = rng.choice((8, 64, HEADER_SIZE, HEADER_SIZE, 512))
    if len(data) < 2 * size:
        return data[::-1], "turned around"
    unit = rng.choice((8, size))
    one, two = (rng.randrange(0, len(data) - size + 1) // unit * unit for _ in range(2))
    changed = bytearray(data)
    changed[one : one + size], changed[two : two + size] = data[two : two + size], data[one : one + size]
    return bytes(changed), f"{size} bytes at {one} and {two} swapped"


def _copy(data: bytes, rng: random.Random, files: dict[str, bytes]) -> tuple[bytes, str]:
    """A piece of another file (or of this one) in this one's place."""
    source = rng.choice(sorted(files))
    start, stop = _range(files[source], rng)
    at = min(start, len(data)) if rng.random() < 0.5 else _border(data, rng)
    piece = files[source][start:stop]
    return data[:at] + piece + data[at + len(piece) :], f"[{start}:{stop}] of {source} copied to {at}"


def _replace(_: bytes, rng: random.Random, files: dict[str, bytes]) -> tuple[bytes, str]:
    source = rng.choice(sorted(files))
    return files[source], f"replaced by {source}"


_ACTS = (
    *(_flip, _flip, _flip, _flip),
    *(_set, _scramble, _number, _number, _cut, _take_out, _repeat, _append, _swap, _swap, _copy, _replace),
)


def _border(data: bytes, rng: random.Random) -> int:
    unit = rng.choice((1, 8, HEADER_SIZE, 512))
    return min(len(data), rng.randrange(0, len(data) + unit) // unit * unit)


def _range(data: bytes, rng: random.Random) -> tuple[int, int]:
    if rng.random() < 0.3:
        start, stop = sorted((_border(data, rng), _border(data, rng)))
        return start, stop
    start = _border(data, rng)
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 32, HEADER_SIZE, 512)))


# -- what is mutated ---------------------------------------------------------------------------------


class Target:
    """A directory whose pristine files are kept in memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.build()
        self.files = self._contents()
        self.pristine = self.look(random.Random(1))

    def build(self) -> None:
        raise NotImplementedError

    def look(self, rng: random.Random) -> Any:
        """Everything a reader sees, as a value that can be compared."""
        raise NotImplementedError

    def verify(self) -> bool:
        raise NotImplementedError

    def write_on(self) -> None:
        raise NotImplementedError

    def _contents(self) -> dict[str, bytes]:
        found = {}
        for directory, _, names in os.walk(self.root):
            for name in names:
                with Path(directory, name).open("rb") as file:
                    found[f"{directory}/{name}"[len(str(self.root)) + 1 :]] = file.read()
        return dict(sorted(found.items()))

    def _restore(self) -> None:
        """As it was; only what differs is written."""
        there = self._contents()
        for name in there.keys() - self.files.keys():
            (self.root / name).unlink()
        for name, data in self.files.items():
            if there.get(name) != data:
                path = self.root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def attempt(self, mutation: Mutation, rng: random.Random, counts: Counter[str]) -> list[str]:
        assert mutation.data is not None
        if mutation.data == self.files[mutation.name]:
            return []
        (self.root / mutation.name).write_bytes(mutation.data)
        try:
            return self._judge(mutation, rng, counts)
        except Exception:
            return [f"{mutation.what}: {traceback.format_exc(limit=-6)}"]
        finally:
            self._restore()

    def _judge(self, mutation: Mutation, rng: random.Random, counts: Counter[str]) -> list[str]:
        counts[f"in {Path(mutation.name).suffix or Path(mutation.name).name}"] += 1
        try:
            ok = self.verify()
        except VirtaError:
            ok = False
        seen, error = self._try_to_look(rng)
        if isinstance(error, VirtaError):
            if not isinstance(error, DamageError):
                counts[f"{type(error).__name__} instead"] += 1
            counts["readers told of damage"] += 1
            if ok:
                return [f"{mutation.what}: verify found nothing, but reading says {error}"]
        elif error is not None:
            text = "".join(traceback.format_exception(error, limit=-6))
            return [f"{mutation.what}: reading failed with {text}"]
        elif seen != self.pristine:
            counts["readers see less" if ok else "readers see less, verify tells"] += 1
            difference = _difference(seen, self.pristine)
            return [f"{mutation.what}: the reader sees {difference}, verify {'ok' if ok else 'tells'}"]
        if rng.random() < 0.1:
            counts["written on"] += 1
            return self._write_on(mutation, rng, damaged=not ok)
        return []

    def _try_to_look(self, rng: random.Random) -> tuple[Any, BaseException | None]:
        try:
            return self.look(rng), None
        except Exception as error:
            return None, error

    def _write_on(self, mutation: Mutation, rng: random.Random, *, damaged: bool) -> list[str]:
        """A writer on damaged files is refused, or appends; it loses nothing that could be read."""
        try:
            self.write_on()
        except (VirtaError, TopicChanged):
            return []
        seen, error = self._try_to_look(rng)
        if damaged or (error is None and self.begins_with_pristine(seen)):
            return []
        difference = _difference(seen, self.pristine)
        return [f"{mutation.what}: after a writer the reader sees {difference} {error or ''}"]

    def begins_with_pristine(self, seen: Any) -> bool:
        raise NotImplementedError


def _difference(seen: Any, pristine: Any) -> str:
    if not isinstance(seen, tuple):
        return repr(seen)[:300]
    parts = [
        f"part {at}: {repr(a)[:200]}" for at, (a, b) in enumerate(zip(seen, pristine, strict=False)) if a != b
    ]
    return "; ".join(parts)[:600]


class PartitionTarget(Target):
    """A partition without topics above it: fast, with the smallest of segments."""

    def build(self) -> None:
        rig = Rig(self.root / "p", OperatingSystemFiles(), segment_bytes=SEGMENT_BYTES).create()
        for number in range(0, 16, 2):
            rig.append(range(number, number + 2), Durability.OS)
            if number == 4:
                rig.claim("somebody")
        rig.partition.sync()
        rig.close()

    def _open(self) -> Rig:
        return Rig(self.root / "p", OperatingSystemFiles(), segment_bytes=SEGMENT_BYTES)

    def look(self, rng: random.Random) -> Any:
        """Blocks as they come, blocks by offset, by time, and the positions."""
        rig = self._open()
        try:
            partition = rig.partition
            blocks = []
            offset = start = partition.start_offset
            while found := partition.read(offset, max_bytes=rng.choice((1, 2000, 1 << 20))):
                blocks += [(block.header[:3], bytes(block.data)) for block in found if block.header.rows]
                offset = found[-1].header.end_offset
            partition.tail.clear()
            for at in (rng.randrange(offset + 1) for _ in range(3)):
                read = partition.read(at, max_bytes=1)
                if read and not read[0].header.base_offset <= at < read[0].header.end_offset:
                    raise AssertionError(f"offset {at} led to a block at {read[0].header.base_offset}")
                partition.check_token(partition.token_at(at))
                partition.tail.clear()
            return start, blocks, partition.next_offset, partition.head, partition.first_offset_at(0)
        finally:
            rig.abandon()

    def verify(self) -> bool:
        rig = self._open()
        return verify_partition(rig.files, rig.paths, rig.identity, lambda _: SCHEMA).ok

    def write_on(self) -> None:
        rig = self._open()
        try:
            rig.append([99], Durability.DISK)
        finally:
            rig.abandon()

    def begins_with_pristine(self, seen: Any) -> bool:
        return bool(seen[1][: len(self.pristine[1])] == self.pristine[1])


class LogTarget(Target):
    """A whole log through its front door: configuration and schemas too."""

    def build(self) -> None:
        with self._open() as log:
            topic = log.create_topic("t", {"n": int, "word": str | None}, durability="disk")
            topic.append([{"n": n, "word": "abc" * (n % 5)} for n in range(20)])
            topic.alter(schema={"n": int, "word": str | None, "more": float | None})
            topic.append([{"n": n, "word": None, "more": n / 2} for n in range(20, 30)])
        shutil.rmtree(self.root / "none", ignore_errors=True)

    def _open(self) -> Log:
        return Log(self.root / "log", settings=_QUIET, files=OperatingSystemFiles(), create=True)

    def look(self, rng: random.Random) -> Any:  # noqa: ARG002
        with self._open() as log:
            topic = log.topic("t")
            return (
                topic.to_arrow().to_pylist(),
                topic[:].columns("n").to_arrow()["n"].to_pylist(),
                topic.where("n >= 15").to_arrow()["n"].to_pylist(),
                topic.head,
                topic.next_offset,
                topic.schema.names,
            )

    def verify(self) -> bool:
        with self._open() as log:
            return log.topic("t").verify().ok

    def write_on(self) -> None:
        with self._open() as log:
            log.topic("t").append({"n": 99, "word": "w", "more": 1.0})

    def begins_with_pristine(self, seen: Any) -> bool:
        return bool(seen[0][: len(self.pristine[0])] == self.pristine[0])


class RewrittenTarget(LogTarget):
    """Topics that were compacted, erased from and joined: blocks that stand for others."""

    def build(self) -> None:
        with self._open() as log:
            users = log.create_topic("u", {"id": int, "mail": str | None}, kind="update", keys=["id"])
            for number in range(3):
                users.append([{"id": n, "mail": f"{number}@{n}"} for n in range(4)])
            users.delete({"id": 1})
            _seal(users)
            rows = log.create_topic("t", {"n": int, "word": str | None}, row_deletion=True)
            for n in range(12):
                rows.append({"n": n, "word": "abc" * (n % 5)})
            _seal(rows)
            rows.erase(where="n % 4 = 1")
            Steward(log).run_once(force=True)
            users.append({"id": 2, "mail": "newest"})
            rows.append({"n": 12, "word": None})
            users.get({"id": 3})  # makes the files of keys
            for topic in (users, rows):
                topic.sync()

    def look(self, rng: random.Random) -> Any:
        with self._open() as log:
            rows, users = log.topic("t"), log.topic("u")
            partition = rows.partition(0)
            for at in (rng.randrange(rows.next_offset + 1) for _ in range(2)):
                partition.poll(partition.token(at))
            return (
                [(row.offset, row["n"], row["word"]) for row in rows],
                users.to_arrow().num_rows,  # hashes every block: what follows need not
                sorted(users.table().to_arrow().to_pylist(), key=lambda row: int(row["id"])),
                [users.get({"id": n}) for n in range(5)],
                rows.where("n >= 9").to_arrow()["n"].to_pylist(),
                (rows.head, users.head, rows.next_offset, users.next_offset),
            )

    def verify(self) -> bool:
        with self._open() as log:
            return log.topic("t").verify().ok and log.topic("u").verify().ok

    def write_on(self) -> None:
        with self._open() as log:
            log.topic("t").append({"n": 99, "word": "w"})


def _seal(topic: Topic) -> None:
    with topic.partition(0).stored.writing() as committer:
        committer.roll()
