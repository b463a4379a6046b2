"""Twins of the files component: one that fails on demand, one that remembers what it was asked.

Both run the real code on a real directory. `FaultyFiles` refuses the n-th operation, or
the n-th of a kind on a path. `RecordingFiles` writes down everything that changes what
a disk holds, in order, with marks for what was acknowledged meanwhile; `virta.testing.power`
makes from that record the states in which a power loss may leave the directory.
"""

from __future__ import annotations

import errno
import fnmatch
import mmap
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from virta.storage.files import Bytes, OperatingSystemFiles


class FilesTwin:
    """Every operation goes through `_touch` and then to the operating system."""

    def __init__(self, *, boot_id: bytes | None = None) -> None:
        self._real = OperatingSystemFiles()
        self._boot_id = boot_id
        self._paths: dict[int, Path] = {}

    def _touch(self, kind: str, path: Path, act: Callable[[], Any]) -> Any:
        """One operation of this kind on this path; twins override it."""
        raise NotImplementedError

    def _path(self, descriptor: int) -> Path:
        return self._paths.get(descriptor, Path("?"))

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        def act() -> int:
            descriptor = self._real.open(path, write=write, create=create)
            self._paths[descriptor] = path
            return descriptor

        descriptor: int = self._touch("create" if create else "open", path, act)
        return descriptor

    def close(self, descriptor: int, /) -> None:
        self._paths.pop(descriptor, None)
        self._real.close(descriptor)

    def pread(self, descriptor: int, length: int, position: int, /) -> bytes:
        data: bytes = self._touch(
            "pread", self._path(descriptor), lambda: self._real.pread(descriptor, length, position)
        )
        return data

    def pwrite(self, descriptor: int, data: Bytes, position: int, /) -> int:
        return self._write(descriptor, [data], position)

    def pwritev(self, descriptor: int, parts: Sequence[Bytes], position: int, /) -> int:
        return self._write(descriptor, parts, position)

    def _write(self, descriptor: int, parts: Sequence[Bytes], position: int) -> int:
        written: int = self._touch(
            "write", self._path(descriptor), lambda: self._real.pwritev(descriptor, parts, position)
        )
        return written

    def size(self, descriptor: int, /) -> int:
        size: int = self._touch("size", self._path(descriptor), lambda: self._real.size(descriptor))
        return size

    def truncate(self, descriptor: int, length: int, /) -> None:
        self._touch("truncate", self._path(descriptor), lambda: self._real.truncate(descriptor, length))

    def reserve(self, descriptor: int, position: int, length: int) -> None:
        self._real.reserve(descriptor, position, length)

    def sync(self, descriptor: int, /) -> None:
        self._touch("sync", self._path(descriptor), lambda: self._real.sync(descriptor))

    def sync_directory(self, path: Path) -> None:
        self._touch("sync_directory", path, lambda: self._real.sync_directory(path))

    def map(self, descriptor: int, length: int) -> mmap.mmap:
        found: mmap.mmap = self._touch(
            "map", self._path(descriptor), lambda: self._real.map(descriptor, length)
        )
        return found

    def lock(self, descriptor: int, *, exclusive: bool = True, wait: bool = True) -> bool:
        found: bool = self._touch(
            "lock",
            self._path(descriptor),
            lambda: self._real.lock(descriptor, exclusive=exclusive, wait=wait),
        )
        return found

    def unlock(self, descriptor: int) -> None:
        self._real.unlock(descriptor)

    def flock(self, descriptor: int, operation: int, /) -> None:
        self._touch("lock", self._path(descriptor), lambda: self._real.flock(descriptor, operation))

    def seek(self, descriptor: int, offset: int, whence: int, /) -> int:
        found: int = self._touch(
            "size", self._path(descriptor), lambda: self._real.seek(descriptor, offset, whence)
        )
        return found

    def identity(self, path: Path) -> tuple[int, int] | None:
        found: tuple[int, int] | None = self._touch("stat", path, lambda: self._real.identity(path))
        return found

    def identity_of(self, descriptor: int) -> tuple[int, int]:
        found: tuple[int, int] = self._touch(
            "stat", self._path(descriptor), lambda: self._real.identity_of(descriptor)
        )
        return found

    def modified(self, path: Path) -> tuple[int, int] | None:
        found: tuple[int, int] | None = self._touch("stat", path, lambda: self._real.modified(path))
        return found

    def make_directory(self, path: Path) -> None:
        self._touch("make_directory", path, lambda: self._real.make_directory(path))

    def rename(self, source: Path, target: Path) -> None:
        self._touch("rename", target, lambda: self._real.rename(source, target))

    def link(self, source: Path, target: Path) -> None:
        self._touch("link", target, lambda: self._real.link(source, target))

    def unlink(self, path: Path) -> None:
        self._touch("unlink", path, lambda: self._real.unlink(path))

    def remove_directory(self, path: Path) -> None:
        self._touch("remove_directory", path, lambda: self._real.remove_directory(path))

    def names(self, path: Path) -> list[str]:
        found: list[str] = self._touch("names", path, lambda: self._real.names(path))
        return found

    def drop_cache(self, descriptor: int) -> None:
        self._real.drop_cache(descriptor)

    def boot_id(self) -> bytes:
        return self._real.boot_id() if self._boot_id is None else self._boot_id


