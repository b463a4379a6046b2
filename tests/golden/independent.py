"""A reader of format 1 beside docs/format.md, with nothing of Virta: structs, BLAKE3 and Arrow.

It is a check on the document: what it does not say, this reader does not know. It reads
whole partitions that nobody writes to, and raises AssertionError where a rule is broken.
"""

from __future__ import annotations

import base64
import itertools
import json
import struct
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from blake3 import blake3

HEADER = struct.Struct("<QIIHHIIIqqQIHH32s32s")
MANIFEST_HEAD = struct.Struct("<8sQII")
MANIFEST_ENTRY = struct.Struct("<QQIIQQQqq32s32s32sI12x")
STATE = struct.Struct("<8sQQIIIIQQQQQ16s32s")
ENTRY_FIELDS = (
    *("base", "end", "generation", "schema_version", "blocks", "rows", "data_length"),
    *("min_timestamp", "max_timestamp", "previous_hash", "last_hash", "schema_digest", "flags"),
)
STATE_FIELDS = (
    *("magic", "counter", "generation", "topic_version", "flags", "epoch", "segment_generation"),
    *("segment_base", "synced_offset", "synced_blocks", "synced_length", "inode", "boot_id", "synced_hash"),
)
ACTIVE = (1 << 64) - 1
CONTROL, REWRITTEN = 1, 4
# The columns of a trail, in their order.
TRAIL_COLUMNS = (
    *(("span", "I"), ("rows", "I"), ("flags", "H"), ("schema_version", "H"), ("epoch", "I")),
    *(("min_timestamp", "q"), ("max_timestamp", "q"), ("producer", "Q"), ("sequence", "I")),
    *(("producer_epoch", "H"), ("reserved", "H")),
)
FIELDS = struct.Struct("<QIIHHIIIqqQIHH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What is in a partition."""

    head: str
    start_offset: int
    next_offset: int
    batches: list[pa.RecordBatch]
    events: list[dict[str, Any]]
    hashes: set[str]  # of every block that was ever appended, as far as it was not removed


def read_partition(log: Path, topic: Path, number: int = 0) -> Read:
    log_id = bytes.fromhex(tomllib.loads((log / "log.toml").read_text())["id"])
    record = tomllib.loads((topic / "topic.toml").read_text())
    root = topic / f"p{number:04d}"
    segments = read_manifest(root / "manifest")
    genesis = blake3(log_id + bytes.fromhex(record["id"]) + struct.pack("<I", number)).digest()
    batches: list[pa.RecordBatch] = []
    events: list[dict[str, Any]] = []
    hashes: set[str] = set()
    seals: list[tuple[dict[str, Any], str, int]] = []
    offset, head = segments[0]["base"], segments[0]["previous_hash"]
    assert head == genesis or offset > 0
    for segment in segments:
        assert segment["previous_hash"] == head and segment["base"] == offset
        schema = (topic / "schemas" / f"{segment['schema_version']:04d}.arrow").read_bytes()
        before = sum(batch.num_rows for batch in batches)
        offset, head, seal = read_segment(root, segment, schema, head, batches, events, hashes)
        if seal:
            seals.append((segment, seal, sum(batch.num_rows for batch in batches) - before))
        if segment["end"] != ACTIVE:
            assert (segment["end"], segment["last_hash"]) == (offset, head)
    if segments[0]["previous_hash"] != genesis:
        receipts = [event for event in events if event["event"] == "retained"]
        assert receipts[-1]["hash_after"] == segments[0]["previous_hash"].hex()
    for segment, seal, rows in seals:
        assert segment["flags"] & 1
        (receipt,) = [event for event in events if event.get("seal") == seal]
        assert (receipt["from"], receipt["to"]) == (segment["base"], segment["end"])
        assert receipt["hash_after"] == segment["last_hash"].hex() and receipt["rows"] == rows
    state = read_state(root / "lock")
    assert state["segment_base"] == segments[-1]["base"] and state["synced_offset"] <= offset
    return Read(
        head=head.hex(),
        start_offset=segments[0]["base"],
        next_offset=offset,
        batches=batches,
        events=events,
        hashes=hashes,
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
    hashes: set[str],
) -> tuple[int, bytes, str]:
    """The offset and the hash it ends with, and its seal if it has rewritten blocks."""
    seal = ""
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
        if flags & REWRITTEN:
            assert segment["end"] != ACTIVE
            assert raw[48:64] == blake3(head + what[:48] + digest + hash_).digest()[:16]
            what = what[:48] + bytes(16)
            seal = blake3(chain).hexdigest()
        else:
            assert blake3(head + what + digest).digest() == hash_
        assert (base, units * 8, version) == (offset, position, segment["schema_version"])
        block = data[position : position + length]
        check_block(block, what, digest)
        batch, metadata = decode(schema, block)
        assert batch.num_rows == rows
        if flags & REWRITTEN:
            hashes |= {one.hex() for one in follow_trail(metadata["virta.trail"], base, span, head, hash_)}
        hashes.add(hash_.hex())
        if flags & CONTROL:
            assert span == 0 and rows == 0
            events.append(json.loads(metadata["virta.event"]))
        else:
            offsets = batch.column(0).to_pylist()
            if flags & REWRITTEN:
                assert offsets == sorted(set(offsets)) and set(offsets) <= set(range(base, base + span))
            else:
                assert offsets == list(range(base, base + rows))
            batches.append(batch)
        offset, position, head = base + span, position + length, hash_
    return offset, head, seal


def follow_trail(text: str, base: int, span: int, head: bytes, wanted: bytes) -> list[bytes]:
    """The hashes of the blocks that a rewritten one stands for; the last of them is its own."""
    data = base64.b64decode(text, validate=True)
    count, size = struct.unpack_from("<II", data)
    columns, digests = zlib.decompress(data[8 : 8 + size]), data[8 + size :]
    assert len(digests) == 32 * count
    at = 0
    trail: dict[str, list[int]] = {}
    for name, kind in TRAIL_COLUMNS:
        trail[name] = list(struct.unpack_from(f"<{count}{kind}", columns, at))
        at += count * struct.calcsize(f"<{kind}")
    assert at == len(columns) and sum(trail["span"]) == span
    trail["min_timestamp"] = list(itertools.accumulate(trail["min_timestamp"]))
    found = []
    for index in range(count):
        old = {name: trail[name][index] for name, _ in TRAIL_COLUMNS}
        fields = FIELDS.pack(
            base,
            *(old["span"], old["rows"], old["flags"], old["schema_version"], 0, 0, old["epoch"]),
            *(old["min_timestamp"], old["min_timestamp"] + old["max_timestamp"]),
            *(old["producer"], old["sequence"], old["producer_epoch"], old["reserved"]),
        )
        head = blake3(head + fields + digests[32 * index : 32 * (index + 1)]).digest()
        base += old["span"]
        found.append(head)
    assert head == wanted
    return found


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


# -- keys --------------------------------------------------------------------------------------

_WORD = (1 << 64) - 1


def mix(x: int) -> int:
    x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & _WORD
    x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & _WORD
    return x ^ (x >> 33)


def key_hash(value: int) -> int:
    """The hash of a key that is one integer: a group of one word."""
    word = mix((value & _WORD) ^ 0x9E3779B97F4A7C15)
    return mix(mix(0x8CB92BA72F3D8DD7 ^ 1) ^ word)
