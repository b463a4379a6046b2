"""One row by its key: the index leads to a block, the block says whether the key is there.

Blocks that were looked into stay decoded, up to a bound: those of mapped segments hold no
bytes of their own, only Arrow's view of them. The pages that look-ups have touched are let go
of when there are too many: the system keeps them in its cache, they are only not this
process's any more. As in reads of single columns bytes are not hashed; `verify` does that.
"""

from __future__ import annotations

import mmap
import struct
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import DELETED, unify
from virta.storage.key_index import DELETES
from virta.topics.key_index import KeyIndex, SegmentKeys, index_of
from virta.topics.key_values import Key
from virta.topics.read import Row
from virta.topics.schema import SchemaSource
from virta.types import Compression

# Decoded blocks that are kept: of each some kilobytes of objects, and the bytes of those not mapped.
_KEPT_BLOCKS = 16_384
_KEPT_BYTES = 32 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES_BEFORE = 2  # _offset and _timestamp
# Pages of files that may be in this process's memory, and after how many look-ups it is looked at:
# each touches a few windows of 16 pages.
_RESIDENT_BYTES = 320 * 1024 * 1024
_LOOKED_AT_EVERY = 256
_STATISTICS = Path("/proc/self/statm")

# Numbers that memory holds as Python gives them: no Arrow scalar has to be made for each.
_PLAIN = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.uint64(): "Q",
    pa.float32(): "f",
    pa.float64(): "d",
}
_WIDE = (pa.large_string(), pa.large_binary())

Reader = Callable[[int], Any]


class _Block:
    """A decoded block in the newest schema, and how a row's values are had from it."""

    __slots__ = ("batch", "offsets", "readers", "size", "times")

    def __init__(self, batch: pa.RecordBatch, size: int) -> None:
        columns = batch.columns
        self.batch = batch
        self.offsets = _reader(columns[0])
        self.times = _reader(columns[1].view(pa.int64()))
        self.readers = [_reader(column) for column in columns]
        self.size = size

    def is_of(self, key: Key, places: Sequence[int], row: int) -> bool:
        """Whether the row has the key."""
        if key.plain is None:
            return key.is_of([self.batch.column(place) for place in places], row)
        return tuple([self.readers[place](row) for place in places]) == key.plain


def _reader(column: pa.Array) -> Reader:
    """Gives the column's value of a row as a Python object."""
    kind = column.type
    if not column.null_count:
        form = _PLAIN.get(kind)
        if form is not None:
            values = _memory(column.buffers()[1], form)
            return values.__getitem__ if not column.offset else lambda row: values[column.offset + row]
        if kind in (pa.string(), pa.binary(), *_WIDE):
            return _reader_of_bytes(column, is_text=kind in (pa.string(), pa.large_string()))
    return partial(_value, column)


def _reader_of_bytes(column: pa.Array, *, is_text: bool) -> Reader:
    _, ends, data = column.buffers()
    places = _memory(ends, "q" if column.type in _WIDE else "i")
    values = memoryview(b"") if data is None else _memory(data, "B")
    first = column.offset

    def text(row: int) -> str:
        return str(values[places[first + row] : places[first + row + 1]], "utf-8")

    def plain(row: int) -> bytes:
        return values[places[first + row] : places[first + row + 1]].tobytes()

    return text if is_text else plain


def _memory(buffer: pa.Buffer, form: str) -> memoryview:
    whole = memoryview(buffer).cast("B")
    return whole[: len(whole) - len(whole) % struct.calcsize(form)].cast(form)  # type: ignore[call-overload,no-any-return]


class Moved(Exception):
    """The segment is not there any more: it was rewritten or removed since the index was looked at."""


