"""Where keys stand in a sealed segment: the hash of each key, and the row that is its newest there.

    at  size  field
     0     8  magic "VIRTAKY\\x01"
     8    32  BLAKE3 of all after it
    40    32  last_hash of the segment it was made from
    72     8  data_length of that segment
    80     8  n, the number of entries
    88   8*n  hashes, rising
          4*n  rows: the row's number in the segment, counted from 0; bit 31: it deletes its key

One entry per key, so a hash stands twice only where two keys share it. What the hashes are
of is not known here (docs/format.md, *Keys*). The file is derived: made by the first who
looks for a key, made again when it is missing, damaged or of another segment, and never
believed before the row it leads to was looked at.
"""

from __future__ import annotations

import contextlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from virta.errors import Corrupt
from virta.storage.files import Files, write_fully
from virta.storage.manifest import Entry

MAGIC = b"VIRTAKY\x01"
DELETES = 1 << 31
_HEAD = struct.Struct("<8s32s32sQQ")
_DIGESTED_AT = 40

Hashes: TypeAlias = npt.NDArray[np.uint64]
Rows: TypeAlias = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntries:
    """Hashes, rising, and the row of each."""

    hashes: Hashes
    rows: Rows


def load(files: Files, path: Path, entry: Entry) -> KeyEntries | None:
    """The entries of a sealed segment, mapped; None when there are none that can be believed."""
    try:
        descriptor = files.open(path)
    except OSError:
        return None
    try:
        return parse(files.map(descriptor, files.size(descriptor)), entry)
    except (OSError, ValueError, Corrupt):
        return None
    finally:
        files.close(descriptor)


def parse(data: Any, entry: Entry) -> KeyEntries:
    """Corrupt unless the bytes are whole and of this very segment."""
    if len(data) < _HEAD.size:
        raise Corrupt("this is no file of keys")
    magic, digest, last_hash, data_length, count = _HEAD.unpack_from(data)
    if magic != MAGIC or len(data) != _HEAD.size + 12 * count:
        raise Corrupt("this is no file of keys")
    if blake3(memoryview(data)[_DIGESTED_AT:]).digest() != digest:
        raise Corrupt("the keys do not match their digest")
    if (last_hash, data_length) != (entry.last_hash, entry.data_length):
        raise Corrupt("the keys are of another segment")
    return KeyEntries(
        hashes=np.frombuffer(data, "<u8", count, _HEAD.size),
        rows=np.frombuffer(data, "<u4", count, _HEAD.size + 8 * count),
    )


def to_bytes(entries: KeyEntries, entry: Entry) -> bytes:
    body = struct.pack("<32sQQ", entry.last_hash, entry.data_length, len(entries.hashes))
    body += entries.hashes.astype("<u8").tobytes() + entries.rows.astype("<u4").tobytes()
    return bytes(MAGIC + blake3(body).digest() + body)


def save(files: Files, path: Path, entries: KeyEntries, entry: Entry) -> None:
    """Keep them, if they can be written; appears by rename, unsynced, since its digest tells a torn one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    with contextlib.suppress(OSError):  # a read-only or full place: then they serve this process only
        descriptor = files.open(aside, write=True, create=True)
        try:
            write_fully(files, descriptor, to_bytes(entries, entry), 0)
            files.rename(aside, path)
        except BaseException:
            files.unlink(aside)
            raise
        finally:
            files.close(descriptor)
