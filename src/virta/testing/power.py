"""What a power loss may leave: states of a directory, made from a record of writes and syncs.

At a cut, all that was synced is there. Of the rest each write may be there, be missing,
or be torn at the borders of sectors and pages, whatever became of the writes before it;
a file may have grown without its bytes; and each unsynced create, rename and unlink may
have happened or not. Short histories are gone through exhaustively, longer ones by
sampling.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blake3 import blake3

from virta.testing.files import Event, Record

SECTOR = 512
PAGE = 4096
# All subsets of so many unsynced operations are tried: 2^6 states at a cut.
_EXHAUSTIVE = 6

# What becomes of one unsynced operation: all of it, nothing, or these byte ranges of a
# write. A torn write gives the file its full length.
Fate = bool | tuple[tuple[int, int], ...]


@dataclass(slots=True)
class State:
    """A directory after a power loss."""

    cut: int
    marks: list[Any]
    files: dict[str, bytes]
    directories: list[str]
    fates: str

    def digest(self) -> bytes:
        hasher = blake3()
        for name in sorted(self.files):
            hasher.update(name.encode() + b"\0" + len(self.files[name]).to_bytes(8, "little"))
            hasher.update(self.files[name])
        hasher.update("\0".join(sorted(self.directories)).encode())
        return hasher.digest(16)

    def materialise(self, root: Path) -> None:
        """Make the directory; one that is there is replaced."""
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(parents=True)
        for name in sorted(self.directories):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            path = root / name
            if path.parent.exists():
                path.write_bytes(data)


@dataclass(slots=True)
class _Disk:
    """What is durable at a cut, and what is not."""

    names: dict[str, int]
    directories: set[str]
    contents: dict[int, bytes]
    pending: list[Event] = field(default_factory=list)
    marks: list[Any] = field(default_factory=list)

    def take(self, event: Event) -> None:
        if event.kind == "mark":
            self.marks.append(event.mark)
        elif event.kind == "sync":
            self._settle(lambda other: other.node == event.node and other.kind in ("write", "truncate"))
        elif event.kind == "syncdir":
            self._settle(lambda other: _is_entry(other) and _parent(other.path) == event.path)
        else:
            self.pending.append(event)

    def _settle(self, chosen: Any) -> None:
        for event in self.pending:
            if chosen(event):
                _apply(event, True, self.names, self.directories, self.contents)
        self.pending = [event for event in self.pending if not chosen(event)]


def _is_entry(event: Event) -> bool:
    return event.kind in ("create", "rename", "link", "unlink", "mkdir")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _apply(
    event: Event, fate: Fate, names: dict[str, int], directories: set[str], contents: dict[int, bytes]
) -> None:
    if fate is False:
        return
    if event.kind == "write":
        ranges = ((0, len(event.data)),) if fate is True else fate
        contents[event.node] = _written(contents.get(event.node, b""), event, ranges)
    elif event.kind == "truncate":
        old = contents.get(event.node, b"")
        contents[event.node] = old[: event.position].ljust(event.position, b"\0")
    elif event.kind in ("create", "link"):
        names[event.path] = event.node
        contents.setdefault(event.node, b"")
    elif event.kind == "mkdir":
        directories.add(event.path)
    elif event.kind == "unlink":
        names.pop(event.path, None)
    elif event.kind == "rename":
        _rename(event, names, directories)


def _rename(event: Event, names: dict[str, int], directories: set[str]) -> None:
    def moved(name: str) -> bool:
        return name == event.source or name.startswith(event.source + "/")

    for name in [name for name in names if moved(name)]:
        names[event.path + name[len(event.source) :]] = names.pop(name)
    for name in [name for name in directories if moved(name)]:
        directories.discard(name)
        directories.add(event.path + name[len(event.source) :])


def _written(old: bytes, event: Event, ranges: tuple[tuple[int, int], ...]) -> bytes:
    end = event.position + len(event.data)
    data = bytearray(old.ljust(end, b"\0"))
    for start, stop in ranges:
        data[event.position + start : event.position + stop] = event.data[start:stop]
    return bytes(data)


def _tears(event: Event) -> list[Fate]:
    """Ways in which one write may be torn: at sector borders of the file."""
    if event.kind != "write":
        return []
    size = len(event.data)
    borders = [
        border - event.position
        for border in range((event.position // SECTOR + 1) * SECTOR, event.position + size, SECTOR)
    ]
    found: list[Fate] = [()]  # the file has grown, but the bytes are zeros
    for border in borders:
        found.append(((0, border),))
        found.append(((border, size),))
    return found


def _fates(pending: list[Event], rng: random.Random, samples: int) -> Iterator[tuple[Fate, ...]]:
    """Combinations of fates worth trying, the telling ones first."""
    count = len(pending)
    yield (False,) * count
    if not count:
        return
    yield (True,) * count
    if count <= _EXHAUSTIVE:
        yield from itertools.product((False, True), repeat=count)
    else:
        for at in range(count):
            yield tuple(index < at for index in range(count))
            yield tuple(index != at for index in range(count))
            yield tuple(index == at for index in range(count))
    for at, event in enumerate(pending):
        for tear in _tears(event):
            for others in (False, True):
                yield tuple(tear if index == at else others for index in range(count))
            yield tuple(tear if index == at else index < at for index in range(count))
    for _ in range(samples):
        yield tuple(_random_fate(event, rng) for event in pending)


def _random_fate(event: Event, rng: random.Random) -> Fate:
    chance = rng.random()
    if chance < 0.4:
        return True
    if chance < 0.7 or event.kind != "write":
        return False
    return _random_tear(event, rng)


def _random_tear(event: Event, rng: random.Random) -> Fate:
    """Any set of the write's sectors, or of its pages."""
    unit = rng.choice((SECTOR, PAGE))
    first = event.position // unit * unit
    size = len(event.data)
    return tuple(
        (max(0, start - event.position), min(size, start + unit - event.position))
        for start in range(first, event.position + size, unit)
        if rng.random() < 0.5
    )


