"""Repairing a partition on request: chain files, and what a failed sync left behind.

After a failed sync nobody knows which bytes reached the device: the kernel may have
marked pages clean that it never wrote. So a second sync that succeeds proves nothing by
itself, and repair believes only what it reads back:

 1. sync once more, since pages that are still dirty may yet be written; if that fails
    the device is still broken, and nothing else is done;
 2. drop the cache, so that what is read comes from the device;
 3. recover as after a power loss: every block above the watermark is hashed, the first
    bad one and all behind it are cut, kept as evidence and named in a control block;
 4. roll to fresh files; only then the flag that kept writers away is cleared.

A block that is bad below the watermark is damage: Corrupt, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from virta.clock import Clock
from virta.storage import state
from virta.storage.commit import Committer
from virta.storage.files import Files, storage_error, sync_file
from virta.storage.layout import PartitionPaths
from virta.storage.rebuild import ChainMender
from virta.storage.view import Identity, View

_NO_BOOT = bytes(16)
_NEVER_ROLL = 1 << 62


def repair_partition(
    files: Files,
    paths: PartitionPaths,
    identity: Identity,
    schema_of: Callable[[int], pa.Schema],
    clock: Clock,
) -> list[str]:
    """Cure what has a cure; what was done, in words. Reads all data once."""
    done = []
    view = View(files, paths, identity, schema_of, write=True)
    try:
        for entry in view.manifest.segments:
            mender = ChainMender(files, paths, entry)
            if not mender.is_good():
                mender.mend()
                done.append(f"made {paths.chain(entry.base, entry.generation).name} again from its data")
        view.refresh()
        done += repair_failed(view, clock)
    except OSError as error:
        raise storage_error(error, paths.root, "repairing") from error
    finally:
        view.close()
    return done


def repair_failed(view: View, clock: Clock) -> list[str]:
    """Make a partition writable again whose sync failed; what was done, in words."""
    committer = Committer(view, clock, segment_bytes=_NEVER_ROLL)
    committer.lock_only()
    try:
        view.refresh()
        if not view.state.flags & state.FAILED:
            return []
        before = view.next_offset
        _read_from_device(view)
        ChainMender(view.files, view.paths, view.active.entry).check_synced(view.state)
        committer.write_state(boot_id=_NO_BOOT)  # as after a power loss: nothing above the watermark is known
        committer.recover()
        lost = before - view.next_offset
        committer.roll()
        committer.write_state(flags=view.state.flags & ~state.FAILED)
    finally:
        committer.release()
        committer.close()
    told = f"{lost} rows did not reach the disk and were cut; " if lost else "every row is on the disk; "
    return [f"verified the active segment from the device: {told}writing goes on in new files"]


def _read_from_device(view: View) -> None:
    for descriptor in (view.active.data_descriptor, view.active.chain_descriptor):
        sync_file(view.files, descriptor)
        view.files.drop_cache(descriptor)
