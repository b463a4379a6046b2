"""Changing which sealed segments a partition has: what retention and every rewrite share.

Runs under the partition's lock, with new files (if there are any) whole, synced and under
their names:

 1. a control block in the active segment says what changes and why (the receipt); it is
    synced, and with it every row before it;
 2. the state record names the next generation, then the manifest with the other segments
    replaces the old one: from here on the change is made;
 3. the files that no manifest names any more are unlinked. Whoever has them open reads on.

A crash before 2 leaves a receipt for what did not happen, which is harmless, and perhaps new
files that no manifest names; after 2 old ones. The steward's next run removes either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virta.storage import manifest
from virta.storage.commit import Committer
from virta.storage.files import Files, SyncFailed, sync_file
from virta.storage.layout import PartitionPaths, segment_of
from virta.storage.manifest import Entry, Manifest


def replace_segments(
    committer: Committer, sealed: tuple[Entry, ...], gone: tuple[Entry, ...], receipt: Mapping[str, Any]
) -> None:
    """Put these sealed segments in force before the active one. The lock is held, nothing waits."""
    view = committer.view
    following = Manifest(
        generation=view.manifest.generation + 1, segments=(*sealed, view.manifest.segments[-1])
    )
    try:
        committer.write_control(dict(receipt))
        sync_file(committer.files, view.active.data_descriptor)
        _switch(committer, following)
    except SyncFailed:
        committer.mark_failed()
        raise
    for entry in gone:
        unlink_segment(committer.files, view.paths, entry)


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
    """All files a segment may have, the data file first.

    In this order they are unlinked: who makes a derived file looks afterwards whether the data
    file is still there, and takes it away again when it is not.
    """
    key = entry.base, entry.generation
    return paths.data(*key), paths.chain(*key), *(paths.derived(*key))


def unlink_segment(files: Files, paths: PartitionPaths, entry: Entry) -> None:
    for path in segment_files(paths, entry):
        files.unlink(path)


def free_generation(files: Files, paths: PartitionPaths, current: Manifest, base: int) -> int:
    """A generation that no file of a segment with this base has, or had."""
    used = [entry.generation for entry in current.segments if entry.base == base]
    for name in files.names(paths.root):
        found = segment_of(name)
        if found is not None and found[0] == base:
            used.append(found[1])
    return max(used, default=-1) + 1
