"""What the doctor wants to know: gathered from the system and from a log's files, judged elsewhere.

Nothing here takes a lock, reads data or raises for what it finds: what cannot be had is
None, and what keeps a partition's files from being read is a fact like the others.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from virta.errors import VirtaError
from virta.memory.wake import process_wakeups
from virta.metadata.catalog import Catalog
from virta.storage import chain, manifest, state
from virta.storage.chain import HEADER_SIZE
from virta.storage.files import Files
from virta.storage.filesystem import Mount, file_system_of
from virta.storage.layout import TORN_MARK, PartitionPaths
from virta.storage.manifest import Manifest
from virta.storage.removal import find_leftovers
from virta.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What the system says. None: it does not say."""

    root: Path
    now_us: int
    free_bytes: int | None = None
    total_bytes: int | None = None
    open_file_limit: int | None = None
    inotify_instances: int | None = None
    inotify_watches: int | None = None
    inotify_failure: str | None = None
    mount: Mount | None = None
    aio_used: int | None = None
    aio_limit: int | None = None
    numa_nodes: int | None = None
    zone_reclaim_mode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """What the files of a partition say, without reading data."""

    topic: str
    number: int
    root: Path
    error: str | None = None  # what kept its manifest from being read
    flags: int = 0
    has_state: bool = True
    newest_us: int | None = None
    missing_data: tuple[Path, ...] = ()
    missing_chains: tuple[Path, ...] = ()
    evidence: tuple[Path, ...] = ()
    leftovers: tuple[Path, ...] = ()


def gather_machine(root: Path, now_us: int) -> MachineFacts:
    free, total = _space(root)
    is_linux = sys.platform.startswith("linux")
    return MachineFacts(
        root=root,
        now_us=now_us,
        free_bytes=free,
        total_bytes=total,
        open_file_limit=_open_file_limit(),
        inotify_instances=_number("/proc/sys/fs/inotify/max_user_instances"),
        inotify_watches=_number("/proc/sys/fs/inotify/max_user_watches"),
        inotify_failure=process_wakeups().failure if is_linux else None,
        mount=file_system_of(root),
        aio_used=_number("/proc/sys/fs/aio-nr"),
        aio_limit=_number("/proc/sys/fs/aio-max-nr"),
        numa_nodes=_numa_nodes(),
        zone_reclaim_mode=_number("/proc/sys/vm/zone_reclaim_mode"),
    )


def _space(root: Path) -> tuple[int | None, int | None]:
    try:
        usage = shutil.disk_usage(root)
    except OSError:
        return None, None
    return usage.free, usage.total


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _open_file_limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _numa_nodes() -> int | None:
    try:
        names = os.listdir("/sys/devices/system/node")  # noqa: PTH208
    except OSError:
        return None
    return sum(name.startswith("node") and name[4:].isdigit() for name in names) or None


def restore_command(topic: str) -> str:
    """What is gone comes back from a backup only."""
    return f"virta restore BACKUP NEW_LOG --topic {shlex.quote(topic)}"


def gather_topics(catalog: Catalog, now_us: int) -> tuple[list[PartitionFacts], list[Problem]]:
    facts: list[PartitionFacts] = []
    broken: list[Problem] = []
    try:
        names = catalog.names()
    except VirtaError as error:
        return [], [Problem(message=error.message, file=str(catalog.paths.topics))]
    for name in names:
        try:
            partitions = catalog.load(name).config.partitions
        except VirtaError as error:
            file = str(catalog.paths.topic(name).topic_file)
            cure = restore_command(name)
            broken.append(Problem(message=error.message, topic=name, file=file, cure=cure))
            continue
        for number in range(partitions):
            paths = catalog.paths.topic(name).partition(number)
            facts.append(gather_partition(catalog.files, paths, name, number, now_us))
    return facts, broken


def gather_partition(
    files: Files, paths: PartitionPaths, topic: str, number: int, now_us: int
) -> PartitionFacts:
    try:
        return _gather_partition(files, paths, topic, number, now_us)
    except VirtaError as error:
        reason = error.message
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error} ({error.filename})"
    return PartitionFacts(topic=topic, number=number, root=paths.root, error=reason)


def _gather_partition(
    files: Files, paths: PartitionPaths, topic: str, number: int, now_us: int
) -> PartitionFacts:
    known = _read_state(files, paths)
    current = manifest.load(files, paths.manifest)
    names = files.names(paths.root)
    data = [paths.data(entry.base, entry.generation) for entry in current.segments]
    chains = [paths.chain(entry.base, entry.generation) for entry in current.segments]
    leftovers = find_leftovers(files, paths, current, now_us=now_us)
    if leftovers and manifest.load(files, paths.manifest).generation != current.generation:
        leftovers = []  # a roll went on meanwhile
    return PartitionFacts(
        topic=topic,
        number=number,
        root=paths.root,
        flags=known.flags if known else 0,
        has_state=known is not None,
        newest_us=_newest_us(files, paths, current),
        missing_data=tuple(path for path in data if path.name not in names),
        missing_chains=tuple(path for path in chains if path.name not in names),
        evidence=tuple(paths.root / name for name in names if TORN_MARK in name),
        leftovers=tuple(leftovers),
    )


def _read_state(files: Files, paths: PartitionPaths) -> state.State | None:
    descriptor = files.open(paths.lock)
    try:
        return state.parse(files.pread(descriptor, state.READ_SIZE, 0))
    finally:
        files.close(descriptor)


def _newest_us(files: Files, paths: PartitionPaths, current: Manifest) -> int | None:
    """The time of the newest block, from the last header of the active chain file."""
    entry = current.active
    try:
        descriptor = files.open(paths.chain(entry.base, entry.generation))
    except OSError:
        return None
    try:
        count = files.size(descriptor) // HEADER_SIZE
        if not count:
            return None
        data = files.pread(descriptor, HEADER_SIZE, (count - 1) * HEADER_SIZE)
        return chain.unpack_header(data).max_timestamp if len(data) == HEADER_SIZE else None
    finally:
        files.close(descriptor)
