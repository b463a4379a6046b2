"""Repair on request: chain files, and a partition whose sync failed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.storage.stored import IDENTITY, Stored, flip
from virta.errors import Corrupt, StorageFailed
from virta.storage import block, state
from virta.storage.files import OperatingSystemFiles
from virta.storage.repair import repair_failed, repair_partition


class LosingFiles(OperatingSystemFiles):
    """A device that fails a sync and, once the cache is dropped, shows what it lost."""

    def __init__(self) -> None:
        self.broken = False
        self.lose: tuple[Path, int] | None = None
        self.dropped = 0

    def sync(self, descriptor: int, /) -> None:  # type: ignore[override]
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")

    def drop_cache(self, descriptor: int) -> None:
        self.dropped += 1
        if self.lose is not None:
            path, at = self.lose
            flip(path, at)
            self.lose = None


@pytest.fixture
def files() -> LosingFiles:
    return LosingFiles()


@pytest.fixture
def stored(tmp_path: Path, files: LosingFiles) -> Stored:
    return Stored(tmp_path, files=files).fill(segments=2, blocks=3)


def repair(stored: Stored) -> list[str]:
    return repair_partition(stored.files, stored.paths, IDENTITY, stored.schemas.__getitem__, stored.clock)


def fail(stored: Stored, files: LosingFiles) -> None:
    """Rows are appended, and their sync fails."""
    files.broken = True
    with pytest.raises(OSError):
        stored.sync()
    stored.committer.mark_failed()
    files.broken = False
    stored.reopen()
    with pytest.raises(StorageFailed, match="sync"):
        stored.append()


def test_nothing_is_done_where_nothing_is_wrong(stored: Stored) -> None:
    before = {path: path.read_bytes() for path in stored.paths.root.iterdir()}
    assert repair(stored) == []
    assert {path: path.read_bytes() for path in stored.paths.root.iterdir()} == before


def test_damaged_and_missing_chain_files_are_made_again(stored: Stored) -> None:
    wholes = [stored.chain(index).read_bytes() for index in (0, 1)]
    stored.close()
    flip(stored.chain(0), 200)
    flip(stored.chain(1), 200)
    assert len(repair(stored)) == 2
    assert [stored.chain(index).read_bytes() for index in (0, 1)] == wholes
    assert not stored.verify().problems


def test_after_a_failed_sync_whole_rows_stay_and_writing_goes_on_in_new_files(
    stored: Stored, files: LosingFiles
) -> None:
    stored.append()
    fail(stored, files)
    segments = len(stored.entries)
    (told,) = repair(stored)
    assert "every row is on the disk" in told and files.dropped == 2
    stored.reopen()
    assert len(stored.entries) == segments + 1
    stored.append()
    assert stored.ids() == list(range(24))
    assert not stored.verify().problems


def test_rows_that_the_device_lost_are_cut_kept_and_named(stored: Stored, files: LosingFiles) -> None:
    lost = stored.append().header
    stored.append()
    fail(stored, files)
    files.lose = (stored.data(1), lost.end_position - 10)
    (told,) = repair(stored)
    assert "6 rows did not reach the disk" in told
    stored.reopen()
    assert stored.view.next_offset == 18
    assert list(stored.paths.root.glob("*.torn-1"))
    sealed = stored.view.segment(1)
    events = [
        block.event_of(one.data)
        for one in sealed.read_blocks(0, stored.entries[1].blocks, max_bytes=1 << 20)
        if one.header.is_control
    ]
    recovered = events[-1]
    assert recovered is not None and recovered["event"] == "recovered"
    assert (recovered["from"], recovered["to"]) == (18, 24)
    stored.append()
    assert stored.ids() == list(range(21))
    assert stored.verify().ok


def test_a_device_that_still_fails_changes_nothing(stored: Stored, files: LosingFiles) -> None:
    stored.append()
    fail(stored, files)
    before = stored.data(1).read_bytes()
    files.broken = True
    with pytest.raises(StorageFailed):
        repair(stored)
    assert stored.data(1).read_bytes() == before
    assert stored.new_view().state.flags & state.FAILED


def test_damage_below_the_watermark_is_not_repaired_away(stored: Stored, files: LosingFiles) -> None:
    synced = stored.view.segment(1).headers(4).header(2)
    stored.append()
    fail(stored, files)
    files.lose = (stored.data(1), synced.end_position - 10)
    before = stored.data(1).stat().st_size
    with pytest.raises(Corrupt) as error:
        repair_failed(stored.new_view(write=True), stored.clock)
    assert error.value.position == synced.position
    assert stored.data(1).stat().st_size == before
    assert stored.new_view().state.flags & state.FAILED
