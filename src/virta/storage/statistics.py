"""Statistics of a sealed segment: per block and column the least and greatest value, and the nulls.

    at  size  field
     0     8  magic "VIRTAST\\x01"
     8    32  BLAKE3 of all after it
    40    32  last_hash of the segment it was made from
    72        an Arrow stream of one record batch with a row per block: for column n the
              columns `least.n` and `greatest.n` (of the column's type) and `nulls.n`;
              the schema's metadata holds under `columns` their names as JSON

The file is derived: it is made by whoever first has a use for it, never while an append
waits, and made again when it is missing, damaged or of another history (`last_hash`).
Only blocks that cannot hold a matching row may be skipped, so bounds may be too wide but
never too narrow: strings and bytes are cut to 32 of their units, the greatest rounded
up; what has no order, or no bound (all NaN, a string of nothing but U+10FFFF), has none.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from virta.errors import Corrupt
from virta.storage.chain import Header
from virta.storage.files import Files, read_file, write_fully
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry
from virta.storage.segment import Segment
from virta.storage.view import Stretch

MAGIC = b"VIRTAST\x01"
_DIGEST_AT = 8
_LAST_HASH_AT = 40
_ARROW_AT = 72
BOUND_UNITS = 32
_READ_BYTES = 4 * 1024 * 1024

# (least, greatest, nulls, rows); a bound that is not known is None
Bounds = tuple[Any, Any, int, int]
MayMatch = Callable[[Mapping[str, Bounds]], bool]


class SegmentStatistics:
    """What is known of the blocks of one segment."""

    def __init__(self, names: list[str], batch: pa.RecordBatch) -> None:
        self.blocks: int = batch.num_rows
        self.names = frozenset(names)
        self._places = {name: number for number, name in enumerate(names)}
        self._batch = batch
        self._values: dict[str, tuple[list[Any], list[Any], list[int]]] = {}

    def column(self, name: str) -> tuple[list[Any], list[Any], list[int]]:
        """Least, greatest and nulls of a column, block by block; turned into Python values once."""
        found = self._values.get(name)
        if found is None:
            place = 3 * self._places[name]
            bounds = [_python_values(self._batch.column(place + part)) for part in (0, 1)]
            found = self._values[name] = (*bounds, self._batch.column(place + 2).to_pylist())
        return found

    def of(self, index: int, header: Header, columns: Iterable[str]) -> dict[str, Bounds]:
        """What `may_match` of a filter wants to know of one block."""
        found: dict[str, Bounds] = {}
        for name in columns:
            if name in self._places:
                least, greatest, nulls = self.column(name)
                found[name] = least[index], greatest[index], nulls[index], header.rows
            elif name in _LEADING:
                found[name] = _LEADING[name](header)
        return found

    def runs(
        self, segment: Segment, start: int, stop: int, columns: Iterable[str], may_match: MayMatch
    ) -> list[tuple[int, int]]:
        """The runs of blocks between `start` and `stop` that may hold a matching row."""
        columns = list(columns)
        headers = segment.headers(self.blocks)
        found: list[tuple[int, int]] = []
        for index in range(start, stop):
            header = headers.header(index)
            if not header.rows or not may_match(self.of(index, header, columns)):
                continue
            if found and found[-1][1] == index:
                found[-1] = found[-1][0], index + 1
            else:
                found.append((index, index + 1))
        return found


def _offset_bounds(header: Header) -> Bounds:
    return header.base_offset, header.end_offset - 1, 0, header.rows


def _time_bounds(header: Header) -> Bounds:
    try:
        return _moment(header.min_timestamp), _moment(header.max_timestamp), 0, header.rows
    except OverflowError:
        return None, None, 0, header.rows


def _moment(timestamp: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=timestamp)


_LEADING: dict[str, Callable[[Header], Bounds]] = {"_offset": _offset_bounds, "_timestamp": _time_bounds}


def _python_values(column: pa.Array) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowInvalid):
        return [None] * len(column)
    return found


# -- what reads ask for -----------------------------------------------------------------------


def narrow(
    files: Files,
    paths: PartitionPaths,
    stretch: Stretch,
    columns: Iterable[str],
    may_match: MayMatch,
) -> list[Stretch]:
    """A stretch without the blocks that cannot match; as it is where nothing is known.

    Statistics that are missing are made when the stretch is the whole segment: then all
    of it is about to be read anyway.
    """
    segment = stretch.segment
    if segment.entry.is_active:
        return [stretch]
    known = load(files, paths, segment.entry)
    if known is None:
        first = segment.headers(segment.entry.blocks).header(stretch.start)
        if first.base_offset > segment.entry.base or stretch.stop < segment.entry.blocks:
            return [stretch]
        known = make(files, paths, segment)
    runs = known.runs(segment, stretch.start, stretch.stop, columns, may_match)
    return [Stretch(segment=segment, start=start, stop=stop) for start, stop in runs]


def load(files: Files, paths: PartitionPaths, entry: Entry) -> SegmentStatistics | None:
    """The statistics of a sealed segment; None when there are none that can be believed."""
    try:
        return parse(read_file(files, paths.stats(entry.base, entry.generation)), entry)
    except (OSError, Corrupt):
        return None


def make(files: Files, paths: PartitionPaths, segment: Segment) -> SegmentStatistics:
    """Compute the statistics of a sealed segment and keep them, if they can be written."""
    names, batch = compute(segment)
    with contextlib.suppress(OSError):  # a read-only or full place: then they serve this read only
        path = paths.stats(segment.entry.base, segment.entry.generation)
        _write_aside(files, path, segment.entry, batch)
        if files.identity(segment.data_path) is None:
            files.unlink(path)  # the segment went meanwhile: nothing made from it may stay
    return SegmentStatistics(names, batch)


def _write_aside(files: Files, path: Path, entry: Entry, batch: pa.RecordBatch) -> None:
    """Appears by rename; not synced, since its digest tells a torn one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = files.open(aside, write=True, create=True)
    try:
        write_fully(files, descriptor, to_bytes(entry, batch), 0)
        files.rename(aside, path)
    except BaseException:
        files.unlink(aside)
        raise
    finally:
        files.close(descriptor)


