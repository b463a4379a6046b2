"""The doctor: what is wrong with a machine or a log, and the command that cures it.

Facts are gathered first (see `facts`: what the system and the files say), then judged by pure
functions, so every judgement can be tried on made-up facts. Nothing is changed here:
`storage.repair` does that on request, and the steward clears up.

A finding is a `Problem`: "damage" (rows or writing are affected), "warning" (it will
hurt some day) or "notice" (good to know), with a command as its cure where there is one.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virta.clock import Clock, SystemClock
from virta.metadata.catalog import Catalog
from virta.steward.facts import (
    MachineFacts,
    PartitionFacts,
    gather_machine,
    gather_topics,
    restore_command,
)
from virta.storage import state
from virta.storage.filesystem import is_network
from virta.storage.repair import repair_partition
from virta.storage.verify import repair_command
from virta.topics.topic import Topic
from virta.types import Problem

GIB = 1024**3
# Below either, the next busy day may fill the disk.
_LITTLE_SPACE_BYTES = GIB
_LITTLE_SPACE_SHARE = 0.05
# Descriptors of a partition that is written and read: two views of three files, lock and turnstile.
_FILES_PER_PARTITION = 8
_FILES_OF_A_PROCESS = 64
# A reader watches its partition's directory and active chain file.
_WATCHES_PER_PARTITION = 2
_FEW_INOTIFY_INSTANCES = 64
_EARLIEST_US = 1_577_836_800_000_000  # 2020: a clock before it was never set
_CLOCK_TOLERANCE_US = 1_000_000
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
_UNSAFE_OPTIONS = ("nobarrier", "barrier=0", "data=writeback")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """What was looked at, in words, and what was found, the worst first."""

    checked: tuple[str, ...]
    findings: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(finding.severity == "damage" for finding in self.findings)


_ORDER = {"damage": 0, "warning": 1, "notice": 2}


def examine(catalog: Catalog, clock: Clock | None = None) -> DoctorReport:
    """Look at the machine and at every partition of a log."""
    now_us = (clock or SystemClock()).now_us()
    machine = gather_machine(catalog.paths.root, now_us)
    partitions, broken = gather_topics(catalog, now_us)
    findings = [*broken, *judge(machine, partitions)]
    return DoctorReport(
        checked=tuple(_describe(machine, partitions)),
        findings=tuple(sorted(findings, key=lambda finding: _ORDER.get(finding.severity, 3))),
    )


def repair(topic: Topic, catalog: Catalog, clock: Clock | None = None) -> list[str]:
    """Cure what has a cure in a topic; what was done, in words. For `virta doctor --repair TOPIC`."""
    record = catalog.load(topic.name)
    done = []
    for partition in topic.partitions:
        stored = partition.stored
        schema_of = functools.partial(catalog.schema, record)
        told = repair_partition(
            catalog.files, stored.paths, stored.identity, schema_of, clock or SystemClock()
        )
        done += [f"partition {partition.number}: {text}" for text in told]
    return done


# -- judging ------------------------------------------------------------------------------------


def judge(machine: MachineFacts, partitions: list[PartitionFacts]) -> list[Problem]:
    """All findings. Pure: the same facts give the same answer."""
    findings: list[Problem] = []
    for judge_one in _MACHINE_JUDGES:
        findings += judge_one(machine, len(partitions))
    findings += judge_clock(machine, partitions)
    for partition in partitions:
        findings += judge_partition(partition)
    return findings


def judge_space(machine: MachineFacts, _: int) -> Iterator[Problem]:
    free, total = machine.free_bytes, machine.total_bytes
    if free is None or not total:
        return
    if free < _LITTLE_SPACE_BYTES or free < total * _LITTLE_SPACE_SHARE:
        yield Problem(
            message=f"little space is left: {_size(free)} of {_size(total)}",
            severity="warning",
            file=str(machine.root),
            cure="virta topic alter TOPIC --retention-bytes SIZE; virta steward --once",
        )


def judge_open_files(machine: MachineFacts, partitions: int) -> Iterator[Problem]:
    limit = machine.open_file_limit
    needed = _FILES_OF_A_PROCESS + _FILES_PER_PARTITION * partitions
    if limit is not None and limit < needed:
        yield Problem(
            message=f"a process may open {limit} files; all {partitions} partitions together take {needed}",
            severity="warning",
            cure=f"ulimit -n {_round_up(needed)}",
        )


def judge_inotify(machine: MachineFacts, partitions: int) -> Iterator[Problem]:
    if machine.inotify_failure is not None:
        yield Problem(
            message=f"readers poll instead of being woken: {machine.inotify_failure}",
            severity="warning",
            cure=_inotify_cure(machine),
        )
        return
    needed = _WATCHES_PER_PARTITION * partitions
    if machine.inotify_watches is not None and machine.inotify_watches < 2 * needed:
        yield Problem(
            message=f"{machine.inotify_watches} inotify watches are allowed, and readers of all "
            f"{partitions} partitions need {needed} per process",
            severity="warning",
            cure=f"sudo sysctl fs.inotify.max_user_watches={max(524288, _round_up(4 * needed))}",
        )
    if machine.inotify_instances is not None and machine.inotify_instances < _FEW_INOTIFY_INSTANCES:
        yield Problem(
            message=f"only {machine.inotify_instances} processes of a user can be woken by inotify",
            severity="notice",
            cure="sudo sysctl fs.inotify.max_user_instances=1024",
        )


def _inotify_cure(machine: MachineFacts) -> str | None:
    if machine.inotify_instances is None:
        return None
    if "watches" in (machine.inotify_failure or ""):
        return "sudo sysctl fs.inotify.max_user_watches=524288"
    return "sudo sysctl fs.inotify.max_user_instances=1024"


def judge_file_system(machine: MachineFacts, _: int) -> Iterator[Problem]:
    mount = machine.mount
    if mount is None:
        return
    move = f"cp -a {shlex.quote(str(machine.root))} /a/local/disk"
    if is_network(mount.kind):
        yield Problem(
            message=f"the log lies on a network file system ({mount.kind}), where locks cannot be trusted",
            severity="warning",
            file=str(machine.root),
            cure=move,
        )
    elif mount.kind in _MEMORY_FILE_SYSTEMS:
        yield Problem(
            message=f"the log lies in memory ({mount.kind}): a restart takes it away, at any durability",
            severity="notice",
            file=str(machine.root),
            cure=move,
        )
    unsafe = [option for option in mount.options if option in _UNSAFE_OPTIONS]
    if unsafe:
        yield Problem(
            message=f"the file system is mounted with {', '.join(unsafe)}: a sync may not last a power loss",
            severity="warning",
            file=mount.point,
            cure=f"sudo mount -o remount,barrier=1 {shlex.quote(mount.point)}",
        )
    if "ro" in mount.options:
        yield Problem(
            message="the file system is mounted read-only: the log can be read, not written",
            severity="notice",
            file=mount.point,
            cure=f"sudo mount -o remount,rw {shlex.quote(mount.point)}",
        )


def judge_kernel(machine: MachineFacts, _: int) -> Iterator[Problem]:
    """Settings that only matter on some machines: said only where they do."""
    if (machine.numa_nodes or 1) > 1 and machine.zone_reclaim_mode:
        yield Problem(
            message=f"{machine.numa_nodes} NUMA nodes with zone reclaim: the page cache, from which "
            "replays are served, is thrown away while memory is free elsewhere",
            severity="warning",
            cure="sudo sysctl vm.zone_reclaim_mode=0",
        )
    if machine.aio_limit and machine.aio_used is not None and machine.aio_used >= machine.aio_limit:
        yield Problem(
            message=f"all {machine.aio_limit} asynchronous requests of the kernel are taken: "
            "storage on this machine may stall or refuse to start",
            severity="warning",
            cure=f"sudo sysctl fs.aio-max-nr={_round_up(4 * machine.aio_limit)}",
        )


_MACHINE_JUDGES: tuple[Callable[[MachineFacts, int], Iterator[Problem]], ...] = (
    judge_space,
    judge_open_files,
    judge_inotify,
    judge_file_system,
    judge_kernel,
)


def judge_clock(machine: MachineFacts, partitions: list[PartitionFacts]) -> Iterator[Problem]:
    cure = "sudo timedatectl set-ntp true"
    if machine.now_us < _EARLIEST_US:
        yield Problem(message="the clock stands before 2020: it was never set", severity="warning", cure=cure)
        return
    ahead = [
        (partition.newest_us - machine.now_us, partition)
        for partition in partitions
        if partition.newest_us is not None and partition.newest_us > machine.now_us + _CLOCK_TOLERANCE_US
    ]
    if ahead:
        lead, worst = max(ahead, key=lambda pair: pair[0])
        yield Problem(
            message=f"the clock is {lead / 1e6:,.0f} seconds behind the newest row: new rows get that "
            "row's time until it has caught up",
            severity="warning",
            topic=worst.topic,
            partition=worst.number,
            cure=cure,
        )


def judge_partition(facts: PartitionFacts) -> Iterator[Problem]:
    """What is wrong with one partition's files."""

    def problem(message: str, severity: str, file: Path | None = None, cure: str | None = None) -> Problem:
        return Problem(
            message=message,
            severity=severity,
            topic=facts.topic,
            partition=facts.number,
            file=str(file if file is not None else facts.root),
            cure=cure,
        )

    mend = repair_command(facts.topic)
    restore = restore_command(facts.topic)
    if facts.error is not None:
        yield problem(facts.error, "damage", cure=restore)
        return
    if facts.flags & state.FAILED:
        yield problem("a sync failed, so the partition takes no more rows", "damage", cure=mend)
    if not facts.has_state:
        text = "the state record is not readable; the next append writes it again"
        yield problem(text, "warning", cure=mend)
    for path in facts.missing_data:
        yield problem("a data file is missing", "damage", path, restore)
    for path in facts.missing_chains:
        yield problem("a chain file is missing; it is made again from its data", "warning", path, mend)
    for path in facts.evidence:
        text = "evidence of a crash that was recovered; remove it when nobody needs it"
        yield problem(text, "notice", path, f"rm {shlex.quote(str(path))}")
    for path in facts.leftovers:
        yield problem("left by a change that was interrupted", "notice", path, "virta steward --once")


def _round_up(number: int) -> int:
    return 1 << max(10, (number - 1).bit_length())


def _size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _describe(machine: MachineFacts, partitions: list[PartitionFacts]) -> Iterator[str]:
    topics = len({partition.topic for partition in partitions})
    yield f"files of {len(partitions)} partitions in {topics} topics"
    if machine.free_bytes is not None and machine.total_bytes is not None:
        yield f"space: {_size(machine.free_bytes)} of {_size(machine.total_bytes)} free"
    if machine.mount is not None:
        yield f"file system: {machine.mount.kind}"
    if machine.open_file_limit is not None:
        yield f"open files: up to {machine.open_file_limit}"
    if machine.inotify_watches is not None:
        yield f"inotify: {machine.inotify_watches} watches, {machine.inotify_instances} instances"
    yield "clock"
