"""The manifest: which segments a partition has. Replaced whole, never changed in place.

    at   size  field
      0    8   magic "VIRTAMF1"
      8    8   generation
     16    4   count of segments
     20    4   reserved
     24  176   per segment, oldest first:
                 0   8  base            first offset
                 8   8  end             first offset after it; the active segment: 2^64 - 1
                16   4  generation      in the segment's file names
                20   4  schema_version
                24   8  blocks
                32   8  rows
                40   8  data_length
                48   8  min_timestamp
                56   8  max_timestamp
                64  32  previous_hash   the hash before its first block
                96  32  last_hash       the hash of its last block
               128  32  schema_digest   BLAKE3 of the schema message
               160   4  flags           1: has rewritten blocks, 2: was compacted, 4: joined
               164  12  reserved
    end   32   BLAKE3 of all before

The last segment is the active one; its end, sizes and last hash are in its chain file.
All sealed segments were synced before the manifest that calls them sealed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from virta.errors import Corrupt
from virta.storage.files import Files, read_file, replace_file

MAGIC = b"VIRTAMF1"
ACTIVE_END = (1 << 64) - 1
REWRITTEN = 1
COMPACTED = 2
JOINED = 4
_HEAD = struct.Struct("<8sQII")
_ENTRY = struct.Struct("<QQIIQQQqq32s32s32sI12x")
assert _HEAD.size == 24 and _ENTRY.size == 176


class Entry(NamedTuple):
    """One segment, in the struct's order. Counts and `last_hash` of the active one are zero.

    A named tuple: all of them are made whenever a log is opened.
    """

    base: int
    end: int = ACTIVE_END
    generation: int = 0
    schema_version: int = 1
    blocks: int = 0
    rows: int = 0
    data_length: int = 0
    min_timestamp: int = 0
    max_timestamp: int = 0
    previous_hash: bytes = bytes(32)
    last_hash: bytes = bytes(32)
    schema_digest: bytes = bytes(32)
    flags: int = 0

    @property
    def is_active(self) -> bool:
        return self.end == ACTIVE_END


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    generation: int
    segments: tuple[Entry, ...]

    @property
    def active(self) -> Entry:
        return self.segments[-1]

    def to_bytes(self) -> bytes:
        parts = [_HEAD.pack(MAGIC, self.generation, len(self.segments), 0)]
        parts += [_ENTRY.pack(*entry) for entry in self.segments]
        body = b"".join(parts)
        return body + blake3(body).digest()


def with_generation(entry: Entry, generation: int) -> Entry:
    return entry._replace(generation=generation)


def parse(data: bytes, path: Path | str) -> Manifest:
    if len(data) < _HEAD.size + 32 or data[:7] != MAGIC[:7]:
        raise Corrupt("this is not a manifest", file=str(path), position=0)
    if data[:8] != MAGIC:
        raise Corrupt("the manifest has a format this version does not know", file=str(path), position=0)
    body, digest = data[:-32], data[-32:]
    if blake3(body).digest() != digest:
        raise Corrupt("the manifest does not match its digest", file=str(path), position=0)
    _, generation, count, _ = _HEAD.unpack_from(body)
    if len(body) != _HEAD.size + count * _ENTRY.size or not count:
        raise Corrupt("the manifest's length is not what it says", file=str(path), position=16)
    entries = [Entry._make(values) for values in _ENTRY.iter_unpack(memoryview(body)[_HEAD.size :])]
    _check(entries, path)
    return Manifest(generation=generation, segments=tuple(entries))


def _check(entries: list[Entry], path: Path | str) -> None:
    for number, entry in enumerate(entries[:-1]):
        following = entries[number + 1]
        if entry.end == ACTIVE_END:
            raise _wrong("only the last segment may be active", number, path)
        if entry.end != following.base or entry.last_hash != following.previous_hash:
            raise _wrong("a segment does not follow the one before it", number + 1, path)
    if not entries[-1].is_active:
        raise _wrong("only the last segment may be active", len(entries) - 1, path)


def _wrong(text: str, number: int, path: Path | str) -> Corrupt:
    return Corrupt(text, file=str(path), position=_HEAD.size + number * _ENTRY.size)


def load(files: Files, path: Path) -> Manifest:
    return parse(read_file(files, path), path)


def save(files: Files, path: Path, manifest: Manifest) -> None:
    replace_file(files, path, manifest.to_bytes())
