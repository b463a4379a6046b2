"""The steward: what neither producers nor consumers do. Retention, compaction, joining, clearing up.

It runs in any process that has the log open, once or every so often; several at a time
do no harm, since each partition is planned anew under its lock. A topic that cannot be
looked after (locked, damaged, busy) is reported and does not keep the others waiting.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from virta.clock import Clock, SystemClock
from virta.errors import Locked, NotFound, VirtaError
from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten, event_of
from virta.steward.report import PartitionReport, StewardReport
from virta.steward.retention import ActiveSegment, RetentionPlan, has_retention, plan_retention
from virta.steward.rewriting import Progress, Rewriting
from virta.storage import chain, state
from virta.storage.chain import HEADER_SIZE
from virta.storage.files import storage_error
from virta.storage.removal import Removal, clean, find_leftovers, remove_oldest
from virta.storage.view import View
from virta.topics.topic import Topic
from virta.types import Event, TopicConfig

__all__ = ["PartitionReport", "Progress", "Steward", "StewardReport", "look_after"]

_log = logging.getLogger("virta.steward")


class StewardLog(Protocol):
    """What the steward asks of a log."""

    def topics(self) -> list[str]: ...
    def topic(self, name: str) -> Topic: ...
    def record_event(self, event: Event) -> bool: ...


class Steward:
    """Looks after a log: once with `run_once`, or every `interval` seconds in a thread of its own."""

    def __init__(self, log: StewardLog, *, interval: float = 60.0, clock: Clock | None = None) -> None:
        self._log = log
        self._interval = interval
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._rewriting = Rewriting()
        self._progress: Callable[[Progress], None] | None = None
        self.last_report: StewardReport | None = None

    def run_once(
        self,
        *,
        dry_run: bool = False,
        topic: str | None = None,
        force: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> StewardReport:
        """One round over all topics, or over one. With `force`, what does not pay yet is done as well."""
        names = self._log.topics() if topic is None else [topic]
        self._progress = progress
        found = [part for name in names for part in self._topic(name, dry_run, force)]
        self.last_report = StewardReport(
            dry_run=dry_run, topics=len(names), partitions=tuple(part for part in found if part)
        )
        return self.last_report

    def _topic(self, name: str, dry_run: bool, force: bool) -> list[PartitionReport]:
        try:
            topic = self._log.topic(name)
            config, version = topic.config, topic.version
            partitions = [partition.stored for partition in topic.partitions]
        except NotFound:
            return []  # dropped meanwhile
        except VirtaError as error:
            return [PartitionReport(topic=name, partition=0, error=str(error))]
        return [
            report
            for partition in partitions
            for report in self._partition(config, version, partition, dry_run, force)
        ]

    def _note_removal(self, partition: Partition, version: int, removed: PartitionReport) -> None:
        """For `__events`; the receipt in the chain is there in any case."""
        self._log.record_event(
            Event(
                kind="retained",
                topic=removed.topic,
                topic_id=partition.identity.topic_id.hex(),
                version=version,
                partition=removed.partition,
                from_offset=removed.from_offset,
                to_offset=removed.to_offset,
                details={
                    "rows": removed.rows,
                    "bytes": removed.bytes,
                    "segments": removed.segments,
                    "reason": removed.reason,
                },
            )
        )

    def _partition(
        self, config: TopicConfig, version: int, partition: Partition, dry_run: bool, force: bool
    ) -> Iterator[PartitionReport]:
        identity = partition.identity
        now = self._clock.now_us()
        try:
            removed = look_after(partition, config, now, dry_run=dry_run)
            if removed is not None:
                if removed.segments and not dry_run:
                    self._note_removal(partition, version, removed)
                yield removed
            for done in self._rewriting.run(
                partition, config, now, dry_run=dry_run, force=force, progress=self._progress
            ):
                if not dry_run:
                    self._log.record_event(event_of(partition, done.reason, done, topic_version=version))
                yield report_of(partition, done)
            return
        except (NotFound, Locked):
            return
        except VirtaError as error:
            failure = str(error)
        except OSError as error:
            failure = str(storage_error(error, partition.paths.root, "looking after"))
        yield PartitionReport(topic=identity.topic, partition=identity.number, error=failure)

    # -- in the background ----------------------------------------------------------------------

    def start(self) -> Steward:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="virta-steward", daemon=True)
            self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                report = self.run_once()
            except VirtaError as error:
                _log.error("the steward's run failed: %s", error)
            else:
                for part in report.partitions:
                    if part.error is not None:
                        _log.error("%s, partition %d: %s", part.topic, part.partition, part.error)
            self._stop.wait(self._interval)

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Steward:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


# -- one partition ------------------------------------------------------------------------------


def look_after(
    partition: Partition, config: TopicConfig, now_us: int, *, dry_run: bool = False
) -> PartitionReport | None:
    """Do what is due in a partition; None when nothing is. The lock is only taken if something is."""
    with partition.view() as view:
        if view.state.flags & (state.LOCKED | state.DROPPED):
            return None
        plan = plan_for(view, config, now_us)
        strays = find_leftovers(partition.files, partition.paths, view.manifest, now_us=now_us)
        next_offset = view.next_offset
    if not plan and not strays:
        return None
    if dry_run:
        removal = _announced(plan, next_offset) if plan else None
        return _report(partition, plan, removal, tuple(path.name for path in strays))
    return _act(partition, config, now_us)


def _announced(plan: RetentionPlan, next_offset: int) -> Removal:
    """What a plan would remove."""
    return Removal(
        from_offset=plan.from_offset,
        to_offset=next_offset if plan.to_offset is None else plan.to_offset,
        segments=plan.remove,
        rows=plan.rows,
        bytes=plan.bytes,
    )


def _act(partition: Partition, config: TopicConfig, now_us: int) -> PartitionReport:
    """Plan again with the lock held, and do it."""
    removal = None
    with partition.writing() as committer:
        plan = plan_for(committer.view, config, now_us)
        if plan:
            if plan.seal:
                committer.roll()
            removal = remove_oldest(committer, plan.remove, plan.reason)
            held = partition.tail.bounds()
            if held is not None and held[0] < removal.to_offset:
                partition.tail.clear()  # what is gone is gone for this process's readers too
        cleaned = clean(committer, now_us=now_us)
    return _report(partition, plan, removal, tuple(path.name for path in cleaned))


def _report(
    partition: Partition, plan: RetentionPlan, removal: Removal | None, cleaned: tuple[str, ...]
) -> PartitionReport:
    place = PartitionReport(
        topic=partition.identity.topic, partition=partition.identity.number, cleaned=cleaned
    )
    if removal is None:
        return place
    return dataclasses.replace(place, **dataclasses.asdict(removal), sealed=plan.seal, reason=plan.reason)


def report_of(partition: Partition, done: Rewritten) -> PartitionReport:
    """A rewrite as a round of the steward reports it."""
    return PartitionReport(
        topic=partition.identity.topic,
        partition=partition.identity.number,
        segments=done.before.segments,
        rows=done.rows_removed,
        bytes=done.bytes_freed,
        from_offset=done.from_offset,
        to_offset=done.to_offset,
        reason=done.reason,
    )


def plan_for(view: View, config: TopicConfig, now_us: int) -> RetentionPlan:
    if not has_retention(config):
        return RetentionPlan()
    return plan_retention(view.manifest.segments[:-1], active_segment(view), config, now_us)


def active_segment(view: View) -> ActiveSegment:
    """Rows, bytes and newest row of the active segment, from its chain; control blocks have no age."""
    headers = chain.as_array(view.active.read_chain(0, view.blocks * HEADER_SIZE))
    times = headers["max_timestamp"][headers["rows"] > 0]
    return ActiveSegment(
        rows=int(headers["rows"].sum()),
        bytes=view.data_end,
        newest_us=int(times.max()) if len(times) else 0,
    )
