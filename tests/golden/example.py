"""The worked example of docs/format.md, from the bytes of the golden topic `example`.

`python -m tests.golden.example` writes it into the document, between its two marks; a
test makes it again and compares. Every number comes from the files, and every hash is
computed here.
"""

from __future__ import annotations

import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

ROOT = Path(__file__).resolve().parents[2]
LOG = Path(__file__).parent / "format-1" / "log"
TOPIC = LOG / "topics" / "example"
DOCUMENT = ROOT / "docs" / "format.md"
BEGIN = "<!-- made by tests/golden/example.py: begin -->\n"
END = "<!-- made by tests/golden/example.py: end -->\n"

Part = tuple[int, str]  # so many bytes, and what they are


def render() -> str:
    partition = TOPIC / "p0000"
    data = (partition / f"{0:020d}.arrows").read_bytes()
    chain = (partition / f"{0:020d}.chain").read_bytes()
    return "\n".join(
        [
            *_genesis(),
            *_headers(chain),
            *_block(data, chain),
            *_link(chain),
            *_manifest((partition / "manifest").read_bytes()),
            *_state((partition / "lock").read_bytes()),
        ]
    )


def _genesis() -> Iterator[str]:
    log_id = tomllib.loads((LOG / "log.toml").read_text())["id"]
    topic_id = tomllib.loads((TOPIC / "topic.toml").read_text())["id"]
    yield "**Genesis.** `log.toml` and `topic.toml` name the ids; the partition is 0.\n"
    yield "```text"
    yield f"log id       {log_id}"
    yield f"topic id     {topic_id}"
    yield "partition    00000000"
    yield f"BLAKE3       {blake3(bytes.fromhex(log_id + topic_id) + bytes(4)).hexdigest()}"
    yield "```\n"


def _headers(chain: bytes) -> Iterator[str]:
    yield "**Chain file**, 256 bytes: the header of the control block `created`, then that of the two rows:\n"
    parts = [
        *((8, "base_offset 0"), (4, "span 2"), (4, "rows 2"), (2, "flags 0"), (2, "schema_version 1")),
        *((4, "position {I}, times 8"), (4, "length {I}"), (4, "epoch 0")),
        *((8, "min_timestamp {q}"), (8, "max_timestamp {q}"), (8, "producer 0"), (4, "sequence 0")),
        *((2, "producer_epoch 0"), (2, "reserved"), (32, "digest"), (32, "hash")),
    ]
    yield from _dump(chain, 128, parts)


def _block(data: bytes, chain: bytes) -> Iterator[str]:
    units, length = struct.unpack_from("<II", chain, 128 + 20)
    at = 8 * units
    block = data[at : at + length]
    (metadata,) = struct.unpack_from("<i", block, 4)
    digits = block.index(b"virta\0") + 11
    digits = block.index((chain[128:148] + bytes(8) + chain[156:192]).hex().encode(), digits)
    body = 8 + metadata
    yield (
        f"**Data file.** Its first {_opening(data)} bytes are the schema message, as in "
        f"`schemas/0001.arrow`. The block lies at {at}: one message, {metadata} bytes of metadata and "
        f"{length - body} of body.\n"
    )
    parts = [
        (4, "continuation"),
        (4, "length of the metadata {i}"),
        (digits - 8, "flatbuffer: RecordBatch of 2 rows, 3 nodes, 6 buffers; key `virta`, 224 digits"),
        (128, "digits 0-127: the header's 64 bytes, position and length zero"),
        (32, "digits 128-159: salt"),
        (64, "digits 160-223: digest"),
        (body - digits - 224, "end of the text, padding"),
        (16, "_offset 0, 1"),
        (16, "_timestamp, twice the same"),
        (16, "n 7, -1"),
    ]
    yield from _dump(data, at, parts)
    blanked = block[: digits + 160] + b"0" * 64 + block[digits + 224 :]
    yield "BLAKE3 of these bytes, the last 64 digits read as `0`, is the digest:\n"
    yield "```text"
    yield f"BLAKE3       {blake3(blanked).hexdigest()}"
    yield f"digest       {chain[192:224].hex()}"
    yield "```\n"


