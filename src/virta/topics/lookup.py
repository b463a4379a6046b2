"""One row by its key: the index leads to a block, the block says whether the key is there.

Blocks that were looked into stay decoded, up to a bound: those of mapped segments hold no
bytes of their own, only Arrow's view of them. While few pages of files are in this process's
memory, values are taken from the mapping. Once there are many, every look-up would bring in
others, each with its neighbours, so the pages are let go of and values are read from the file
instead: slower than from a page that is there, faster than bringing one in. As in reads of
single columns bytes are not hashed; `verify` does that.
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

from virta.errors import Corrupt
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.schemas import DELETED, unify
from virta.storage.chain import Header
from virta.storage.files import Files
from virta.storage.key_index import DELETES
from virta.storage.segment import Segment
from virta.storage.structure import check_structure
from virta.topics.key_index import KeyIndex, SegmentKey, SegmentKeys, index_of
from virta.topics.key_values import Key
from virta.topics.read import Row
from virta.topics.schema import SchemaSource
from virta.types import Compression

# Decoded blocks that are kept: of each some kilobytes of objects, and the bytes of those not mapped.
_KEPT_BLOCKS = 16_384
_KEPT_BYTES = 32 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES_BEFORE = 2  # _offset and _timestamp
# Pages of files that may have come into this process's memory, and after how many look-ups, or blocks
# decoded, it is looked at: each may touch ten windows, of half a mebibyte where pages are large.
_RESIDENT_BYTES = 160 * 1024 * 1024
_LOOKED_AT_EVERY = 8
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
_TEXTS = (pa.string(), pa.large_string())
_BYTES = (*_TEXTS, pa.binary(), pa.large_binary())
# A Python value of these goes back into an array as it came out of one.
PLAIN_TYPES = frozenset((*_PLAIN, *_BYTES))

Reader = Callable[[int], Any]


def _resident_bytes() -> int:
    """Pages of files in this process's memory; 0 where the system does not tell."""
    try:
        return int(_STATISTICS.read_bytes().split()[2]) * mmap.PAGESIZE
    except OSError:
        return 0


class _File:
    """A data file to read values from; `base` is where its mapping begins in memory."""

    def __init__(self, files: Files, path: Path, mapped: mmap.mmap) -> None:
        self.descriptor = files.open(path)
        self.pread = files.pread
        self.base = pa.py_buffer(mapped).address
        self.end = self.base + len(mapped)
        weakref.finalize(self, files.close, self.descriptor)

    def place(self, buffer: pa.Buffer | None) -> int | None:
        """Where the buffer's bytes are in the file, if they are of it."""
        if buffer is None or not self.base <= buffer.address <= self.end - buffer.size:
            return None
        return int(buffer.address - self.base)


class _Block:
    """A decoded block in the newest schema, and how a row's values are had from it."""

    __slots__ = ("batch", "is_checked", "offsets", "readers", "schema", "size", "times")

    def __init__(
        self, batch: pa.RecordBatch, schema: pa.Schema, size: int, file: _File | None = None
    ) -> None:
        columns = batch.columns
        self.schema = schema
        self.batch = batch
        self.is_checked = False
        self.times = _reader(columns[1].view(pa.int64()), file)
        self.readers = [_reader(column, file) for column in columns]
        self.offsets = self.readers[0]
        self.size = size

    def believe(self, header: Header) -> None:
        """What the checked header says of all rows need not be read for each."""
        if header.rows == header.span:
            self.offsets = header.base_offset.__add__
        if header.min_timestamp == header.max_timestamp:
            stamp = header.min_timestamp
            self.times = lambda _: stamp

    def row(self, row: int) -> pa.RecordBatch:
        """One row for Arrow to compute with, which believes offsets as they are."""
        if not self.is_checked:
            check_structure(self.batch.columns)
            self.is_checked = True
        return self.batch.slice(row, 1)

    def is_of(self, key: Key, places: Sequence[int], row: int) -> bool:
        """Whether the row has the key."""
        if key.plain is None:
            return key.is_of([self.batch.column(place) for place in places], row)
        return tuple([self.readers[place](row) for place in places]) == key.plain


class Found:
    """A row where it stands, to be taken column by column."""

    __slots__ = ("_block", "_row")

    def __init__(self, block: _Block, row: int) -> None:
        self._block = block
        self._row = row

    def value(self, name: str, place: int, schema: pa.Schema) -> Any:
        """The value of a column of `PLAIN_TYPES`, which has this place in that stored schema."""
        block = self._block
        if block.schema is not schema:
            place = block.schema.get_field_index(name)
        try:
            return block.readers[place](self._row)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise Corrupt(f"a row that was looked up cannot be read: {error}") from error

    def column(self, name: str) -> pa.Array:
        """A column's value as an array of one."""
        return self._block.row(self._row).column(name)


def _reader(column: pa.Array, file: _File | None) -> Reader:
    """Gives the column's value of a row as a Python object."""
    kind = column.type
    form = _PLAIN.get(kind)
    is_bytes = kind in _BYTES
    if (form is None and not is_bytes) or column.buffers()[0] is not None:
        check_structure((column,))
        return partial(_value, column)
    found = None if file is None else _reader_of_file(column, form, file)
    if found is not None:
        return found
    if form is None:
        return _reader_of_bytes(column, is_text=kind in _TEXTS)
    values = _memory(column.buffers()[1], form)
    return values.__getitem__ if not column.offset else lambda row: values[column.offset + row]


