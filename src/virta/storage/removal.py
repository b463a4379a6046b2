"""Taking whole segments away from the old end, and clearing up. Runs under the partition's lock.

`replace` says how, and what a crash leaves. The receipt is a `retained` control block with the
hash before and after what went. Evidence that recovery kept (`….torn-<n>`) is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from virta.storage.commit import Committer
from virta.storage.files import Files, sync_directory
from virta.storage.layout import PartitionPaths, segment_of
from virta.storage.manifest import Entry, Manifest
from virta.storage.replace import replace_segments, segment_files

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
    segments = committer.view.manifest.segments
    assert 0 < count < len(segments)
    removal = describe_removal(segments, count)
    receipt = {
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
    replace_segments(committer, segments[count:-1], segments[:count], receipt)
    return removal


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
