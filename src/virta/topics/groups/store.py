"""Where groups are kept between two heartbeats: in the log's directory, or in memory.

    groups/<digest of the group's name>-<topic id>.group

    line 1    "virta-group 1", generation (20 digits), length of the rest (10), its CRC-32 (8)
    rest      JSON: key, boot, state, positions

The file is written in place by whoever holds its lock (flock), and read under it; the
generation alone is read by anybody at any time. A file that does not agree with its first
line was left by a process that died: it is as if there were none.

What is kept here is young: sessions of seconds, and a copy of the positions that stand in
`__offsets`. So it is not synced, and may be deleted while nobody reads: the members join
again, and the positions are read again from `__offsets`. After another boot it is not
believed.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from blake3 import blake3

from virta.storage.files import Files, read_fully, storage_error, write_fully
from virta.topics.groups.model import GroupKey

_SUFFIX = ".group"
_FIRST_LINE = re.compile(rb"virta-group 1 (\d{20}) (\d{10}) ([0-9a-f]{8})\n")
_FIRST_LINE_SIZE = 14 + 21 + 11 + 9

Document = dict[str, Any]


class Slot(Protocol):
    """One group, held by whoever changes it."""

    def read(self) -> Document | None: ...
    def write(self, document: Document) -> None: ...
    def remove(self) -> None: ...


class GroupStore(Protocol):
    def list_keys(self) -> list[GroupKey]:
        """All groups that are kept."""
        ...

    def holding(self, key: GroupKey) -> contextlib.AbstractContextManager[Slot]:
        """The group, with nobody else at it."""
        ...

    def read(self, key: GroupKey) -> Document | None:
        """The group as it was last written."""
        ...

    def generation(self, key: GroupKey) -> int:
        """The document's; 0 if there is none. Cheap to ask."""
        ...


class MemoryStore:
    """For a broker, whose process is the only one, and for tests."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._documents: dict[GroupKey, Document] = {}

    def list_keys(self) -> list[GroupKey]:
        with self._lock:
            return sorted(self._documents)

    @contextlib.contextmanager
    def holding(self, key: GroupKey) -> Iterator[Slot]:
        with self._lock:
            yield _MemorySlot(self, key)

    def read(self, key: GroupKey) -> Document | None:
        with self._lock:
            return copy.deepcopy(self._documents.get(key))

    def generation(self, key: GroupKey) -> int:
        found = self._documents.get(key)
        return 0 if found is None else int(found["generation"])

    def put(self, key: GroupKey, document: Document | None) -> None:
        if document is None:
            self._documents.pop(key, None)
        else:
            self._documents[key] = copy.deepcopy(document)


class _MemorySlot:
    def __init__(self, store: MemoryStore, key: GroupKey) -> None:
        self._store = store
        self._key = key

    def read(self) -> Document | None:
        return self._store.read(self._key)

    def write(self, document: Document) -> None:
        self._store.put(self._key, document)

    def remove(self) -> None:
        self._store.put(self._key, None)


class DirectoryStore:
    """Groups of a log that is a directory, shared by its processes."""

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._root = root

    def list_keys(self) -> list[GroupKey]:
        try:
            names = self._files.names(self._root)
        except FileNotFoundError:
            return []
        found = []
        for name in sorted(names):
            document = self._read(self._root / name) if name.endswith(_SUFFIX) else None
            if document is not None:
                found.append(GroupKey(**document["key"]))
        return found

    @contextlib.contextmanager
    def holding(self, key: GroupKey) -> Iterator[Slot]:
        path = self._path(key)
        try:
            if self._files.identity(self._root) is None:
                self._files.make_directory(self._root)
            descriptor = self._files.open(path, write=True, create=True)
        except OSError as error:
            raise storage_error(error, path, "opening") from error
        try:
            self._files.lock(descriptor)
            yield _FileSlot(self._files, key, descriptor, self._boot())
        except OSError as error:
            raise storage_error(error, path, "changing") from error
        finally:
            self._files.close(descriptor)

    def read(self, key: GroupKey) -> Document | None:
        return _of_boot(self._read(self._path(key)), self._boot())

    def _read(self, path: Path) -> Document | None:
        try:
            descriptor = self._files.open(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error(error, path, "opening") from error
        try:
            self._files.lock(descriptor, exclusive=False)
            return _parsed(_content(self._files, descriptor))
        except OSError as error:
            raise storage_error(error, path, "reading") from error
        finally:
            self._files.close(descriptor)

    def generation(self, key: GroupKey) -> int:
        path = self._path(key)
        try:
            descriptor = self._files.open(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise storage_error(error, path, "opening") from error
        try:
            found = _FIRST_LINE.match(self._files.pread(descriptor, _FIRST_LINE_SIZE, 0))
            return int(found[1]) if found else 0
        except OSError as error:
            raise storage_error(error, path, "reading") from error
        finally:
            self._files.close(descriptor)

    def _path(self, key: GroupKey) -> Path:
        digest = blake3(key.group.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._root / f"{digest}-{key.topic_id}{_SUFFIX}"

    def _boot(self) -> str:
        return self._files.boot_id().hex()


class _FileSlot:
    def __init__(self, files: Files, key: GroupKey, descriptor: int, boot: str) -> None:
        self._files = files
        self._key = {"group": key.group, "topic": key.topic, "topic_id": key.topic_id}
        self._descriptor = descriptor
        self._boot = boot

    def read(self) -> Document | None:
        return _of_boot(_parsed(_content(self._files, self._descriptor)), self._boot)

    def write(self, document: Document) -> None:
        rest = json.dumps({**document, "boot": self._boot, "key": self._key}).encode()
        first = f"virta-group 1 {document['generation']:020d} {len(rest):010d} {zlib.crc32(rest):08x}\n"
        write_fully(self._files, self._descriptor, first.encode() + rest, 0)
        self._files.truncate(self._descriptor, len(first) + len(rest))

    def remove(self) -> None:
        # not unlinked: somebody may be waiting for its lock
        self._files.truncate(self._descriptor, 0)


def _content(files: Files, descriptor: int) -> bytes:
    return read_fully(files, descriptor, files.size(descriptor), 0)


def _parsed(data: bytes) -> Document | None:
    """The document, if it is whole."""
    found = _FIRST_LINE.match(data)
    if found is None:
        return None
    rest = data[found.end() : found.end() + int(found[2])]
    if zlib.crc32(rest) != int(found[3], 16) or len(rest) != int(found[2]):
        return None
    document: Document = json.loads(rest)
    return document


def _of_boot(document: Document | None, boot: str) -> Document | None:
    """After another boot no session goes on, and clocks begin anew."""
    return document if document is not None and document["boot"] == boot else None
