"""A topic held still: every row up to one end offset per partition, to be read any number of times.

Queries read a topic differently from tails: all of it or one stretch of it, a few columns,
often more than once, and by threads that are not Python's. So nothing is decoded before it
is asked for, columns that were not asked for are not touched, and the bytes go from the
mapped segment to whoever computes with them without passing through Python objects.

What is mapped (sealed segments, and what is synced of the active one) is one Arrow stream
over its mapping; the rest comes in pieces of bounded size. Only the first and the last block
of a range are looked into; the chain says of all others that they lie inside.

Rows are held against the chain's count, but the bytes are not hashed: that would touch every
column. `verify` does it.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import Corrupt
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import unify
from virta.storage import block, chain
from virta.storage.files import storage_error
from virta.storage.segment import Segment
from virta.storage.structure import check_structure
from virta.storage.view import Stretch, View

if TYPE_CHECKING:
    import pyarrow.dataset

OFFSET, TIMESTAMP = "_offset", "_timestamp"
# Bytes that are read at once where nothing is mapped: enough to amortise, few enough to hold.
_PIECE_BYTES = 1024 * 1024
# Batches smaller than this cost their reader more than joining them does.
_SMALL_ROWS = 2048
_JOIN_ROWS = 64 * 1024
_NO_END = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets and microseconds: from, up to and not including. Open where nothing is said."""

    start: int = 0
    end: int = _NO_END
    since_us: int | None = None
    until_us: int | None = None

    @property
    def is_all(self) -> bool:
        return self == ALL

    def inside(self, other: Range) -> Range:
        """What lies in both."""
        return Range(
            start=max(self.start, other.start),
            end=min(self.end, other.end),
            since_us=_picked(max, self.since_us, other.since_us),
            until_us=_picked(min, self.until_us, other.until_us),
        )

    def cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch with the leading columns that lie in the range."""
        offsets, times = batch.column(0), batch.column(1)
        tests = [pc.greater_equal(offsets, self.start), pc.less(offsets, self.end)]
        if self.since_us is not None:
            tests.append(pc.greater_equal(times, _moment(self.since_us)))
        if self.until_us is not None:
            tests.append(pc.less(times, _moment(self.until_us)))
        mask = tests[0]
        for test in tests[1:]:
            mask = pc.and_(mask, test)
        return batch if mask.true_count == len(mask) else batch.filter(mask)


ALL = Range()


def _picked(choose: Any, *moments: int | None) -> int | None:
    said = [moment for moment in moments if moment is not None]
    return choose(said) if said else None


def _moment(microseconds: int) -> pa.Scalar:
    return pa.scalar(microseconds, pa.timestamp("us", tz="UTC"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Blocks `start` to `stop` of one segment; `mapped` when their bytes are, from the file's beginning."""

    segment: Segment
    start: int
    stop: int
    mapped: memoryview | None

    def let_go_of_pages(self) -> None:
        """What was read leaves this process's memory, not the system's cache: a read brings it back."""
        if self.mapped is not None and isinstance(self.mapped.obj, mmap.mmap):
            self.mapped.obj.madvise(mmap.MADV_DONTNEED)

    def part(self, start: int, stop: int) -> Run:
        return Run(segment=self.segment, start=start, stop=stop, mapped=self.mapped)


class PartitionSnapshot:
    """One partition up to one end offset. Its segments stay readable, whatever retention does."""

    def __init__(self, stored: StoredPartition) -> None:
        self.identity = stored.identity
        while True:
            with stored.view() as view:
                self.start, self.end = view.start_offset, view.next_offset
                stretches = view.plan(self.start, self.end)
                self.runs = [run for stretch in stretches for run in _runs(view, stretch)]
            # rows that are in memory only follow what is on disk
            self.tail = stored.tail.read(self.end, max_bytes=_NO_END)
            if self.tail or stored.tail.end_offset <= self.end:
                break
        if self.tail:
            self.end = self.tail[-1].header.end_offset

    def by_segment(self) -> Iterator[list[Run]]:
        """The runs of each segment, which together are its blocks from the first with rows on."""
        for _, runs in itertools.groupby(self.runs, key=lambda run: run.segment.entry.base):
            yield list(runs)

    def batches(self, schema: pa.Schema, columns: Sequence[int], wanted: Range) -> Iterator[pa.RecordBatch]:
        """The chosen columns of the rows in the range, in the form of `schema`."""
        for run in self.runs:
            narrowed = _narrowed(run, wanted)
            if narrowed.start < narrowed.stop:
                yield from self._read(narrowed, schema, columns, wanted)
        for stored in self.tail:
            if stored.header.rows:
                batch = wanted.cut(unify(stored.decode(), schema))
                yield batch.select(list(columns))

    def _read(
        self, run: Run, schema: pa.Schema, columns: Sequence[int], wanted: Range
    ) -> Iterator[pa.RecordBatch]:
        with reading(self, run.segment):
            if wanted.is_all:
                yield from blocks_of(run, schema, columns)
                return
            last = run.stop - 1
            yield from _edge(run.part(run.start, run.start + 1), schema, columns, wanted)
            if last > run.start:
                yield from blocks_of(run.part(run.start + 1, last), schema, columns)
                yield from _edge(run.part(last, run.stop), schema, columns, wanted)


