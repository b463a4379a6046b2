"""The state record in a partition's `lock` file: what the last writer knew for sure.

    at   size  field
      0    8   magic "VIRTAST1"
      8    8   counter            rises with every write; the greater valid slot counts
     16    8   generation         of the manifest that is, or is about to be, in force
     24    4   topic_version      a writer with another one reloads the topic's configuration
     28    4   flags              1: a sync failed, 2: the topic is locked, 4: the topic is dropped
     32    4   epoch
     36    4   segment_generation with the next one: the segment to which the watermark belongs
     40    8   segment_base       another than the manifest's active one: a roll was not finished
     48    8   synced_offset      rows before it survive a power loss
     56    8   synced_blocks      headers in the chain file up to there
     64    8   synced_length      bytes in the data file up to there
     72    8   inode              of the data file
     80   16   boot_id            of the boot in which the blocks above the watermark were checked
     96   32   synced_hash
    128   32   BLAKE3 of bytes 0-127

Two slots, at 0 and 512, are written in turn, so a torn write leaves the other. No
valid slot means a watermark of zero: everything in the active segment is checked
again. The record is a hint that saves work, and a brake; it never makes a row exist.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass

from blake3 import blake3

from virta.storage.files import Files, write_fully
from virta.storage.manifest import Entry

MAGIC = b"VIRTAST1"
SLOT_DISTANCE = 512
READ_SIZE = SLOT_DISTANCE + 160

# The counter of a partition's first record: nobody has written rows yet.
NEW = 1

FAILED = 1
LOCKED = 2
DROPPED = 4

_FIELDS = struct.Struct("<8sQQIIIIQQQQQ16s32s")
_SIZE = _FIELDS.size + 32
assert _FIELDS.size == 128


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    counter: int = 0
    generation: int = 0
    topic_version: int = 0
    flags: int = 0
    epoch: int = 0
    segment_generation: int = 0
    segment_base: int = 0
    synced_offset: int = 0
    synced_blocks: int = 0
    synced_length: int = 0
    inode: int = 0
    boot_id: bytes = bytes(16)
    synced_hash: bytes = bytes(32)

    def to_bytes(self) -> bytes:
        fields = _FIELDS.pack(
            MAGIC,
            self.counter,
            self.generation,
            self.topic_version,
            self.flags,
            self.epoch,
            self.segment_generation,
            self.segment_base,
            self.synced_offset,
            self.synced_blocks,
            self.synced_length,
            self.inode,
            self.boot_id,
            self.synced_hash,
        )
        return fields + blake3(fields).digest()

    def is_of(self, entry: Entry) -> bool:
        """Whether the watermark belongs to this segment."""
        return (self.segment_base, self.segment_generation) == (entry.base, entry.generation)

    def is_checked_in(self, boot_id: bytes) -> bool:
        """Whether all blocks above the watermark were checked in this boot; never where none is known."""
        return self.boot_id == boot_id and any(boot_id)


def parse(data: bytes) -> State | None:
    """The newest valid slot of the lock file's bytes."""
    slots = [_parse_slot(data[at : at + _SIZE]) for at in (0, SLOT_DISTANCE)]
    return max((slot for slot in slots if slot), key=lambda slot: slot.counter, default=None)


def _parse_slot(data: bytes) -> State | None:
    if len(data) != _SIZE or data[:8] != MAGIC or blake3(data[:128]).digest() != data[128:]:
        return None
    values = _FIELDS.unpack(data[:128])
    return State(
        counter=values[1],
        generation=values[2],
        topic_version=values[3],
        flags=values[4],
        epoch=values[5],
        segment_generation=values[6],
        segment_base=values[7],
        synced_offset=values[8],
        synced_blocks=values[9],
        synced_length=values[10],
        inode=values[11],
        boot_id=values[12],
        synced_hash=values[13],
    )


def write(files: Files, descriptor: int, state: State) -> State:
    """Write the next state into the slot that is not in force. The caller holds the lock."""
    following = dataclasses.replace(state, counter=state.counter + 1)
    write_fully(files, descriptor, following.to_bytes(), SLOT_DISTANCE * (following.counter % 2))
    return following