@dataclass(slots=True)
class Fault:
    """Which operation fails, and how.

    `at` counts operations that match `kind` and `path` (a pattern for the file's name)
    from 1. `how`: "refused" does nothing, "half" writes half of the bytes and then
    fails, "after" does it all and reports an error, "killed" and "half killed" end the
    process there.
    """

    at: int
    kind: str = "*"
    path: str = "*"
    error: int = errno.EIO
    how: Literal["refused", "half", "after", "killed", "half killed"] = "refused"
    times: int = 1  # so many matching operations in a row fail
    seen: int = 0
    hit: str = ""

    def strikes(self, kind: str, path: Path) -> bool:
        if not (fnmatch.fnmatch(kind, self.kind) and fnmatch.fnmatch(path.name, self.path)):
            return False
        self.seen += 1
        if self.at <= self.seen < self.at + self.times:
            self.hit = self.hit or f"{kind} {path.name}"
            return True
        return False


class FaultyFiles(FilesTwin):
    """Fails where its faults say so. `calls` counts operations; `trace` names them when asked to."""

    def __init__(self, *faults: Fault, boot_id: bytes | None = None, trace: bool = False) -> None:
        super().__init__(boot_id=boot_id)
        self.faults = list(faults)
        self.calls = 0
        self.trace: list[str] | None = [] if trace else None
        self._half = False

    def _touch(self, kind: str, path: Path, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.trace is not None:
            self.trace.append(f"{kind} {path.name}")
        for fault in self.faults:
            if fault.strikes(kind, path):
                if fault.how == "after":
                    act()
                elif fault.how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(fault.error, os.strerror(fault.error), str(path))
        return act()

    def _write(self, descriptor: int, parts: Sequence[Bytes], position: int) -> int:
        try:
            return super()._write(descriptor, parts, position)
        except OSError:
            hows = {fault.how for fault in self.faults if fault.hit}
            if hows & {"half", "half killed"}:
                data = b"".join(parts)
                os.pwrite(descriptor, data[: len(data) // 2], position)
            if "half killed" in hows:
                os.kill(os.getpid(), signal.SIGKILL)
            raise


@dataclass(slots=True)
class Event:
    """One thing that changed what a disk holds, or a mark.

    `node` names a file by the number it got when it was made, `path` a directory entry.
    """

    kind: Literal[
        "write", "truncate", "sync", "create", "rename", "link", "unlink", "mkdir", "syncdir", "mark"
    ]
    node: int = -1
    position: int = 0
    data: bytes = b""
    path: str = ""
    source: str = ""
    mark: Any = None


@dataclass(slots=True)
class Record:
    """A directory as it was, and everything that happened to it since."""

    root: Path
    directories: list[str] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # path below the root → node
    contents: dict[int, bytes] = field(default_factory=dict)  # of the files that were there
    events: list[Event] = field(default_factory=list)


class Killed(BaseException):
    """The process is gone: raised by every operation from the one it died at until `revive`."""


class RecordingFiles(FilesTwin):
    """Records what changes the directory below `root`. What is there already counts as durable.

    With `kill_in` the process dies before its n-th change from now: nothing it still tries,
    cleaning up included, happens. `revive` is the next process.
    """

    def __init__(self, root: Path, *, boot_id: bytes | None = None) -> None:
        super().__init__(boot_id=boot_id)
        self.record = Record(root)
        self._names = self.record.names.copy()
        self._nodes: dict[int, int] = {}  # descriptor → node
        self._next_node = 0
        self._recording = threading.RLock()
        self.kill_in: int | None = None
        self.is_dead = False
        self._take_what_is_there(root)

    def _take_what_is_there(self, root: Path) -> None:
        if not root.exists():
            return
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_dir():
                self.record.directories.append(name)
            else:
                self.record.names[name] = self._next_node
                self.record.contents[self._next_node] = path.read_bytes()
                self._next_node += 1
        self._names = dict(self.record.names)

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.record.root))

    def _note(self, event: Event) -> None:
        self.record.events.append(event)

    def _live(self) -> None:
        """Before every change: die if it is time to."""
        if self.kill_in is not None:
            self.is_dead = self.is_dead or self.kill_in <= 0
            self.kill_in -= 1
        if self.is_dead:
            raise Killed

    def revive(self) -> None:
        self.kill_in, self.is_dead = None, False

    def mark(self, mark: Any) -> None:
        """Something was acknowledged (or promised) here."""
        with self._recording:
            self._note(Event("mark", mark=mark))

    def _touch(self, kind: str, path: Path, act: Callable[[], Any]) -> Any:  # noqa: ARG002
        return act()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        with self._recording:
            if create:
                self._live()
            descriptor = super().open(path, write=write, create=create)
            name = self._name(path)
            if name not in self._names:
                self._names[name] = self._next_node
                self._next_node += 1
                self._note(Event("create", node=self._names[name], path=name))
            self._nodes[descriptor] = self._names[name]
            return descriptor

    def _write(self, descriptor: int, parts: Sequence[Bytes], position: int) -> int:
        with self._recording:
            self._live()
            written = super()._write(descriptor, parts, position)
            data = b"".join(parts)[:written]
            self._note(Event("write", node=self._nodes[descriptor], position=position, data=data))
            return written

    def truncate(self, descriptor: int, length: int, /) -> None:
        with self._recording:
            self._live()
            super().truncate(descriptor, length)
            self._note(Event("truncate", node=self._nodes[descriptor], position=length))

    def sync(self, descriptor: int, /) -> None:
        with self._recording:
            self._live()
            self._note(Event("sync", node=self._nodes[descriptor]))

    def sync_directory(self, path: Path) -> None:
        with self._recording:
            self._live()
            if path == self.record.root or self.record.root in path.parents:
                self._note(Event("syncdir", path="" if path == self.record.root else self._name(path)))

    def make_directory(self, path: Path) -> None:
        with self._recording:
            self._live()
            there = path.exists()
            super().make_directory(path)
            if not there and path != self.record.root:
                self._note(Event("mkdir", path=self._name(path)))

    def rename(self, source: Path, target: Path) -> None:
        with self._recording:
            self._live()
            super().rename(source, target)
            old, new = self._name(source), self._name(target)
            for name in list(self._names):
                if name == old or name.startswith(old + "/"):
                    self._names[new + name[len(old) :]] = self._names.pop(name)
            self._note(Event("rename", source=old, path=new))

    def link(self, source: Path, target: Path) -> None:
        with self._recording:
            self._live()
            super().link(source, target)
            node = self._names[self._name(target)] = self._names[self._name(source)]
            self._note(Event("link", node=node, path=self._name(target)))

    def unlink(self, path: Path) -> None:
        with self._recording:
            self._live()
            super().unlink(path)
            if self._names.pop(self._name(path), None) is not None:
                self._note(Event("unlink", path=self._name(path)))
