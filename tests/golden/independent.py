"""A reader of format 1 beside docs/format.md, with nothing of Virta: structs, BLAKE3 and Arrow.

It is a check on the document: what it does not say, this reader does not know. It reads
whole partitions that nobody writes to, and raises AssertionError where a rule is broken.
"""

from __future__ import annotations

import json
import struct
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from blake3 import blake3

HEADER = struct.Struct("<QIIHHIIIqqQIHH32s32s")
MANIFEST_HEAD = struct.Struct("<8sQII")
MANIFEST_ENTRY = struct.Struct("<QQIIQQQqq32s32s32s16x")
STATE = struct.Struct("<8sQQIIIIQQQQQ16s32s")
ENTRY_FIELDS = (
    *("base", "end", "generation", "schema_version", "blocks", "rows", "data_length"),
    *("min_timestamp", "max_timestamp", "previous_hash", "last_hash", "schema_digest"),
)
STATE_FIELDS = (
    *("magic", "counter", "generation", "topic_version", "flags", "epoch", "segment_generation"),
    *("segment_base", "synced_offset", "synced_blocks", "synced_length", "inode", "boot_id", "synced_hash"),
)
ACTIVE = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What is in a partition."""

    head: str
    start_offset: int
    next_offset: int
    batches: list[pa.RecordBatch]
    events: list[dict[str, Any]]


def read_partition(log: Path, topic: Path, number: int = 0) -> Read:
    log_id = bytes.fromhex(tomllib.loads((log / "log.toml").read_text())["id"])
    record = tomllib.loads((topic / "topic.toml").read_text())
    root = topic / f"p{number:04d}"
    segments = read_manifest(root / "manifest")
    genesis = blake3(log_id + bytes.fromhex(record["id"]) + struct.pack("<I", number)).digest()
    batches: list[pa.RecordBatch] = []
    events: list[dict[str, Any]] = []
    offset, head = segments[0]["base"], segments[0]["previous_hash"]
    assert head == genesis or offset > 0
    for segment in segments:
        assert segment["previous_hash"] == head and segment["base"] == offset
        schema = (topic / "schemas" / f"{segment['schema_version']:04d}.arrow").read_bytes()
        offset, head = read_segment(root, segment, schema, head, batches, events)
        if segment["end"] != ACTIVE:
            assert (segment["end"], segment["last_hash"]) == (offset, head)
    if segments[0]["previous_hash"] != genesis:
        receipts = [event for event in events if event["event"] == "retained"]
        assert receipts[-1]["hash_after"] == segments[0]["previous_hash"].hex()
    state = read_state(root / "lock")
    assert state["segment_base"] == segments[-1]["base"] and state["synced_offset"] <= offset
    return Read(
        head=head.hex(), start_offset=segments[0]["base"], next_offset=offset, batches=batches, events=events
    )


def read_manifest(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    assert blake3(data[:-32]).digest() == data[-32:]
    magic, _, count, _ = MANIFEST_HEAD.unpack_from(data)
    assert magic == b"VIRTAMF1" and len(data) == 24 + 176 * count + 32
    return [
        dict(zip(ENTRY_FIELDS, MANIFEST_ENTRY.unpack_from(data, 24 + 176 * index), strict=True))
        for index in range(count)
    ]


def read_state(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    slots = []
    for at in (0, 512):
        slot = data[at : at + 160]
        if len(slot) == 160 and slot[:8] == b"VIRTAST1" and blake3(slot[:128]).digest() == slot[128:]:
            slots.append(dict(zip(STATE_FIELDS, STATE.unpack_from(slot), strict=True)))
    return max(slots, key=lambda slot: slot["counter"])


def read_segment(
    root: Path,
    segment: dict[str, Any],
    schema: bytes,
    head: bytes,
    batches: list[pa.RecordBatch],
    events: list[dict[str, Any]],
) -> tuple[int, bytes]:
    mark = f".g{segment['generation']:04d}" if segment["generation"] else ""
    data = (root / f"{segment['base']:020d}{mark}.arrows").read_bytes()
    chain = (root / f"{segment['base']:020d}{mark}.chain").read_bytes()
    assert data.startswith(schema) and blake3(schema).digest() == segment["schema_digest"]
    offset, position = segment["base"], len(schema)
    count = segment["blocks"] if segment["end"] != ACTIVE else len(chain) // 128
    for index in range(count):
        raw = chain[128 * index : 128 * (index + 1)]
        header = HEADER.unpack(raw)
        base, span, rows, flags, version, units, length = header[:7]
        digest, hash_ = header[-2:]
        what = raw[:20] + bytes(8) + raw[28:64]
        assert blake3(head + what + digest).digest() == hash_
        assert (base, units * 8, version) == (offset, position, segment["schema_version"])
        block = data[position : position + length]
        check_block(block, what, digest)
        batch, metadata = decode(schema, block)
        assert batch.num_rows == rows
        if flags & 1:
            assert span == 0 and rows == 0
            events.append(json.loads(metadata["virta.event"]))
        else:
            assert batch.column(0).to_pylist() == list(range(base, base + rows))
            batches.append(batch)
        offset, position, head = base + span, position + length, hash_
    return offset, head


def check_block(block: bytes, what: bytes, digest: bytes) -> None:
    """The 224 digits: found by their text, since this reader has no parser of flatbuffers."""
    digits = what.hex().encode()
    at = block.index(digits)
    assert block.count(digits) == 1
    own = block[at : at + 224]
    assert bytes.fromhex(own[160:].decode()) == digest
    blanked = block[: at + 160] + b"0" * 64 + block[at + 224 :]
    assert blake3(blanked).digest() == digest


def decode(schema: bytes, block: bytes) -> tuple[pa.RecordBatch, dict[str, str]]:
    """A block depends on no other: behind the schema it is a stream of its own."""
    with pa.ipc.open_stream(schema + block) as reader:
        batch, metadata = reader.read_next_batch_with_custom_metadata()
    return batch, {} if metadata is None else {
        key.decode(): value.decode() for key, value in metadata.items()
    }