def _opening(data: bytes) -> int:
    return 8 + int(struct.unpack_from("<i", data, 4)[0])


def _link(chain: bytes) -> Iterator[str]:
    previous, record = chain[96:128], chain[128:]
    fields = record[:20] + bytes(8) + record[28:64]
    yield "**Hash** of the block: from the hash before it, its fields without its place, and its digest:\n"
    yield "```text"
    yield f"hash before  {previous.hex()}"
    yield f"fields       {fields[:32].hex()}"
    yield f"             {fields[32:].hex()}"
    yield f"digest       {record[64:96].hex()}"
    yield f"BLAKE3       {blake3(previous + fields + record[64:96]).hexdigest()}"
    yield f"hash         {record[96:].hex()}"
    yield "```\n"


def _manifest(data: bytes) -> Iterator[str]:
    yield "**Manifest**, one active segment:\n"
    parts = [
        *((8, "magic VIRTAMF1"), (8, "generation {Q}"), (4, "segments {I}"), (4, "reserved")),
        *((8, "base {Q}"), (8, "end: active"), (4, "generation of the files {I}"), (4, "schema_version {I}")),
        *((8, "blocks: see the chain file"), (8, "rows"), (8, "data_length")),
        *((8, "min_timestamp"), (8, "max_timestamp"), (32, "previous_hash: genesis"), (32, "last_hash")),
        *(
            (32, "schema_digest: BLAKE3 of schemas/0001.arrow"),
            (16, "reserved"),
            (32, "BLAKE3 of all before"),
        ),
    ]
    assert blake3(data[:-32]).digest() == data[-32:]
    assert blake3((TOPIC / "schemas" / "0001.arrow").read_bytes()).digest() == data[24 + 128 : 24 + 160]
    yield from _dump(data, 0, parts)


def _state(data: bytes) -> Iterator[str]:
    at = 512
    assert blake3(data[at : at + 128]).digest() == data[at + 128 : at + 160]
    yield f"**State record**, the slot at {at}, in force because its counter is the greater one:\n"
    parts = [
        *((8, "magic VIRTAST1"), (8, "counter {Q}"), (8, "generation {Q}"), (4, "topic_version {I}")),
        *((4, "flags {I}"), (4, "epoch {I}"), (4, "segment_generation {I}"), (8, "segment_base {Q}")),
        *((8, "synced_offset {Q}"), (8, "synced_blocks {Q}"), (8, "synced_length {Q}"), (8, "inode {Q}")),
        *((16, "boot_id"), (32, "synced_hash"), (32, "BLAKE3 of bytes 0-127 of the slot")),
    ]
    yield from _dump(data, at, parts)


_SIZES = {"{i}": "<i", "{I}": "<I", "{q}": "<q", "{Q}": "<Q"}


def _dump(data: bytes, at: int, parts: list[Part]) -> Iterator[str]:
    """Lines of position, up to sixteen bytes, and what they are; long parts are cut short."""
    yield "```text"
    for size, what in parts:
        piece = data[at : at + size]
        for mark, kind in _SIZES.items():
            if mark in what:
                what = what.replace(mark, f"{struct.unpack(kind, piece)[0]}")
        shown = piece[:16].hex(" ", 4) + (" …" if size > 16 else "")
        yield f"{at:5} {size:4}  {shown:38} {what}"
        at += size
    yield "```\n"


def placed(document: str) -> str:
    """The document with the example made anew."""
    before, _, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{DOCUMENT} has no place for the example"
    return before + BEGIN + "\n" + render() + "\n" + END + after


if __name__ == "__main__":
    DOCUMENT.write_text(placed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
