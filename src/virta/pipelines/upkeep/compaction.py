"""Compaction on Spark: what is out of date is found by a shuffle over keys, and rewritten by tasks.

 1. Each segment is a task that reads the keys of its rows and gives, for each row, the hash and
    the mark of its key (see `steward.seen`) and the row's place. Spark brings rows of one key
    together, whichever segments they were in.
 2. Where they meet, the newest of each key is known. The places of the others are written, as
    plain arrays, into a directory beside the topics, which this process reads back.
 3. From here on it is the steward's own compaction: which segments lose enough, which deletions
    may go, which neighbours become one (`steward.compaction.choose`, `grouped`).
 4. Each group is a task that writes it anew; the results take effect here, oldest first.

This process holds one bit for each row, and nothing of any key.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from virta.errors import UnavailableError
from virta.memory.partition import Partition
from virta.memory.rewrite import Rewritten
from virta.pipelines.spark_engine import register, told
from virta.pipelines.upkeep.pieces import SegmentPiece, all_segments
from virta.pipelines.upkeep.rewriting import plan, rewrite_all, rewriter
from virta.pipelines.upkeep.tasks import Run
from virta.steward.compaction import (
    Found,
    Sizes,
    choose,
    grouped,
    live_rows,
    portions,
    read_keys,
    row_starts,
)
from virta.steward.joining import plan_joins
from virta.steward.rewriting import COMPACTED, JOINED
from virta.steward.seen import Marks
from virta.storage import manifest
from virta.storage.manifest import Entry
from virta.storage.rewrite import SourcesChanged, rewritable
from virta.storage.segment import Segment, StoredBlock
from virta.topics.keys import always_exact, hash_columns
from virta.types import TopicConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Sizes", "SparkScan", "compact", "join"]

# A row's place: its segment's number in the upper bits, its own in the lower ones.
_ROW_BITS = 40
_ROW_MASK = (1 << _ROW_BITS) - 1
# Rows whose keys meet in one task: some forty bytes each.
_ROWS_PER_TASK = 2_000_000
_SCHEMA = "part int, hash bigint, mark bigint, place bigint, deletes boolean"
_ARROW = pa.schema(
    [
        ("part", pa.int32()),
        ("hash", pa.int64()),
        ("mark", pa.int64()),
        ("place", pa.int64()),
        ("deletes", pa.bool_()),
    ]
)

Indices = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]


# -- reading keys: a task for each segment ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """What all tasks know."""

    keys: tuple[str, ...]
    seed: bytes
    exact: bool
    deletions_before_us: int
    parts: int


@dataclass
class _KeysOf(InputPartition):
    number: int
    segment: SegmentPiece
    is_sealed: bool


def keys_of(scan: _Scan, task: _KeysOf) -> Iterator[pa.RecordBatch]:
    """Hash, mark and place of the key of every row of a segment."""
    segment, marks = task.segment.open(), Marks(scan.seed)
    starts = row_starts(segment, task.segment.blocks)
    for start, stop in portions(starts):
        columns, deleted, times = read_keys(segment, start, stop, scan.keys)
        if not len(times):
            continue
        hashes = hash_columns(columns)
        found = np.zeros(len(hashes), np.uint64) if scan.exact else marks.of(columns)
        places = (task.number << _ROW_BITS) + int(starts[start]) + np.arange(len(hashes), dtype=np.int64)
        deletes = np.zeros(len(hashes), np.bool_)
        if deleted is not None and task.is_sealed:
            deletes = deleted & (times < scan.deletions_before_us)
        part = (hashes % np.uint64(scan.parts)).astype(np.int32)
        columns = [part, hashes.view(np.int64), found.view(np.int64), places, deletes]
        yield pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=_ARROW)


# -- where keys meet ----------------------------------------------------------------------------------


def meet(hashes: Indices, marks: Indices, places: Indices, deletes: npt.NDArray[np.bool_]) -> Arrays:
    """Rows of some keys, all there are of each: which are out of date, and which deletions may go.

    `covered` are older rows under a deletion that may go: their segment, and the hash of their key.
    """
    order = np.lexsort((places, marks, hashes))
    hashes, marks, places, deletes = hashes[order], marks[order], places[order], deletes[order]
    newest = np.ones(len(places), np.bool_)
    newest[:-1] = (hashes[1:] != hashes[:-1]) | (marks[1:] != marks[:-1])
    group: Indices = np.cumsum(newest) - newest  # the newest row ends its group
    goes = newest & deletes
    under = (~newest) & goes[newest][group] if len(places) else newest
    covered = np.unique(np.stack([places[under] >> _ROW_BITS, hashes[under]]), axis=1)
    return {
        "dead": np.sort(places[~newest]),
        "deletions": places[goes],
        "deletion_hashes": hashes[goes],
        "covered_segments": covered[0],
        "covered_hashes": covered[1],
    }


@dataclass
class _Left(WriterCommitMessage):
    """The file that a task has left, if it found anything."""

    name: str | None


class _MeetingWriter(DataSourceArrowWriter):
    """Takes the rows of some parts, and leaves what was found of them in a file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        table = pa.Table.from_batches(list(iterator), schema=_ARROW)
        if not table.num_rows:
            return _Left(None)
        columns = [
            table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
            for name in ("hash", "mark", "place", "deletes")
        ]
        return _Left(_save(self._directory, meet(*columns)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        names = [each.name for each in messages if isinstance(each, _Left) and each.name is not None]
        (self._directory / _FILES).write_text(json.dumps(names))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Only files that `commit` lists are read."""


_FILES = "files.json"


def _save(directory: Path, found: Arrays) -> str:
    path = directory / f"{uuid.uuid4().hex}.npz"
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **found)
        file.flush()
        os.fsync(file.fileno())
    return path.name


# -- the scan -----------------------------------------------------------------------------------------


class SparkScan:
    """Finds what is out of date in a partition."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark = spark
        self._scratch = scratch

    def __call__(self, partition: Partition, config: TopicConfig, now_us: int) -> list[Found]:
        segments = all_segments(partition)
        with _directory(self._scratch) as directory:
            self._shuffle(segments, config, now_us, directory)
            open_ = [segment.open() for segment in segments[: _count_rewritable(segments)]]
            return _gathered(open_, directory)

    def _shuffle(
        self, segments: Sequence[SegmentPiece], config: TopicConfig, now_us: int, directory: Path
    ) -> None:
        schema = segments[-1].schema
        kinds = [(schema.field(key).type, schema.field(key).nullable) for key in config.keys]
        rows = sum(segment.entry.rows for segment in segments)
        scan = _Scan(
            keys=config.keys,
            seed=os.urandom(32),
            exact=always_exact(kinds),
            deletions_before_us=now_us - int(config.tombstone_age_seconds * 1_000_000),
            parts=max(2, rows // _ROWS_PER_TASK + 1),
        )
        sealed = _count_rewritable(segments)
        tasks = [
            _KeysOf(number=number, segment=segment, is_sealed=number < sealed)
            for number, segment in enumerate(segments)
        ]
        reading, writing = _key_source(scan, tasks), _meeting(directory)
        register(self._spark, reading)
        register(self._spark, writing)
        frame = self._spark.read.format(reading.name()).load()
        try:
            frame = frame.repartitionById(scan.parts, frame["part"])
            frame.write.format(writing.name()).mode("append").save()
        except PySparkException as error:
            raise told(error) from error
        if not (directory / _FILES).exists():
            raise UnavailableError(
                f"Spark's tasks left what they found elsewhere than in {directory}",
                hint="driver and workers have to see the log's directory at the same path",
            )


def _count_rewritable(segments: Sequence[SegmentPiece]) -> int:
    return len(rewritable([segment.entry for segment in segments]))


def _key_source(scan: _Scan, tasks: Sequence[_KeysOf]) -> type[DataSource]:
    class Keys(DataSource):
        @classmethod
        def name(cls) -> str:
            return "virta_keys"

        def schema(self) -> str:
            return _SCHEMA

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return _KeyReader(scan, tasks)

    return Keys


class _KeyReader(DataSourceReader):
    def __init__(self, scan: _Scan, tasks: Sequence[_KeysOf]) -> None:
        self._scan = scan
        self._tasks = tasks

    def __getstate__(self) -> dict[str, Any]:
        return {"_scan": self._scan, "_tasks": ()}  # a task gets its own

    def partitions(self) -> Sequence[InputPartition]:
        return list(self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _KeysOf)
        yield from keys_of(self._scan, partition)


def _meeting(directory: Path) -> type[DataSource]:
    class Meeting(DataSource):
        @classmethod
        def name(cls) -> str:
            return "virta_meeting"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
            return _MeetingWriter(directory)

    return Meeting


@contextmanager
def _directory(scratch: Path) -> Iterator[Path]:
    """A directory of this run alone, which driver and workers see."""
    place = scratch / f".upkeep-{uuid.uuid4().hex}"
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _gathered(segments: Sequence[Segment], directory: Path) -> list[Found]:
    """What the files in the directory say of each segment."""
    found = []
    for segment in segments:
        starts = row_starts(segment, segment.entry.blocks)
        live = np.packbits(np.ones(int(starts[-1]), np.bool_))
        found.append(Found(segment=segment, live=live, starts=starts))
    for name in json.loads((directory / _FILES).read_text()):
        with np.load(directory / name) as arrays:
            _take(found, {each: arrays[each] for each in arrays.files})
    return found


def _take(found: Sequence[Found], part: Arrays) -> None:
    count = len(found)
    for number, rows in _by_segment(part["dead"], part["dead"], count):
        found[number].drop(rows & _ROW_MASK)
    hashes = part["deletion_hashes"].view(np.uint64)
    order = np.argsort(part["deletions"])
    places, hashes = part["deletions"][order], hashes[order]
    for number, at in _by_segment(places, np.arange(len(places)), count):
        each = found[number]
        each.deletions = np.concatenate([each.deletions, places[at] & _ROW_MASK])
        each.deletion_hashes = np.concatenate([each.deletion_hashes, hashes[at]])
    covered = part["covered_hashes"].view(np.uint64)
    for number in range(count):
        here = covered[part["covered_segments"] == number]
        if len(here):
            found[number].covered.append(here)


def _by_segment(places: Indices, rows: Indices, count: int) -> Iterator[tuple[int, Indices]]:
    """Rising places, by their segment."""
    bounds = np.searchsorted(places, np.arange(count + 1, dtype=np.int64) << _ROW_BITS)
    for number in range(count):
        if bounds[number + 1] > bounds[number]:
            yield number, rows[bounds[number] : bounds[number + 1]]


# -- writing anew -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """Which rows of a segment stay: a bit for each, and where its blocks begin."""

    live: npt.NDArray[np.uint8]
    starts: Indices


def _keep_live(known: Sequence[_Live], _: Sequence[Segment]) -> Any:
    def keep(source: int, index: int, __: StoredBlock) -> Any:
        return live_rows(known[source].live, known[source].starts, index)

    return keep


def _keep_all(_: Any, __: Sequence[Segment]) -> Any:
    return lambda _source, _index, _stored: None


def compact(
    partition: Partition,
    config: TopicConfig,
    run: Run,
    scan: Callable[[Partition, TopicConfig, int], list[Found]],
    now_us: int,
    *,
    force: bool,
    advance: Callable[[int], None],
) -> Iterator[Rewritten]:
    """What is out of date goes. The partition is this process's alone to rewrite."""
    found = scan(partition, config, now_us)
    pieces = {segment.entry: segment for segment in all_segments(partition)}
    groups = []
    for group in grouped(choose(found, force=force), segment_bytes=config.segment_bytes):
        if any(each.entry not in pieces for each in group):
            raise SourcesChanged
        known = [_Live(live=each.live, starts=each.starts) for each in group]
        flags = manifest.COMPACTED | manifest.JOINED
        groups.append(([pieces[each.entry] for each in group], known, flags))
    write = rewriter(_keep_live, compression=config.compression, join=True)
    yield from rewrite_all(partition, run, plan(partition, groups), write, COMPACTED, advance)


def join(
    partition: Partition,
    config: TopicConfig,
    run: Run,
    *,
    force: bool,
    advance: Callable[[int], None],
) -> Iterator[Rewritten]:
    """Small blocks and small segments become large ones."""
    pieces = {segment.entry: segment for segment in all_segments(partition)}
    found = plan_joins(list(pieces), segment_bytes=config.segment_bytes, force=force)
    groups = [([pieces[entry] for entry in group], None, _joined_flags(group)) for group in found]
    write = rewriter(_keep_all, compression=config.compression, join=True)
    yield from rewrite_all(partition, run, plan(partition, groups), write, JOINED, advance)


def _joined_flags(group: Sequence[Entry]) -> int:
    was_compacted = all(entry.flags & manifest.COMPACTED for entry in group)
    return manifest.JOINED | (manifest.COMPACTED if was_compacted else 0)
