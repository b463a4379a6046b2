"""Making what was not there: a segment's two files, and a partition with its first segment.

Everything is synced before it is named by a manifest (or, for a whole topic, by a
rename), so it is there whole or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.clock import Clock
from virta.storage import block, encode, manifest, state
from virta.storage.files import Bytes, Files, sync_directory, sync_file, write_fully
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry, Manifest
from virta.storage.segment import StoredBlock
from virta.storage.state import State
from virta.storage.view import Identity, schema_digest


def create_partition(
    files: Files,
    paths: PartitionPaths,
    identity: Identity,
    schema: pa.Schema,
    clock: Clock,
    *,
    topic_version: int = 1,
) -> None:
    """Make a new partition: lock, turnstile, first segment and manifest, all synced."""
    files.make_directory(paths.root)
    entry = Entry(base=0, previous_hash=identity.genesis(), schema_digest=schema_digest(schema))
    event = {
        "event": "created",
        "format": 1,
        "log": identity.log_id.hex(),
        "topic": identity.topic_id.hex(),
        "name": identity.topic,
        "partition": identity.number,
        "schema_version": 1,
        "schema": entry.schema_digest.hex(),
    }
    create_segment(files, paths, entry, schema, event, timestamp=clock.now_us())
    write_new(files, paths.turnstile, b"")
    manifest.save(files, paths.manifest, Manifest(generation=1, segments=(entry,)))
    first = State(counter=state.NEW, generation=1, topic_version=topic_version, boot_id=files.boot_id())
    write_new(files, paths.lock, bytes(state.SLOT_DISTANCE) + first.to_bytes())
    files.sync_directory(paths.root)


def create_segment(
    files: Files,
    paths: PartitionPaths,
    entry: Entry,
    schema: pa.Schema,
    event: dict[str, Any],
    *,
    timestamp: int,
    epoch: int = 0,
) -> StoredBlock:
    """Make a segment's two files, with the control block that opens it, and sync them."""
    opening = block.schema_message(schema)
    stamped = block.stamp(
        encode.prepare_control(user_schema(schema), event),
        base_offset=entry.base,
        timestamp=timestamp,
        previous=entry.previous_hash,
        position=len(opening),
        schema_version=entry.schema_version,
        epoch=epoch,
    )
    write_new(files, paths.data(entry.base, entry.generation), opening + block.join(stamped.parts))
    write_new(files, paths.chain(entry.base, entry.generation), stamped.record)
    sync_directory(files, paths.root)
    return StoredBlock(stamped.header, entry.previous_hash, stamped.parts, schema)


def write_new(files: Files, path: Path, data: Bytes) -> None:
    """A whole small file, synced; its directory entry is the caller's to sync."""
    descriptor = files.open(path, write=True, create=True)
    try:
        files.truncate(descriptor, 0)
        write_fully(files, descriptor, data, 0)
        sync_file(files, descriptor)
    finally:
        files.close(descriptor)


def user_schema(full: pa.Schema) -> pa.Schema:
    """The schema without the two leading columns."""
    return pa.schema(list(full)[2:], metadata=full.metadata)