class Lookup:
    """Rows of one partition by key."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource) -> None:
        self._stored = stored
        self._schemas = schemas
        self._blocks: OrderedDict[tuple[int, int, int], _Block] = OrderedDict()
        self._bytes = 0
        self._number = stored.identity.number
        self._looked = 0
        self._maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()  # that look-ups have read from
        self._schema: pa.Schema | None = None
        self._names: list[tuple[str, int]] = []
        self._keys: list[int] = []

    @property
    def index(self) -> KeyIndex:
        return index_of(self._stored, self._schemas)

    def get(self, key: Key) -> Row | None:
        """The newest row of the key; None where there is none, or it was deleted."""
        index = self.index
        with index.lock:
            while True:
                index.catch_up()
                try:
                    return self._find(index, key)
                except Moved:
                    continue

    def _find(self, index: KeyIndex, key: Key) -> Row | None:
        self._follow_schema()
        self._looked += 1
        if self._looked >= _LOOKED_AT_EVERY:
            self._let_go_of_pages()
        for keys, marked in index.find(key.hash):
            place, row = keys.place(marked)
            found = self._block(keys, place)
            if found.is_of(key, self._keys, row):
                return None if marked & DELETES else self._row(found, row)
        return None

    def _let_go_of_pages(self) -> None:
        self._looked = 0
        try:
            resident = int(_STATISTICS.read_bytes().split()[2]) * mmap.PAGESIZE
        except OSError:
            return  # this system does not tell
        if resident > _RESIDENT_BYTES:
            for each in list(self._maps):
                each.madvise(mmap.MADV_DONTNEED)

    def rows(self, keys: Sequence[Key]) -> tuple[int, list[pa.RecordBatch | None]]:
        """The newest rows of several keys as batches of one row, and the offset they are the newest of."""
        index = self.index
        with index.lock:
            while True:
                index.catch_up()
                try:
                    return index.next_offset, [self._find_batch(index, key) for key in keys]
                except Moved:
                    continue

    def _find_batch(self, index: KeyIndex, key: Key) -> pa.RecordBatch | None:
        self._follow_schema()
        for keys, marked in index.find(key.hash):
            place, row = keys.place(marked)
            found = self._block(keys, place)
            if found.is_of(key, self._keys, row):
                return None if marked & DELETES else found.batch.slice(row, 1)
        return None

    # -- blocks ---------------------------------------------------------------------------------------

    def _follow_schema(self) -> None:
        schema = self._schemas.newest()
        if schema is self._schema:
            return
        self._schema = schema
        self._blocks.clear()
        self._bytes = 0
        own = [name for name in schema.names[_NAMES_BEFORE:] if name != DELETED]
        self._names = [(name, schema.get_field_index(name)) for name in own]
        self._keys = [schema.get_field_index(name) for name in self._schemas.record.config.keys]

    def _block(self, keys: SegmentKeys, place: int) -> _Block:
        assert self._schema is not None
        if keys.entry is None:
            batch = unify(keys.blocks[place].decode(), self._schema)
            return _Block(batch, 0)
        name = (*keys.key, place)
        found = self._blocks.get(name)
        if found is None:
            found = self._blocks[name] = self._read(keys, place)
            self._bytes += found.size
            while len(self._blocks) > _KEPT_BLOCKS or (self._bytes > _KEPT_BYTES and len(self._blocks) > 1):
                _, gone = self._blocks.popitem(last=False)
                self._bytes -= gone.size
        else:
            self._blocks.move_to_end(name)
        return found

    def _read(self, keys: SegmentKeys, place: int) -> _Block:
        assert keys.entry is not None and self._schema is not None
        with self._stored.view() as view:
            entries = view.manifest.segments
            index = view.segment_index(keys.entry.base)
            while index < len(entries) and entries[index].base == keys.entry.base:
                if entries[index].generation == keys.entry.generation:
                    segment = view.segment(index)
                    break
                index += 1
            else:
                raise Moved
        header = segment.checked_header(place)
        stored = segment.read_run([header], segment.hash_before(place), verify=False)[0]
        batch = stored.decode()
        mapped: Any = getattr(stored.data, "obj", None)
        if isinstance(mapped, mmap.mmap):
            self._maps.add(mapped)
            if self._schemas.record.config.compression is Compression.NONE:
                return _Block(unify(batch, self._schema), 0)
        return _Block(unify(batch, self._schema), max(header.length, batch.nbytes))

    def _row(self, found: _Block, row: int) -> Row:
        readers = found.readers
        values = {name: readers[place](row) for name, place in self._names}
        moment = _EPOCH + timedelta(microseconds=found.times(row))
        return Row(found.offsets(row), moment, values, False, self._number)


def _value(column: pa.Array, row: int) -> Any:
    if not pa.types.is_nested(column.type):
        return column[row].as_py()
    try:
        return column[row].as_py(maps_as_pydicts="strict")
    except (pa.ArrowException, KeyError, ValueError):
        return column[row].as_py()