@contextlib.contextmanager
def reading(snapshot: PartitionSnapshot, segment: Segment) -> Iterator[None]:
    """What goes wrong in reading a segment says where it was."""
    try:
        yield
    except Corrupt as error:
        error.topic, error.partition = snapshot.identity.topic, snapshot.identity.number
        raise
    except OSError as error:
        raise storage_error(error, segment.data_path, "reading") from error


def _runs(view: View, stretch: Stretch) -> Iterator[Run]:
    """A stretch as what is mapped and what is not: of the active segment all that is synced is.

    Nothing below the synced watermark is ever cut, so a mapping of it does not die.
    """
    segment, start, stop = stretch.segment, stretch.start, stretch.stop
    entry, known = segment.entry, view.state
    if not entry.is_active:
        data = segment.read_data(0, entry.data_length)
        yield Run(segment=segment, start=start, stop=stop, mapped=data)
        return
    synced = min(known.synced_blocks, stop) if known.is_of(entry) else 0
    if start < synced:
        data = _mapped(view, segment, known.synced_length)
        yield Run(segment=segment, start=start, stop=synced, mapped=data)
    if max(start, synced) < stop:
        yield Run(segment=segment, start=max(start, synced), stop=stop, mapped=None)


def _mapped(view: View, segment: Segment, length: int) -> memoryview | None:
    try:
        return memoryview(view.files.map(segment.data_descriptor, length))
    except ValueError:
        return None  # the file is shorter than what was synced: reading it tells what is damaged


def _narrowed(run: Run, wanted: Range) -> Run:
    """The blocks of a run that can hold rows in the range, found by bisection of the chain."""
    if wanted.is_all:
        return run
    headers = run.segment.headers(run.stop)
    start, stop = max(run.start, headers.first_ending_after(wanted.start)), run.stop
    if wanted.end < _NO_END:
        stop = min(stop, headers.first_ending_after(wanted.end - 1) + 1)
    if wanted.since_us is not None:
        start = max(start, headers.first_reaching(wanted.since_us))
    if wanted.until_us is not None:
        # times do not fall, so no block behind the first that reaches the end has older rows
        stop = min(stop, headers.first_reaching(wanted.until_us) + 1)
    return run.part(start, stop)


def _edge(run: Run, schema: pa.Schema, columns: Sequence[int], wanted: Range) -> Iterator[pa.RecordBatch]:
    """A block of which only some rows may be wanted."""
    for batch in blocks_of(run, schema, range(len(schema))):
        yield wanted.cut(batch).select(list(columns))


