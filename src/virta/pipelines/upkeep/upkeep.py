"""The front of the upkeep: a log, a Spark, and the three things to be done with a topic."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import virta
from virta.client.log import RemoteLog
from virta.errors import UnavailableError, UsageError
from virta.log import Log
from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten, event_of
from virta.pipelines.upkeep import compaction, verification
from virta.pipelines.upkeep.erasure import TaskEraser
from virta.pipelines.upkeep.pieces import SegmentGone
from virta.pipelines.upkeep.tasks import Run, on_spark
from virta.steward.report import PartitionReport, StewardReport
from virta.steward.rewriting import seal
from virta.steward.steward import report_of
from virta.storage import state
from virta.storage.rewrite import SourcesChanged, rewriting_alone, unlink_asides
from virta.topics.topic import Topic
from virta.topics.verify import Against
from virta.types import Erasure, Kind, TopicConfig, VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Upkeep:
    """The heavy work over a log's topics, on Spark. The log is a directory that all workers see."""

    def __init__(
        self,
        log: Log | str | os.PathLike[str],
        *,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        self._owned = not isinstance(log, Log)
        opened: Any = log if isinstance(log, Log) else virta.open(log, create=False)
        if isinstance(opened, RemoteLog):
            if self._owned:
                opened.close()
            raise UsageError(
                f"{log} is served: Spark's workers need the log's own directory",
                hint="run it where the directory is, with its path",
            )
        self._log: Log = opened
        self._master = master
        self._conf = dict(conf or {})
        self._session = spark

    def __enter__(self) -> Upkeep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._owned:
            self._log.close()

    @property
    def spark(self) -> SparkSession:
        if self._session is None:
            from virta.spark.session import session

            self._session = session(self._master, name="virta upkeep", conf=self._conf)
        return self._session

    @property
    def _run(self) -> Run:
        return on_spark(self.spark)

    # -- the work ---------------------------------------------------------------------------------------

    def verify(self, topic: str, *, against: Against = None, progress: Any = None) -> VerifyReport:
        """Check every byte of a topic; the report is `topic.verify`'s."""
        partitions = _stored(self._log.topic(topic))
        return verification.verify(partitions, self._run, against=against, progress=progress)

    def erase(
        self,
        topic: str,
        *,
        where: str | None = None,
        keys: Any = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Erasure:
        """Erase rows for good, from every file; all that `topic.erase` says holds."""
        eraser = functools.partial(TaskEraser, run=self._run)
        try:
            return self._log.topic(topic)._erase_by(
                eraser, where=where, keys=keys, dry_run=dry_run, progress=progress
            )
        except SegmentGone:
            raise UnavailableError(
                f"segments of topic {topic!r} were rewritten meanwhile", hint="try again a little later"
            ) from None

    def compact(
        self, topic: str, *, force: bool = False, progress: Callable[[int], None] | None = None
    ) -> StewardReport:
        """Compact an update topic, and join small blocks: what a round of the steward would rewrite.

        A topic is compacted where that pays; with `force`, wherever anything goes.
        """
        found = self._log.topic(topic)
        advance = progress or (lambda _: None)
        parts: list[PartitionReport] = []
        for partition in _stored(found):
            for done in self._compact(partition, found.config, force=force, advance=advance):
                event = event_of(partition, done.reason, done, topic_version=found.version)
                self._log.record_event(event)
                parts.append(report_of(partition, done))
        return StewardReport(dry_run=False, topics=1, partitions=tuple(parts))

    def _compact(
        self, partition: Partition, config: TopicConfig, *, force: bool, advance: Callable[[int], None]
    ) -> Iterator[Rewritten]:
        with partition.view() as view:
            if view.state.flags & (state.LOCKED | state.DROPPED):
                return
            sizes = compaction.Sizes.of(view.manifest.segments, view.data_end)
        with rewriting_alone(partition.files, partition.paths) as alone:
            if not alone:
                raise UnavailableError(
                    f"another process rewrites {partition.paths.root}", hint="wait for it, or stop it"
                )
            try:
                is_table = config.kind is Kind.UPDATE and bool(config.keys)
                if is_table and (force or sizes.is_due(config.compaction_ratio)):
                    if sizes.seals_active or (force and sizes.active):
                        seal(partition)
                    scan = compaction.SparkScan(self.spark, Path(self._log.path))
                    yield from compaction.compact(
                        partition,
                        config,
                        self._run,
                        scan,
                        time.time_ns() // 1000,
                        force=force,
                        advance=advance,
                    )
                if config.join_blocks:
                    yield from compaction.join(partition, config, self._run, force=force, advance=advance)
            except (SourcesChanged, SegmentGone):
                return  # somebody erased or removed rows meanwhile; the next run plans anew
            finally:
                unlink_asides(partition.files, partition.paths)


def _stored(topic: Topic) -> list[Partition]:
    return [partition.stored for partition in topic.partitions]
