"""A segment's open files, for reading: chain headers by index, blocks by header.

Sealed files are mapped: nobody truncates them. So is the active data file up to the
synced watermark, below which nothing is ever cut. The rest of it is read with `pread`,
because a mapping dies when a crash's torn tail is cut. An open descriptor or mapping
keeps a removed file alive, so whoever holds a segment goes on reading it after
retention has taken it away; both are let go with the last reference to the segment.

Blocks are handed out checked: the header against the hash before it, the bytes
against the digest. Only a read of single columns leaves the digest out, since
hashing would touch the columns that are to be skipped.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np
import pyarrow as pa

from virta.errors import Corrupt
from virta.storage import block, chain, manifest, trail
from virta.storage.chain import HEADER_SIZE, Header, HeaderView
from virta.storage.files import Files, read_fully
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry
from virta.storage.structure import check_structure
from virta.storage.trail import Trail

# Headers of one read of blocks; a block has at least some 400 bytes of metadata.
_HEADERS_PER_READ = 4096
_SMALLEST_BLOCK = 384
# The active file is mapped again when so much more of it was synced: a mapping costs some calls.
_MAPPED_STEP_BYTES = 4 * 1024 * 1024
_CHECKED_AT_ONCE = 4 * 1024 * 1024
# Mapped bytes that are hashed before their pages leave this process's memory.
_RESIDENT_BYTES = 64 * 1024 * 1024
# A read larger than this is held against the file's size before memory is set aside for it.
_BELIEVED_BYTES = 64 * 1024 * 1024


class StoredBlock:
    """A block with its place in history. The bytes may still lie in several parts."""

    __slots__ = ("_parts", "header", "is_checked", "previous", "schema")

    def __init__(self, header: Header, previous: bytes, parts: list[Any], schema: pa.Schema) -> None:
        self.is_checked = True  # its bytes were hashed, or come from this process
        self.header = header
        self.previous = previous
        self.schema = schema
        self._parts = parts

    @property
    def data(self) -> Any:
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def decode(self) -> pa.RecordBatch:
        has_dictionaries = bool(self.header.flags & chain.DICTIONARIES)
        batch = block.decode(self.data, self.schema, dictionaries=has_dictionaries)
        if not self.is_checked:
            check_structure(batch.columns)
        return batch

    def check(self) -> None:
        """Hash the bytes again and follow the link from the block before."""
        if not chain.follows(self.header.to_bytes(), self.previous):
            raise Corrupt(
                "the header's hash does not follow from the one before", offset=self.header.base_offset
            )
        block.check_against(self.data, self.header)
        if self.header.is_rewritten and trail.relinked(self.trail(), self.previous) != self.header.hash:
            raise Corrupt("the trail of the rewritten block does not lead to its hash")

    def trail(self) -> Trail:
        """The blocks that a rewritten one stands for, as their headers were; of another one, itself."""
        if not self.header.is_rewritten:
            return trail.of_header(self.header)
        return trail.of_block(self.data, self.header.base_offset)


class Segment:
    """The files of one segment, open for reading."""

    __slots__ = (
        "_chain_map",
        "_data_map",
        "_files",
        "_mapped",
        "_trail",
        "chain_descriptor",
        "chain_path",
        "data_descriptor",
        "data_path",
        "entry",
        "schema",
    )

    def __init__(
        self,
        files: Files,
        paths: PartitionPaths,
        entry: Entry,
        schema: pa.Schema,
        *,
        write: bool = False,
    ) -> None:
        self._files = files
        self.entry = entry
        self.schema = schema
        self.data_path = paths.data(entry.base, entry.generation)
        self.chain_path = paths.chain(entry.base, entry.generation)
        self._chain_map: mmap.mmap | None = None
        self._data_map: mmap.mmap | None = None
        self._mapped = 0
        self._trail: tuple[int, Trail, list[bytes]] | None = None  # the one looked at last
        self.chain_descriptor = -1
        self.data_descriptor = files.open(self.data_path, write=write)
        self.chain_descriptor = files.open(self.chain_path, write=write)
        if not entry.is_active:
            self._map()

    def _map(self) -> None:
        """Map both files; the descriptors are no longer needed then."""
        try:
            size = self._files.size(self.chain_descriptor)
            if size < self.entry.blocks * HEADER_SIZE:
                raise Corrupt(
                    "the chain file is shorter than the manifest says",
                    file=str(self.chain_path),
                    position=size,
                )
            if self._files.size(self.data_descriptor) < self.entry.data_length:
                raise Corrupt(
                    "the data file is shorter than the manifest says",
                    file=str(self.data_path),
                    position=self._files.size(self.data_descriptor),
                )
            self._chain_map = self._files.map(self.chain_descriptor, self.entry.blocks * HEADER_SIZE)
            self._data_map = self._files.map(self.data_descriptor, self.entry.data_length)
            self._mapped = self.entry.data_length
        finally:
            self.close()

    def map_synced(self, length: int) -> None:
        """So much of the active data file was synced: map it, whole pages only.

        The page that holds the watermark is left out. After a failed sync it must come from the
        device again, and a mapped page would stay in the cache.
        """
        if length - self._mapped < _MAPPED_STEP_BYTES or not self.entry.is_active:
            return
        whole = length - length % mmap.PAGESIZE
        with contextlib.suppress(OSError, ValueError):  # shorter than was synced: reading it tells of it
            self._data_map = self._files.map(self.data_descriptor, whole)
            self._mapped = whole

    def let_go_of_pages(self) -> None:
        """Mapped pages leave this process's memory, not the system's cache: a read brings them back."""
        if self._data_map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._data_map.madvise(mmap.MADV_DONTNEED)

    def read_chain(self, at: int, length: int) -> bytes:
        if self._chain_map is not None:
            return self._chain_map[at : at + length]
        data = read_fully(self._files, self.chain_descriptor, length, at)
        if len(data) != length:
            raise Corrupt("the chain file ends in a header", file=str(self.chain_path), position=at)
        return data

    def read_data(self, at: int, length: int) -> Any:
        if self._data_map is not None and (at + length <= self._mapped or not self.entry.is_active):
            return memoryview(self._data_map)[at : at + length]
        return read_fully(self._files, self.data_descriptor, length, at)

    def headers(self, count: int) -> HeaderView:
        return HeaderView(self.read_chain, count)

    def header_array(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """The headers from `start` to `stop`. They go on one from the other; their links are not followed.

        For whoever counts rows and finds places in many of them at once.
        """
        headers = chain.as_array(self.read_chain(start * HEADER_SIZE, (stop - start) * HEADER_SIZE))
        ends = headers["base_offset"] + headers["span"]
        positions = headers["position"].astype(np.int64) * chain.POSITION_UNIT
        good = bool((headers["base_offset"][1:] == ends[:-1]).all())
        good = good and bool((positions[1:] == positions[:-1] + headers["length"][:-1]).all())
        if not good or bool((headers["rows"] > headers["span"]).any()):
            raise Corrupt(
                "the headers do not go on one from the other",
                file=str(self.chain_path),
                position=start * HEADER_SIZE,
            )
        return headers

    def hash_before(self, index: int) -> bytes:
        """The hash that the header at this index follows from."""
        if index == 0:
            return self.entry.previous_hash
        return self.read_chain(index * HEADER_SIZE - 32, 32)

    def checked_header(self, index: int) -> Header:
        """The header at this index, which must follow from the hash before it."""
        record = self.read_chain(index * HEADER_SIZE, HEADER_SIZE)
        if not chain.follows(record, self.hash_before(index)):
            raise self._broken(index)
        return chain.unpack_header(record)

    def trail_at(self, index: int) -> tuple[Trail, list[bytes]]:
        """The old headers that the rewritten block at this index stands for, and the hash before each."""
        found = self._trail
        if found is None or found[0] != index:
            header, previous = self.checked_header(index), self.hash_before(index)
            old = trail.of_block(self._whole_data(header.position, header.length), header.base_offset)
            after = trail.hashes(old, previous)
            if after[-1] != header.hash:
                raise Corrupt(
                    "the trail of the rewritten block does not lead to its hash",
                    file=str(self.data_path),
                    position=header.position,
                    offset=header.base_offset,
                )
            found = self._trail = index, old, [previous, *after[:-1]]
        return found[1], found[2]

    def is_rewritten(self, index: int) -> bool:
        return (
            bool(self.entry.flags & manifest.REWRITTEN) and self.headers(index + 1).header(index).is_rewritten
        )

    def count_rows(self, start: int, stop: int, first: int, end: int) -> int:
        """Rows of blocks `start` to `stop` with offsets from `first` up to `end`."""
        headers = self.header_array(start, stop)
        count = int(headers["rows"].sum())
        for index in {0, len(headers) - 1} if len(headers) else ():
            header = self.headers(stop).header(start + index)
            if header.base_offset < first or header.end_offset > end:
                stored = self.read_blocks(start + index, start + index + 1, max_bytes=1)[0]
                offsets = stored.decode().column(0).to_numpy()
                outside = len(offsets) - int(offsets.searchsorted(end) - offsets.searchsorted(first))
                count -= outside
        return count

    def leads_to(self, count: int, wanted: bytes) -> bool:
        """Whether the first `count` headers are linked all along and end in this hash."""
        previous = self.entry.previous_hash
        for start in range(0, count, _HEADERS_PER_READ):
            stop = min(count, start + _HEADERS_PER_READ)
            raw = self.read_chain(start * HEADER_SIZE, (stop - start) * HEADER_SIZE)
            if chain.check_links(raw, previous) < stop - start:
                return False
            previous = raw[-32:]
        return previous == wanted

    def covering(self, count: int, offset: int) -> int:
        """Index of the block that covers the offset, or `count` behind them all.

        Bisection believes what it reads, so where it ends is looked at: the spans of good
        headers cover every offset once.
        """
        index = self.headers(count).first_ending_after(offset)
        if index < count:
            header = self.checked_header(index)
            if not header.base_offset <= offset < header.end_offset:
                raise Corrupt(
                    f"the chain leads to offset {header.base_offset} where {offset} was looked for",
                    file=str(self.chain_path),
                    position=index * HEADER_SIZE,
                )
        elif count:
            self.checked_header(count - 1)
        return index

    def _broken(self, index: int) -> Corrupt:
        return Corrupt(
            "the header's hash does not follow from the one before",
            file=str(self.chain_path),
            position=index * HEADER_SIZE,
        )

    def read_blocks(self, start: int, stop: int, *, max_bytes: int, verify: bool = True) -> list[StoredBlock]:
        """The blocks of headers `start` to `stop`, at least one, up to about `max_bytes` of them.

        They lie one after another, so one read serves them all. A bad block ends the run.
        """
        most = min(stop - start, _HEADERS_PER_READ, max_bytes // _SMALLEST_BLOCK + 1)
        raw = self.read_chain(start * HEADER_SIZE, most * HEADER_SIZE)
        previous = self.hash_before(start)
        if len(raw) < HEADER_SIZE:
            raise self._broken(start)
        headers = self._run(raw, len(raw) // HEADER_SIZE, max_bytes)
        good = chain.check_links(raw[: len(headers) * HEADER_SIZE], previous)
        if good == 0:
            raise self._broken(start)
        del headers[good:]
        return self.read_run(headers, previous, verify=verify)

    def read_run(self, headers: list[Header], previous: bytes, *, verify: bool = True) -> list[StoredBlock]:
        """The blocks of headers that follow each other and were checked, with one read."""
        first = headers[0].position
        data = memoryview(self._whole_data(first, headers[-1].end_position - first))
        blocks: list[StoredBlock] = []
        for header in headers:
            part = data[header.position - first : header.end_position - first]
            stored = StoredBlock(header, previous, [part], self.schema)
            try:
                if verify:
                    self._check(stored)
                else:
                    stored.is_checked = False
            except Corrupt:
                if blocks:
                    return blocks  # what is good is handed out; the next read begins with what is not
                raise
            blocks.append(stored)
            previous = header.hash
        return blocks

    def check_blocks(self) -> None:
        """Hash every block of a sealed segment; Corrupt at the first that is not whole."""
        at = size = 0
        while at < self.entry.blocks:
            blocks = self.read_blocks(at, self.entry.blocks, max_bytes=_CHECKED_AT_ONCE)
            at += len(blocks)
            size += sum(stored.header.length for stored in blocks)
            if size >= _RESIDENT_BYTES:
                self.let_go_of_pages()
                size = 0

    def _whole_data(self, at: int, length: int) -> Any:
        """Exactly these bytes. Place and length are outside the hash, so they are not believed."""
        if length > _BELIEVED_BYTES and self.entry.is_active:
            length = max(0, min(length, self._files.size(self.data_descriptor) - at))
        data = self.read_data(at, length)
        if len(data) != length or not length:
            raise Corrupt("the data file ends before the block does", file=str(self.data_path), position=at)
        return data

    def _run(self, raw: bytes, count: int, max_bytes: int) -> list[Header]:
        headers = [chain.unpack_header(raw)]
        for at in range(HEADER_SIZE, count * HEADER_SIZE, HEADER_SIZE):
            header = chain.unpack_header(raw, at)
            if header.position != headers[-1].end_position:
                break
            if header.end_position - headers[0].position > max_bytes:
                break
            headers.append(header)
        return headers

    def _check(self, stored: StoredBlock) -> None:
        if block.is_named_by(stored.data, stored.header):
            return
        try:
            block.check_against(stored.data, stored.header)
        except Corrupt as error:
            raise Corrupt(
                error.message,
                file=str(self.data_path),
                position=stored.header.position,
                offset=stored.header.base_offset,
            ) from error

    def close(self) -> None:
        """Close the descriptors. Mappings go with the last block that lies in them."""
        for name in ("data_descriptor", "chain_descriptor"):
            descriptor = getattr(self, name, -1)
            if descriptor >= 0:
                setattr(self, name, -1)
                self._files.close(descriptor)

    def __del__(self) -> None:
        self.close()
