"""What a log holds, as JSON: every block's header, hash and event, and every row's values."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from virta.log import Log
from virta.storage import block
from virta.storage.layout import TORN_MARK
from virta.storage.segment import StoredBlock
from virta.topics.topic import Topic

# Longer texts and bytes are named by their length and digest.
_SHOWN = 48


def describe_log(log: Log) -> dict[str, Any]:
    return {
        "files": files_of(log.path),
        "topics": {name: describe_topic(log.topic(name)) for name in log.topics()},
    }


def files_of(root: Path) -> dict[str, str]:
    """Every file with the BLAKE3 of its bytes: golden files never change."""
    return {
        path.relative_to(root).as_posix(): blake3(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def describe_topic(topic: Topic) -> dict[str, Any]:
    partition = topic.partition(0)
    report = topic.verify()
    return {
        "id": topic.id,
        "version": topic.version,
        "head": topic.head,
        "start_offset": topic.start_offset,
        "next_offset": topic.next_offset,
        "schema": [
            f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in topic.schema
        ],
        "tokens": [
            str(partition.token(offset)) for offset in range(topic.start_offset, topic.next_offset + 1, 3)
        ],
        "rows": [[row.offset, row.timestamp.isoformat(), describe_value(row.to_dict())] for row in topic],
        "blocks": [describe_block(stored) for stored in stored_blocks(topic)],
        "verified": {"ok": report.ok, "blocks": report.blocks, "rows": report.rows, "bytes": report.bytes},
        "evidence": sum(TORN_MARK in path.name for path in partition.stored.paths.root.iterdir()),
    }


def stored_blocks(topic: Topic) -> Iterator[StoredBlock]:
    """Every block of the first partition, control blocks among them."""
    with topic.partition(0).stored.view() as view:
        for index in range(len(view.manifest.segments)):
            for at in range(view.blocks_in(index)):
                yield from view.segment(index).read_blocks(at, at + 1, max_bytes=1)


def describe_block(stored: StoredBlock) -> dict[str, Any]:
    header = stored.header._asdict()
    return {
        **{name: value.hex() if isinstance(value, bytes) else value for name, value in header.items()},
        "event": block.event_of(stored.data) if stored.header.is_control else None,
    }


def describe_value(value: Any) -> Any:
    """A value as JSON that is the same for equal values only."""
    if isinstance(value, Mapping):
        return {str(key): describe_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [describe_value(inner) for inner in value]
    if isinstance(value, bytes):
        return f"bytes {value.hex()}" if len(value) <= _SHOWN else _digest("bytes", value)
    if isinstance(value, str):
        return value if len(value) <= _SHOWN else _digest("text", value.encode())
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat()
    if isinstance(value, datetime.date | decimal.Decimal | uuid.UUID):
        return f"{type(value).__name__} {value}"
    return value


def _digest(kind: str, data: bytes) -> str:
    return f"{kind} of {len(data)} bytes, {blake3(data).hexdigest()[:16]}"
