"""Taking whole segments away from the old end. Runs under the partition's lock.

 1. a `retained` control block in the active segment says what goes and why, with the
    hash before and after it (the receipt); it is synced;
 2. the state record names the next generation, then the manifest without the segments
    replaces the old one: from here on they are gone;
 3. their files are unlinked. Whoever has them open reads on.

A crash before 2 leaves a receipt for rows that are still there, after 2 files that no
manifest names: the first is harmless, the second is cleaned by the next run. Evidence
that recovery kept (`….torn-<n>`) is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from virta.storage import manifest
from virta.storage.commit import Committer
from virta.storage.files import Files, SyncFailed, sync_directory, sync_file
from virta.storage.layout import PartitionPaths, segment_of
from virta.storage.manifest import Entry, Manifest

# Something written aside that is older than this belongs to nobody any more.
_ASIDE_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What was taken away: rows `from_offset` up to `to_offset`."""

    from_offset: int
    to_offset: int
    segments: int
    rows: int
    bytes: int


def describe_removal(segments: tuple[Entry, ...], count: int) -> Removal:
    gone = segments[:count]
    return Removal(
        from_offset=gone[0].base,
        to_offset=gone[-1].end,
        segments=count,
        rows=sum(entry.rows for entry in gone),
        bytes=sum(entry.data_length for entry in gone),
    )


def remove_oldest(committer: Committer, count: int, reason: str) -> Removal:
    """Remove the oldest `count` segments, never the active one. The lock is held, nothing waits."""
    view = committer.view
    segments = view.manifest.segments
    assert 0 < count < len(segments)
    removal = describe_removal(segments, count)
    try:
        _write_receipt(committer, segments, count, removal, reason)
        _switch(committer, Manifest(generation=view.manifest.generation + 1, segments=segments[count:]))
    except SyncFailed:
        committer.mark_failed()
        raise
    for entry in segments[:count]:
        for path in segment_files(view.paths, entry):
            committer.files.unlink(path)
    return removal


def _write_receipt(
    committer: Committer, segments: tuple[Entry, ...], count: int, removal: Removal, reason: str
) -> None:
    committer.write_control(
        {
            "event": "retained",
            "from": removal.from_offset,
            "to": removal.to_offset,
            "segments": removal.segments,
            "rows": removal.rows,
            "bytes": removal.bytes,
            "reason": reason,
            "hash_before": segments[0].previous_hash.hex(),
            "hash_after": segments[count].previous_hash.hex(),
        }
    )
    sync_file(committer.files, committer.view.active.data_descriptor)


def _switch(committer: Committer, following: Manifest) -> None:
    """Put a manifest in force that has the same active segment; all of that is synced."""
    view = committer.view
    segment, offset, blocks, length, head = committer.position()
    # the record first: a process that sees the new generation reads the manifest again, old or new
    committer.write_state(
        generation=following.generation,
        segment_generation=segment.entry.generation,
        segment_base=segment.entry.base,
        synced_offset=offset,
        synced_blocks=blocks,
        synced_length=length,
        synced_hash=head,
    )
    manifest.save(committer.files, view.paths.manifest, following)
    view.reload_manifest()


def segment_files(paths: PartitionPaths, entry: Entry) -> tuple[Path, ...]:
    """All files a segment may have; the data file last, so that what is left over can be told."""
    key = entry.base, entry.generation
    return *paths.derived(*key), paths.chain(*key), paths.data(*key)


def find_leftovers(files: Files, paths: PartitionPaths, current: Manifest, *, now_us: int) -> list[Path]:
    """Files of interrupted changes, which the manifest does not name. Sure only under the lock."""
    named = {path for entry in current.segments for path in segment_files(paths, entry)}
    found = []
    for name in files.names(paths.root):
        path = paths.root / name
        is_stray = segment_of(name) is not None and path not in named
        if is_stray or (name.startswith(".") and _is_old(files, path, now_us)):
            found.append(path)
    return found


def _is_old(files: Files, path: Path, now_us: int) -> bool:
    modified = files.modified(path)
    return modified is not None and modified[1] // 1000 < now_us - _ASIDE_SECONDS * 1_000_000


def clean(committer: Committer, *, now_us: int) -> list[Path]:
    """Unlink what interrupted changes left. The lock is held."""
    view = committer.view
    leftovers = find_leftovers(committer.files, view.paths, view.manifest, now_us=now_us)
    if leftovers:
        # whoever put the manifest in force may have died before it would outlast a power loss
        sync_directory(committer.files, view.paths.root)
    for path in leftovers:
        committer.files.unlink(path)
    return leftovers