def states(record: Record, rng: random.Random, *, samples: int = 8, first_cut: int = 0) -> Iterator[State]:
    """Every different state that a power loss at some point of the record may leave."""
    disk = _begin(record)
    seen: set[tuple[int, bytes]] = set()
    for cut in range(len(record.events) + 1):
        if cut:
            disk.take(record.events[cut - 1])
        if cut < first_cut:
            continue
        for fates in _fates(disk.pending, rng, samples):
            state = _state(disk, cut, fates)
            key = (len(disk.marks), state.digest())
            if key not in seen:
                seen.add(key)
                yield state


def sample(record: Record, rng: random.Random, count: int) -> Iterator[State]:
    """Some of the states, without going through them all."""
    for cut in rng.choices(range(len(record.events) + 1), k=count):
        disk = _begin(record)
        for event in record.events[:cut]:
            disk.take(event)
        chance = rng.random()
        if chance < 0.6:
            fates = tuple(_random_fate(event, rng) for event in disk.pending)
        else:
            fates = rng.choice(list(_fates(disk.pending, rng, 0)))
        yield _state(disk, cut, fates)


def after_all(record: Record, rng: random.Random) -> State:
    """A state that a power loss at the record's end may leave."""
    disk = _begin(record)
    for event in record.events:
        disk.take(event)
    return _state(disk, len(record.events), tuple(_random_fate(event, rng) for event in disk.pending))


def _begin(record: Record) -> _Disk:
    return _Disk(
        names=dict(record.names), directories=set(record.directories), contents=dict(record.contents)
    )


def _state(disk: _Disk, cut: int, fates: tuple[Fate, ...]) -> State:
    names, directories, contents = dict(disk.names), set(disk.directories), dict(disk.contents)
    for event, fate in zip(disk.pending, fates, strict=True):
        _apply(event, fate, names, directories, contents)
    return State(
        cut=cut,
        marks=list(disk.marks),
        files={name: contents.get(node, b"") for name, node in names.items()},
        directories=sorted(directories),
        fates=" ".join(
            f"{event.kind}:{_word(fate)}" for event, fate in zip(disk.pending, fates, strict=True)
        ),
    )


def _word(fate: Fate) -> str:
    if isinstance(fate, bool):
        return "kept" if fate else "lost"
    return "torn" + "".join(f"[{start}:{stop}]" for start, stop in fate)
