"""Making a chain file again from its data file: byte for byte the same.

A block says of itself everything that its header says but for the place, so a chain
file that is gone or does not agree with its data is simply written anew. A sealed
segment's must end in the hash that the manifest names; nobody appends to it, so no lock
is needed. The active segment's is made under the partition's lock, as far as there are
whole blocks, and must reach the synced watermark; the epoch rises, so that everyone who
has the old file open looks again and finds the new one.

Where the data itself is damaged nothing is written: Corrupt names the place.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from blake3 import blake3

from virta.errors import Corrupt, StorageFailed
from virta.storage import block, chain, manifest, message, state, trail
from virta.storage.chain import HEADER_SIZE, Header
from virta.storage.files import Files, read_fully, write_fully
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry
from virta.storage.state import State
from virta.types import HASH_SIZE

# A commit holds the lock for milliseconds; a process with rows in memory for some tens.
_LOCK_SECONDS = 2.0


def header_of(data: Any, previous: bytes, position: int) -> Header:
    """The header of a block, made from the block itself. Corrupt when its digest is wrong."""
    fields, digest = block.check(data)
    if not block.is_rewritten(fields):
        hash_ = chain.link(previous, fields, digest)
    else:
        old = trail.of_block(data, block.base_offset_of(fields))
        hash_ = trail.relinked(old, previous)
        fields = chain.with_check(previous, fields, digest, hash_)
    placed = chain.with_place(fields, position, len(data))
    return chain.unpack_header(placed + digest + hash_)


def blocks_start(files: Files, descriptor: int, entry: Entry) -> int:
    """Where the first block lies: behind the schema, which must be the one that the manifest names."""
    size = message.metadata_size(read_fully(files, descriptor, message.PREFIX_SIZE, 0))
    front = read_fully(files, descriptor, size, 0)
    if blake3(front).digest() != entry.schema_digest:
        raise Corrupt("the data file does not open with the schema that the manifest names")
    return size


def headers_in(files: Files, descriptor: int, *, previous: bytes, start: int, end: int) -> Iterator[Header]:
    """The headers of the blocks from `start` to `end`. Corrupt at the first that is not whole."""

    def read(at: int, length: int) -> bytes:
        return read_fully(files, descriptor, length, at)

    at = start
    while at < end:
        length = block.measure(read, at, end)
        header = header_of(read(at, length), previous, at)
        yield header
        at, previous = header.end_position, header.hash


@dataclass(slots=True, kw_only=True)
class _Made:
    """Headers made so far, where the next block lies, and why there was none."""

    position: int
    offset: int
    data: bytearray = field(default_factory=bytearray)
    reason: str = "the data file ends too soon"

    @property
    def count(self) -> int:
        return len(self.data) // HEADER_SIZE

    def hash_at(self, count: int) -> bytes:
        """The hash after so many blocks."""
        return bytes(self.data[count * HEADER_SIZE - HASH_SIZE : count * HEADER_SIZE])


class ChainMender:
    """Writes one segment's chain file anew."""

    def __init__(self, files: Files, paths: PartitionPaths, entry: Entry) -> None:
        self._files = files
        self._paths = paths
        self._entry = entry
        self._data_path = paths.data(entry.base, entry.generation)
        self._chain_path = paths.chain(entry.base, entry.generation)

    def mend(self) -> None:
        if self._entry.is_active:
            self._mend_active()
        else:
            self._replace(self._sealed_chain())

    def is_good(self) -> bool:
        """Whether the chain file is what the data says. The active segment's may say more than is whole."""
        if self._entry.is_active:
            return self._names(bytes(self._collect(None).data), or_more=True)
        return self._names(self._sealed_chain())

    def check_synced(self, known: State) -> None:
        """That all data of the active segment below the watermark is whole; Corrupt otherwise."""
        self._active_chain(known)

    def _replace(self, made: bytes) -> None:
        """Appears by rename; the name aside is this call's own, since others may do the same just now."""
        aside = self._chain_path.with_name(f".{self._chain_path.name}.{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = self._files.open(aside, write=True, create=True)
        try:
            write_fully(self._files, descriptor, made, 0)
            self._files.sync(descriptor)
            self._files.rename(aside, self._chain_path)
        except BaseException:
            self._files.unlink(aside)
            raise
        finally:
            self._files.close(descriptor)
        self._files.sync_directory(self._paths.root)

    def _corrupt(self, text: str, made: _Made) -> Corrupt:
        return Corrupt(
            f"the chain file cannot be made again: {text}",
            file=str(self._data_path),
            position=made.position,
            offset=made.offset,
            hint="the data is damaged: `virta verify` says what is still trustworthy",
        )

    def _collect(self, end: int | None) -> _Made:
        """Headers up to the end of the data, or as far as they are whole; and why not further."""
        entry = self._entry
        descriptor = self._files.open(self._data_path)
        try:
            size = self._files.size(descriptor)
            limit = size if end is None else min(size, end)
            start = blocks_start(self._files, descriptor, entry)
            made = _Made(position=start, offset=entry.base)
            try:
                for header in headers_in(
                    self._files, descriptor, previous=entry.previous_hash, start=start, end=limit
                ):
                    chain.check_follows(header, next_offset=made.offset, position=made.position)
                    if entry.is_active:
                        chain.check_appended(header)
                    made.data += header.to_bytes()
                    made.position, made.offset = header.end_position, header.end_offset
            except Corrupt as error:
                made.reason = error.message
        finally:
            self._files.close(descriptor)
        return made

    def _sealed_chain(self) -> bytes:
        entry = self._entry
        made = self._collect(entry.data_length)
        if made.count < entry.blocks:
            raise self._corrupt(made.reason, made)
        if made.count > entry.blocks or made.hash_at(made.count) != entry.last_hash:
            raise self._corrupt("its blocks do not end in the hash that the manifest names", made)
        return bytes(made.data)

    # -- the active segment: under the lock -------------------------------------------------------

    def _mend_active(self) -> None:
        descriptor = self._files.open(self._paths.lock, write=True)
        try:
            self._lock(descriptor)
            active = manifest.load(self._files, self._paths.manifest).active
            if (active.base, active.generation) != (self._entry.base, self._entry.generation):
                return  # rolled meanwhile; whoever asked looks again
            known = state.parse(self._files.pread(descriptor, state.READ_SIZE, 0)) or State()
            made = self._active_chain(known)
            if self._names(made, or_more=True):
                return  # somebody else was faster; what is named beyond the data is recovery's matter
            self._replace(made)
            state.write(self._files, descriptor, dataclasses.replace(known, epoch=known.epoch + 1))
        finally:
            self._files.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not self._files.lock(descriptor, wait=False):
            if time.monotonic() > deadline:
                raise StorageFailed(
                    f"{self._chain_path} is damaged or missing, and a writer keeps it from being made again",
                    hint="try again when no other process is writing",
                )
            time.sleep(0.005)

    def _names(self, made: bytes, *, or_more: bool = False) -> bool:
        """Whether the chain file holds exactly this already (or begins with it)."""
        try:
            descriptor = self._files.open(self._chain_path)
        except FileNotFoundError:
            return False
        try:
            found = read_fully(self._files, descriptor, len(made) + 1, 0)
            return found[: len(made)] == made if or_more else found == made
        finally:
            self._files.close(descriptor)

    def _active_chain(self, known: State) -> bytes:
        made = self._collect(None)
        if known.is_of(self._entry) and known.synced_blocks:
            if made.count < known.synced_blocks:
                raise self._corrupt(made.reason, made)
            if made.hash_at(known.synced_blocks) != known.synced_hash:
                raise self._corrupt("its blocks do not lead to the hash that was synced", made)
        return bytes(made.data)


def mend_chain(files: Files, paths: PartitionPaths, entry: Entry) -> None:
    """Make a segment's chain file again from its data file."""
    ChainMender(files, paths, entry).mend()