def _reader_of_file(column: pa.Array, form: str | None, file: _File) -> Reader | None:
    """As `_reader`, from the file; None where the column's bytes are not of it."""
    places = [file.place(buffer) for buffer in column.buffers()[1:]]
    first = places[0]
    if first is None or places[-1] is None:
        return None
    descriptor, pread = file.descriptor, file.pread
    if form is not None:
        unpack = struct.Struct(f"<{form}").unpack
        size = struct.calcsize(f"<{form}")
        at = first + column.offset * size
        # the file is named as well, so that it stays open as long as it is read from
        return lambda row, _=file: unpack(pread(descriptor, size, at + row * size))[0]  # type: ignore[misc]
    ends = struct.Struct("<qq" if column.type in _WIDE else "<ii")
    width, data = ends.size // 2, places[-1]
    at = first + column.offset * width
    is_text = column.type in _TEXTS

    def read(row: int, _: _File = file) -> Any:
        start, stop = ends.unpack(pread(descriptor, 2 * width, at + row * width))
        found = pread(descriptor, stop - start, data + start)
        return found.decode() if is_text else found

    return read


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
        self._mapped_bytes = 0
        self._segments: list[SegmentKey] = []
        self._resident = _resident_bytes()  # libraries, and what others have mapped
        self._from_files = False
        self._files: weakref.WeakValueDictionary[SegmentKey, _File] = weakref.WeakValueDictionary()
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
                self._follow(index)
                try:
                    found = self._find(index, key)
                    return None if found is None else self._row(*found)
                except Moved:
                    continue
                except (struct.error, IndexError, UnicodeDecodeError) as error:
                    raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> Corrupt:
        identity = self._stored.identity
        return Corrupt(
            f"a row that was looked up cannot be read: {error}",
            topic=identity.topic,
            partition=identity.number,
        )

    def _find(self, index: KeyIndex, key: Key) -> tuple[_Block, int] | None:
        """The block and the row in it that is the newest of the key; None where none is, or it deletes."""
        self._follow_schema()
        if not self._from_files and self._mapped_bytes > _RESIDENT_BYTES:
            self._looked += 1
        if self._looked >= _LOOKED_AT_EVERY:
            self._let_go_of_pages()
        for keys, marked in index.find(key.hash):
            place, row = keys.place(marked)
            found = self._block(keys, place)
            if found.is_of(key, self._keys, row):
                return None if marked & DELETES else (found, row)
        return None

    def _follow(self, index: KeyIndex) -> None:
        """Know what there is; of segments that are gone nothing is kept, erased rows least of all."""
        if not index.catch_up():
            return
        segments = [keys.key for keys in index.segments]
        if segments != self._segments:
            there = set(segments)
            for name in [name for name in self._blocks if name[:2] not in there]:
                self._bytes -= self._blocks.pop(name).size
            self._segments = segments

    def _let_go_of_pages(self) -> None:
        self._looked = 0
        if _resident_bytes() - self._resident > _RESIDENT_BYTES:
            for each in list(self._maps):
                each.madvise(mmap.MADV_DONTNEED)
            if not self._from_files:
                self._from_files = True
                self._blocks.clear()
                self._bytes = 0

    def rows(self, keys: Sequence[Key]) -> tuple[int, list[Found | None]]:
        """The newest rows of several keys, and the offset they are the newest of."""
        index = self.index
        with index.lock:
            while True:
                self._follow(index)
                try:
                    return index.next_offset, [self._found(index, key) for key in keys]
                except Moved:
                    continue
                except (struct.error, IndexError, UnicodeDecodeError) as error:
                    raise self._damaged(error) from error

    def _found(self, index: KeyIndex, key: Key) -> Found | None:
        found = self._find(index, key)
        return None if found is None else Found(found[0], found[1])

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
            return _Block(batch, self._schema, 0)
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
        stored.is_checked = True  # readers stay inside by themselves; what has none is looked at there
        batch = stored.decode()
        mapped: Any = getattr(stored.data, "obj", None)
        if isinstance(mapped, mmap.mmap):
            if mapped not in self._maps:
                self._maps.add(mapped)
                self._mapped_bytes = sum(map(len, self._maps))
            if self._schemas.record.config.compression is Compression.NONE:
                made = _Block(unify(batch, self._schema), self._schema, 0, self._file(segment, mapped))
                made.believe(header)
                return made
        return _Block(unify(batch, self._schema), self._schema, max(header.length, batch.nbytes))

    def _file(self, segment: Segment, mapped: mmap.mmap) -> _File | None:
        """What to read values from, once they are not taken from the mapping."""
        if not self._from_files:
            return None
        self._looked += 1
        entry = segment.entry
        known = self._files.get((entry.base, entry.generation))
        if known is None or known.end - known.base != len(mapped):
            try:
                known = _File(self._stored.files, segment.data_path, mapped)
            except OSError:
                return None  # it was rewritten meanwhile; its mapping is still good
            self._files[entry.base, entry.generation] = known
        return known

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
