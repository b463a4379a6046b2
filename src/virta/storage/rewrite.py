"""Writing sealed segments anew: fewer rows, larger blocks, the same history.

One mechanism serves compaction, erasure and the joining of small blocks:

 1. `Rewriter` reads neighbouring sealed segments, every block checked, and writes those rows
    that stay into one data file and one chain file beside them, synced. No lock is held;
    appends and reads go on;
 2. `install` takes what was written into the partition, under its lock: files renamed into
    place, a receipt in the chain, the manifest switched, the old files unlinked (`replace`).

What keeps its bytes keeps its block: it is copied as it is. Every other block is made anew
and stands for one or several old ones. It keeps the hash of the last of them and carries their
headers (`trail`), so hashes noted earlier stay good, and so do tokens. Offsets never change: a
block covers the offsets that its old blocks covered, whichever rows are left. One without rows
covers offsets all the same.

Control blocks that say what no other place says are kept as they are. `segment` and `producer`
(snapshots and claims that a later segment repeats) and receipts that are out of date go into
the trail of the block that comes next.

The receipt (`rewritten`) names the BLAKE3 of the new chain file. With it the chain vouches for
every byte of the new segment; which rows went nobody can say from it.

Files are written aside, under names that begin with `.`, so that one that was killed leaves
what the steward clears away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3

from virta.errors import Corrupt
from virta.storage import block, chain, encode, manifest, sources, trail
from virta.storage.chain import FIELDS
from virta.storage.commit import Committer
from virta.storage.create import user_schema
from virta.storage.files import Files, sync_directory, write_fully
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry
from virta.storage.replace import free_generation, replace_segments
from virta.storage.segment import Segment, StoredBlock
from virta.storage.trail import Trail
from virta.types import Compression

EVENT = "rewritten"
# Decoded bytes of a block made from small ones: large enough that its head costs nothing.
JOINED_BYTES = 1024 * 1024
# Blocks read at once, and bytes gathered before they are written.
_READ_BYTES = 8 * 1024 * 1024
_WRITE_BYTES = 4 * 1024 * 1024
# Mapped bytes that are read before their pages leave this process's memory.
_RESIDENT_BYTES = 16 * 1024 * 1024
# Offsets that one block covers: its header has 32 bits for them.
_SPAN_LIMIT = 1 << 31
# Repeated by every later segment, so nobody asks the old ones.
_FOLDED_EVENTS = frozenset({"segment", "producer"})

# Which rows of a block stay: None for all of them. Given are the source's place and the block's in it.
Keep = Callable[[int, int, StoredBlock], "np.ndarray[Any, Any] | None"]


class SourcesChanged(Exception):
    """The segments that were rewritten are not in force any more: somebody else was faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What some segments hold."""

    segments: int
    blocks: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Amounts:
        return cls(
            segments=len(entries),
            blocks=sum(entry.blocks for entry in entries),
            rows=sum(entry.rows for entry in entries),
            bytes=sum(entry.data_length for entry in entries),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """New files that wait beside the partition to take the place of some of its segments."""

    sources: tuple[Entry, ...]
    entry: Entry  # its generation is decided when it is installed
    seal: bytes
    data: Path
    chain: Path

    @property
    def before(self) -> Amounts:
        return Amounts.of(self.sources)

    @property
    def after(self) -> Amounts:
        return Amounts.of((self.entry,))

    def receipt(self, reason: str, details: Mapping[str, Any]) -> dict[str, Any]:
        before, after = self.before, self.after
        return {
            "event": EVENT,
            "reason": reason,
            "from": self.entry.base,
            "to": self.entry.end,
            "hash_before": self.entry.previous_hash.hex(),
            "hash_after": self.entry.last_hash.hex(),
            "segments": before.segments,
            "blocks_before": before.blocks,
            "blocks": after.blocks,
            "rows_before": before.rows,
            "rows": after.rows,
            "bytes_before": before.bytes,
            "bytes": after.bytes,
            "seal": self.seal.hex(),
            **details,
        }

    def discard(self, files: Files) -> None:
        with contextlib.suppress(OSError):
            files.unlink(self.data)
            files.unlink(self.chain)


# -- which segments go together -------------------------------------------------------------------


def rewritable(segments: Sequence[Entry]) -> list[Entry]:
    """The sealed segments that may be rewritten.

    An empty one right before the active one shares its base, and so the generations of its names.
    """
    active = segments[-1]
    return [entry for entry in segments[:-1] if entry.base < active.base]


def are_neighbours(first: Entry, second: Entry) -> bool:
    """Whether two segments, one behind the other, can become one: a data file has one schema."""
    same = first.schema_version == second.schema_version and first.schema_digest == second.schema_digest
    return same and first.end == second.base


# -- writing --------------------------------------------------------------------------------------


class Rewriter:
    """Writes some neighbouring segments anew, aside."""

    def __init__(
        self,
        files: Files,
        paths: PartitionPaths,
        sources: Sequence[Segment],
        keep: Keep,
        *,
        compression: Compression = Compression.NONE,
        join: bool = True,
        is_outdated: Callable[[Mapping[str, Any]], bool] = lambda _: False,
        advance: Callable[[int], None] = lambda _: None,
        flags: int = 0,
    ) -> None:
        self._files = files
        self._sources = sources
        self._keep = keep
        self._join = join
        self._is_outdated = is_outdated
        self._advance = advance
        self._flags = flags
        self._schema = sources[0].schema
        self._encoder = encode.Encoder(user_schema(self._schema), compression)
        entry = sources[0].entry
        mark = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._data_path = paths.root / f".{paths.data(entry.base).name}.{mark}"
        self._chain_path = paths.root / f".{paths.chain(entry.base).name}.{mark}"
        self._records = bytearray()
        self._rewritten = False
        self._read = 0  # bytes since pages were let go of
        self._head = entry.previous_hash
        self._pending = _Pending()
        self._out = _Output(files, self._data_path)

    def write(self) -> Written:
        """All of it; on the way out of an error nothing is left."""
        try:
            with self._out:
                self._out.write(block.schema_message(self._schema))
                for number, source in enumerate(self._sources):
                    self._take_segment(number, source)
                self._flush()
                self._out.finish()
            self._write_chain()
        except BaseException:
            for path in (self._data_path, self._chain_path):
                with contextlib.suppress(OSError):
                    self._files.unlink(path)
            raise
        return self._written()

    def _write_chain(self) -> None:
        with _Output(self._files, self._chain_path) as out:
            out.write(bytes(self._records))
            out.finish()

    def _written(self) -> Written:
        first, last = self._sources[0].entry, self._sources[-1].entry
        headers = chain.as_array(bytes(self._records))
        entry = Entry(
            base=first.base,
            end=last.end,
            schema_version=first.schema_version,
            blocks=len(headers),
            rows=int(headers["rows"].sum()),
            data_length=self._out.position,
            min_timestamp=int(headers["min_timestamp"].min()),
            max_timestamp=int(headers["max_timestamp"].max()),
            previous_hash=first.previous_hash,
            last_hash=self._head,
            schema_digest=first.schema_digest,
            flags=self._flags | (manifest.REWRITTEN if self._rewritten else 0),
        )
        return Written(
            sources=tuple(source.entry for source in self._sources),
            entry=entry,
            seal=blake3(bytes(self._records)).digest(),
            data=self._data_path,
            chain=self._chain_path,
        )

    def _take_segment(self, number: int, source: Segment) -> None:
        at, count = 0, source.entry.blocks
        while at < count:
            blocks = source.read_blocks(at, count, max_bytes=_READ_BYTES)
            for index, stored in enumerate(blocks, at):
                if stored.header.is_control:
                    self._take_control(stored, is_first=not number and not index)
                else:
                    self._take_rows(stored, self._keep(number, index, stored))
                self._advance(stored.header.length)
                self._read += stored.header.length
            at += len(blocks)
            if self._read >= _RESIDENT_BYTES:
                source.let_go_of_pages()
                self._read = 0
        head = self._pending.head or self._head
        if head != source.entry.last_hash:
            raise Corrupt(
                "the segment does not end in the hash that the manifest names", file=str(source.data_path)
            )

    def _take_control(self, stored: StoredBlock, *, is_first: bool) -> None:
        """The very first block of a file is kept: it binds the schema."""
        event = block.event_of(stored.data) or {}
        folded = event.get("event") in _FOLDED_EVENTS or (
            event.get("event") == EVENT and self._is_outdated(event)
        )
        if is_first or not self._join or not folded:
            self._flush()
            self._copy(stored)
        else:
            self._pending.add(stored, None)

    def _take_rows(self, stored: StoredBlock, mask: np.ndarray[Any, Any] | None) -> None:
        if mask is not None and bool(mask.all()):
            mask = None
        is_large = stored.header.length >= JOINED_BYTES // 2
        if mask is None and stored.header.rows and (is_large or not self._join):
            self._flush()
            self._copy(stored)
            return
        batch = None
        if mask is None:
            batch = stored.decode()
        elif mask.any():
            batch = stored.decode().filter(pa.array(mask))
        if self._pending.is_full_for(stored, batch):
            self._flush()
        self._pending.add(stored, batch)
        if not self._join or self._pending.bytes >= JOINED_BYTES:
            self._flush()

    def _copy(self, stored: StoredBlock) -> None:
        """A block as it is, in another place."""
        header = stored.header
        record = header.to_bytes()
        placed = chain.with_place(record[: chain.FIELDS_SIZE], self._out.position, header.length)
        self._out.write(stored.data)
        self._append(placed + record[chain.FIELDS_SIZE :])
        self._rewritten |= header.is_rewritten

    def _append(self, record: bytes) -> None:
        if not chain.follows(record, self._head):
            raise Corrupt(
                "a block does not follow from the one before", offset=chain.unpack_header(record)[0]
            )
        self._records += record
        self._head = record[96:]

    def _flush(self) -> None:
        """Write what has gathered as one block; a single block of which nothing went, as it is."""
        pending, self._pending = self._pending, _Pending()
        if not pending:
            return
        if pending.only is not None:
            self._copy(pending.only)
            return
        old = trail.joined(pending.trails)
        batch = pending.batch(self._schema)
        offsets = batch.column(0).to_numpy()
        times = batch.column(1).view(pa.int64()).to_numpy()
        prepared = encode.with_trail(
            self._encoder.prepare(batch.select(range(2, batch.num_columns))),
            trail.encode(old),
            sources.encode(pending.positions) if pending.positions else b"",
        )
        stamped = block.stamp_rewritten(
            prepared,
            offsets=offsets,
            times=times,
            fields=_fields(old, times, prepared.flags),
            previous=self._head,
            hash_=pending.head,
            position=self._out.position,
        )
        self._out.write(stamped.parts[0])
        self._append(stamped.record)
        self._rewritten = True


def _fields(old: Trail, times: np.ndarray[Any, Any], flags: int) -> bytes:
    """What a block says of itself that stands for these."""
    newest = int(old["max_timestamp"].max())
    return FIELDS.pack(
        int(old["base_offset"][0]),
        int(old["span"].sum()),
        len(times),
        flags,
        int(old["schema_version"][-1]),
        0,
        0,
        int(old["epoch"].max()),
        int(times[0]) if len(times) else newest,
        int(times[-1]) if len(times) else newest,
        0,
        0,
        0,
        0,
    )


class _Pending:
    """Old blocks that will be one new one."""

    def __init__(self) -> None:
        self.trails: list[Trail] = []
        self.positions: dict[int, str] = {}  # by producer, the newest that the blocks tell
        self.only: StoredBlock | None = None  # while it is one, and whole
        self.head = b""
        self.rows = 0
        self.bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._span = 0
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.trails)

    def is_full_for(self, stored: StoredBlock, batch: pa.RecordBatch | None) -> bool:
        """Whether one more block would be too much for one."""
        size = 0 if batch is None else batch.nbytes
        is_long = self._count >= trail.LIMIT or self._span + stored.header.span > _SPAN_LIMIT
        return bool(self.trails) and (is_long or self.bytes + size > block.BLOCK_LIMIT_BYTES)

    def add(self, stored: StoredBlock, batch: pa.RecordBatch | None) -> None:
        whole = batch is not None and batch.num_rows == stored.header.rows
        self.only = stored if whole and not self.trails else None
        old = stored.trail()
        self.trails.append(old)
        self.positions |= sources.of_block(stored.data)
        self.head = stored.header.hash
        self._span += stored.header.span
        self._count += len(old)
        if batch is not None and batch.num_rows:
            self._batches.append(batch)
            self.rows += batch.num_rows
            self.bytes += batch.nbytes

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows that stay, as one batch; its dictionaries hold no value that no row has."""
        if not self._batches:
            return pa.RecordBatch.from_pylist([], schema=schema)
        columns = []
        for place, field in enumerate(schema):
            parts = [batch.column(place) for batch in self._batches]
            columns.append(_joined_column(parts, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _joined_column(parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    plain = pa.concat_arrays([part.dictionary_decode() for part in parts])
    encoded = plain.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices.cast(kind.index_type), encoded.dictionary, ordered=kind.ordered
    )


class _Output:
    """A new file, written in large pieces, synced at the end."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._descriptor = -1
        self._parts: list[Any] = []
        self._size = 0
        self.position = 0

    def __enter__(self) -> _Output:
        self._descriptor = self._files.open(self._path, write=True, create=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close(self._descriptor)

    def write(self, data: Any) -> None:
        self._parts.append(data)
        self._size += len(data)
        self.position += len(data)
        if self._size >= _WRITE_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        write_fully(self._files, self._descriptor, data, self.position - self._size)
        self._parts, self._size = [], 0

    def finish(self) -> None:
        if self._size:
            self._write_out()
        self._files.sync(self._descriptor)


# -- taking it into the partition --------------------------------------------------------------------


def install(committer: Committer, written: Written, reason: str, **details: Any) -> Entry:
    """Put what was written in force instead of its sources. The lock is held, nothing waits.

    SourcesChanged when they are not in force any more; then the new files are gone again.
    """
    files, view = committer.files, committer.view
    try:
        before, after = _around(view.manifest.segments, written.sources)
        generation = free_generation(files, view.paths, view.manifest, written.entry.base)
        entry = manifest.with_generation(written.entry, generation)
        paths = view.paths.data(entry.base, generation), view.paths.chain(entry.base, generation)
        files.rename(written.data, paths[0])
        files.rename(written.chain, paths[1])
    except BaseException:
        written.discard(files)
        raise
    try:
        sync_directory(files, view.paths.root)
        receipt = written.receipt(reason, details)
        replace_segments(committer, (*before, entry, *after), written.sources, receipt)
        sync_directory(files, view.paths.root)  # what was unlinked does not come back
    except BaseException:
        _take_back(files, view.paths, entry)
        raise
    return entry


def _take_back(files: Files, paths: PartitionPaths, entry: Entry) -> None:
    """The change was not made: its files go, unless the manifest on disk names them after all."""
    with contextlib.suppress(OSError, Corrupt):
        if entry not in manifest.load(files, paths.manifest).segments:
            files.unlink(paths.data(entry.base, entry.generation))
            files.unlink(paths.chain(entry.base, entry.generation))


def _around(
    segments: tuple[Entry, ...], sources: tuple[Entry, ...]
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """The sealed segments before and after the sources."""
    for at in range(len(segments) - len(sources)):
        if segments[at : at + len(sources)] == sources:
            return segments[:at], segments[at + len(sources) : -1]
    raise SourcesChanged


@contextlib.contextmanager
def rewriting_alone(files: Files, paths: PartitionPaths, *, wait: bool = False) -> Iterator[bool]:
    """Whether this is the only one who rewrites segments of the partition: a lock on its directory.

    Not needed for the log to stay whole (`install` looks again), but two at once waste their work.
    """
    descriptor = files.open(paths.root)
    try:
        yield files.lock(descriptor, wait=wait)
    finally:
        files.close(descriptor)


def unlink_asides(files: Files, paths: PartitionPaths) -> list[str]:
    """Remove what killed rewrites left. Nobody else rewrites: `rewriting_alone` says so."""
    found = [name for name in files.names(paths.root) if name.startswith(".") and name[1:21].isdigit()]
    for name in found:
        files.unlink(paths.root / name)
    return found
