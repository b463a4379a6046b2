"""One row by its key: the index leads to a block, the block says whether the key is there.

Blocks that were looked into stay decoded, up to a bound: those of mapped segments hold no
bytes of their own, only Arrow's view of them. As in reads of single columns their bytes are
not hashed; `verify` does that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
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


class _Block:
    """A decoded block in the newest schema."""

    __slots__ = ("batch", "columns", "keys", "size")

    def __init__(self, batch: pa.RecordBatch, keys: Sequence[int], size: int) -> None:
        self.batch = batch
        self.columns = batch.columns
        self.keys = [self.columns[place] for place in keys]
        self.size = size


class Moved(Exception):
    """The segment is not there any more: it was rewritten or removed since the index was looked at."""


class Lookup:
    """Rows of one partition by key."""

    def __init__(self, stored: StoredPartition, schemas: SchemaSource) -> None:
        self._stored = stored
        self._schemas = schemas
        self._blocks: OrderedDict[tuple[int, int, int], _Block] = OrderedDict()
        self._bytes = 0
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
        for keys, marked in index.find(key.hash):
            place, row = keys.place(marked)
            found = self._block(keys, place)
            if key.is_of(found.keys, row):
                return None if marked & DELETES else self._row(found, row)
        return None

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
            if key.is_of(found.keys, row):
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
            return _Block(batch, self._keys, 0)
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
        is_mapped = (
            not segment.entry.is_active and self._schemas.record.config.compression is Compression.NONE
        )
        size = 0 if is_mapped else max(header.length, batch.nbytes)
        return _Block(unify(batch, self._schema), self._keys, size)

    def _row(self, found: _Block, row: int) -> Row:
        columns = found.columns
        stamp = columns[1].view(pa.int64())[row].as_py()
        values = {name: _value(columns[place], row) for name, place in self._names}
        moment = _EPOCH + timedelta(microseconds=stamp)
        return Row(columns[0][row].as_py(), moment, values, False, self._stored.identity.number)


def _value(column: pa.Array, row: int) -> Any:
    if not pa.types.is_nested(column.type):
        return column[row].as_py()
    try:
        return column[row].as_py(maps_as_pydicts="strict")
    except (pa.ArrowException, KeyError, ValueError):
        return column[row].as_py()