def blocks_of(run: Run, schema: pa.Schema, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """All rows of some blocks, a batch for each that has any."""
    stored = run.segment.schema
    same = stored.equals(schema, check_metadata=True)
    fields = list(columns) if same else list(range(len(stored)))
    for data, rows in _pieces(run):
        for batch in _decoded(run.segment, data, fields, rows):
            yield batch if same else unify(batch, schema).select(list(columns))


def _pieces(run: Run) -> Iterator[tuple[Any, int]]:
    """The bytes of a run's blocks, and how many rows they hold: all at once where they are mapped."""
    if run.stop <= run.start:
        return
    headers = run.segment.header_array(run.start, run.stop)
    starts = headers["position"].astype("int64") * chain.POSITION_UNIT
    ends = starts + headers["length"]
    at = 0
    while at < len(headers):
        stop = len(headers)
        if run.mapped is None:
            stop = max(at + 1, int(ends.searchsorted(starts[at] + _PIECE_BYTES, side="right")))
        yield _bytes_of(run, int(starts[at]), int(ends[stop - 1])), int(headers["rows"][at:stop].sum())
        at = stop


def _bytes_of(run: Run, start: int, end: int) -> Any:
    if run.mapped is None:
        data = run.segment.read_data(start, end - start)
    else:
        data = run.mapped[start:end]
    if len(data) != end - start or not len(data):
        raise Corrupt(
            "the data file ends before the block does", file=str(run.segment.data_path), position=start
        )
    return data


class _Stream:
    """A schema and some blocks, as a file that Arrow reads without copying."""

    closed = False

    def __init__(self, schema: pa.Schema, data: Any) -> None:
        self._parts = [memoryview(block.schema_message(schema)), memoryview(data)]
        self._at = 0

    def read(self, size: int) -> memoryview:
        part = self._parts[0]
        if self._at == len(part) and len(self._parts) > 1:
            del self._parts[0]
            part, self._at = self._parts[0], 0
        found = part[self._at : self._at + size]
        self._at += len(found)
        return found

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._parts = [memoryview(b"")]


def _decoded(segment: Segment, data: Any, fields: Sequence[int], rows: int) -> Iterator[pa.RecordBatch]:
    """The chosen fields of some blocks, which must have this many rows in all."""
    order = sorted(fields)
    places = None if order == list(fields) else [order.index(field) for field in fields]
    options = pa.ipc.IpcReadOptions(included_fields=order, use_threads=False)
    found = 0
    try:
        source = pa.PythonFile(_Stream(segment.schema, data), mode="r")
        with pa.ipc.open_stream(source, options=options) as reader:
            for batch in reader:
                found += batch.num_rows
                if batch.num_rows:
                    check_structure(batch.columns)
                    yield batch if places is None else batch.select(places)
    except Corrupt as error:
        raise Corrupt(error.message, file=str(segment.data_path)) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Corrupt(f"Arrow cannot read the segment: {error}", file=str(segment.data_path)) from error
    if found != rows:
        raise Corrupt(
            f"the blocks have {found} rows where the chain says {rows}", file=str(segment.data_path)
        )


class TopicSnapshot:
    """All partitions of a topic, one behind the other."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[StoredPartition],
        newest_schema: Callable[[], pa.Schema],
        limits: Range = ALL,
    ) -> None:
        self.name = name
        self._partitions = [PartitionSnapshot(stored) for stored in partitions]
        # asked for last, so that no row is of a newer version
        self.schema = newest_schema()
        self._limits = limits

    @property
    def offsets(self) -> int:
        """How many offsets it covers: no fewer than its rows."""
        return sum(part.end - part.start for part in self._partitions)

    def batches(self, columns: Sequence[int] | None = None, wanted: Range = ALL) -> Iterator[pa.RecordBatch]:
        """Columns by their place in the schema; all of them when none are named."""
        chosen = range(len(self.schema)) if columns is None else columns
        wanted = wanted.inside(self._limits)
        for part in self._partitions:
            yield from joined(part.batches(self.schema, chosen, wanted))

    def reader(
        self,
        columns: Sequence[int] | None = None,
        wanted: Range = ALL,
        *,
        on_error: Callable[[BaseException], None] | None = None,
    ) -> pa.RecordBatchReader:
        """A fresh stream. `on_error` is told what the reader of an Arrow stream learns only as text."""
        schema = self.schema
        if columns is not None:
            schema = pa.schema([schema.field(place) for place in columns], metadata=schema.metadata)
        batches = self.batches(columns, wanted)
        return pa.RecordBatchReader.from_batches(schema, _telling(batches, on_error) if on_error else batches)

    def dataset(self) -> pyarrow.dataset.Dataset:
        """As a `pyarrow.dataset`; sealed segments stay mapped, the rest is held in memory."""
        import pyarrow.dataset  # it brings pandas along, where that is installed

        return pyarrow.dataset.InMemoryDataset(list(self.batches()), schema=self.schema)


def _telling(
    batches: Iterator[pa.RecordBatch], on_error: Callable[[BaseException], None]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        on_error(error)
        raise


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs of small batches as larger ones; large ones pass through untouched."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows < _SMALL_ROWS:
            held.append(batch)
            rows += batch.num_rows
            if rows < _JOIN_ROWS:
                continue
        if held:
            yield pa.concat_batches(held)
            held, rows = [], 0
        if batch.num_rows >= _SMALL_ROWS:
            yield batch
    if held:
        yield pa.concat_batches(held)