# -- bytes ----------------------------------------------------------------------------------------


def to_bytes(entry: Entry, batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = entry.last_hash + sink.getvalue().to_pybytes()
    return bytes(MAGIC + blake3(body).digest() + body)


def parse(data: bytes, entry: Entry) -> SegmentStatistics:
    """Corrupt unless the bytes are whole and of this very segment."""
    if data[:_DIGEST_AT] != MAGIC or len(data) < _ARROW_AT:
        raise Corrupt("this is no file of statistics")
    if blake3(memoryview(data)[_LAST_HASH_AT:]).digest() != data[_DIGEST_AT:_LAST_HASH_AT]:
        raise Corrupt("the statistics do not match their digest")
    if data[_LAST_HASH_AT:_ARROW_AT] != entry.last_hash:
        raise Corrupt("the statistics are of another history")
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)[_ARROW_AT:]) as reader:
            batch = reader.read_next_batch()
        names = json.loads(batch.schema.metadata[b"columns"])
    except (pa.ArrowInvalid, StopIteration, KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"the statistics cannot be read: {error}") from error
    if batch.num_rows != entry.blocks or batch.num_columns != 3 * len(names):
        raise Corrupt("the statistics have another number of blocks or columns")
    return SegmentStatistics(names, batch)


# -- computing --------------------------------------------------------------------------------------


def compute(segment: Segment) -> tuple[list[str], pa.RecordBatch]:
    """Names of the columns, and a row per block. Reads the segment once, a few blocks at a time."""
    fields = list(segment.schema)[len(_LEADING) :]
    kinds = [_bound_type(field.type) for field in fields]
    gathered: list[tuple[list[Any], list[Any], list[int]]] = [([], [], []) for _ in fields]
    index = 0
    while index < segment.entry.blocks:
        stored = segment.read_blocks(index, segment.entry.blocks, max_bytes=_READ_BYTES)
        for one in stored:
            batch = one.decode()
            for place, (least, greatest, nulls) in enumerate(gathered):
                column = batch.column(len(_LEADING) + place)
                low, high = _bounds(column, kinds[place])
                least.append(low)
                greatest.append(high)
                nulls.append(column.null_count)
        index += len(stored)
    return [field.name for field in fields], _as_batch(fields, kinds, gathered)


def _as_batch(
    fields: list[pa.Field], kinds: list[pa.DataType], gathered: list[tuple[list[Any], list[Any], list[int]]]
) -> pa.RecordBatch:
    arrays: list[pa.Array] = []
    names: list[str] = []
    for place, (least, greatest, nulls) in enumerate(gathered):
        arrays += [
            pa.array(least, kinds[place]),
            pa.array(greatest, kinds[place]),
            pa.array(nulls, pa.uint32()),
        ]
        names += [f"least.{place}", f"greatest.{place}", f"nulls.{place}"]
    metadata = {"columns": json.dumps([field.name for field in fields])}
    schema = pa.schema(
        [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)], metadata=metadata
    )
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bound_type(kind: pa.DataType) -> pa.DataType:
    """The type in which bounds are kept; null for what has no order that filters know."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        return kind if kind.unit != "ns" else pa.null()  # Python's datetime has no nanoseconds
    is_plain = (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or kind in (pa.float32(), pa.float64())
    )
    if is_plain or _is_text(kind) or _is_bytes(kind):
        return kind
    return pa.null()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _bounds(column: pa.Array, kind: pa.DataType) -> tuple[Any, Any]:
    if pa.types.is_null(kind) or column.null_count == len(column):
        return None, None
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        found = pc.min_max(column)
        least, greatest = found["min"].as_py(), found["max"].as_py()
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, ValueError, OverflowError):
        return None, None
    if least is None or greatest is None or _is_nan(least) or _is_nan(greatest) or least > greatest:
        return None, None
    if isinstance(greatest, str | bytes):
        greatest = round_up(greatest)
        least = least[:BOUND_UNITS]
    return (None, None) if greatest is None else (least, greatest)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def round_up(value: Any) -> Any:
    """A short value that is not less than this one; None when there is none."""
    if len(value) <= BOUND_UNITS:
        return value
    return _text_above(value[:BOUND_UNITS]) if isinstance(value, str) else _bytes_above(value[:BOUND_UNITS])


def _text_above(text: str) -> str | None:
    """The least string above everything that begins with this text."""
    for end in range(len(text), 0, -1):
        following = ord(text[end - 1]) + 1
        if 0xD800 <= following <= 0xDFFF:
            following = 0xE000  # surrogates are no characters
        if following <= 0x10FFFF:
            return text[: end - 1] + chr(following)
    return None


def _bytes_above(data: bytes) -> bytes | None:
    short = data.rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None
