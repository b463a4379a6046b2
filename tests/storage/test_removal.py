"""Removal of whole segments: with a receipt, through the manifest, whatever crashes in between."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.storage.stored import Stored
from virta.errors import Corrupt, HistoryChanged
from virta.storage import block, manifest
from virta.storage.files import OperatingSystemFiles
from virta.storage.removal import clean, find_leftovers, remove_oldest
from virta.types import Token


class Crash(Exception):
    pass


class CrashingFiles(OperatingSystemFiles):
    """Ends with `Crash` at the n-th change; nothing after it is done."""

    def __init__(self) -> None:
        self.left: int | None = None

    def _step(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash

    def pwrite(self, descriptor, data, position, /):  # type: ignore[no-untyped-def, override]
        self._step()
        return os.pwrite(descriptor, data, position)

    def sync(self, descriptor, /):  # type: ignore[no-untyped-def, override]
        self._step()

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path).fill(segments=4, blocks=2)


def remove(stored: Stored, count: int) -> None:
    stored.locked(lambda committer: remove_oldest(committer, count, "rows"))


def test_the_oldest_segments_go_and_a_receipt_explains_it(stored: Stored) -> None:
    gone = [stored.data(0), stored.data(1), stored.chain(0), stored.chain(1)]
    old = stored.entries
    removal = stored.locked(lambda committer: remove_oldest(committer, 2, "age"))
    assert (removal.from_offset, removal.to_offset, removal.rows, removal.segments) == (0, 12, 12, 2)
    assert not any(path.exists() for path in gone)
    assert stored.ids() == list(range(12, 24))
    report = stored.verify()
    assert not report.problems and report.rows == 12
    receipt = stored.view.active.read_blocks(stored.view.blocks - 1, stored.view.blocks, max_bytes=1)[0]
    event = block.event_of(receipt.data) or {}
    assert event["event"] == "retained" and event["reason"] == "age"
    assert (event["from"], event["to"]) == (0, 12)
    assert event["hash_before"] == old[0].previous_hash.hex()
    assert event["hash_after"] == old[2].previous_hash.hex()


def test_removal_goes_on_over_rolls_and_further_removals(stored: Stored) -> None:
    for _ in range(5):
        remove(stored, 1)
        stored.append()
        stored.roll()
        stored.append()
        assert not stored.verify().problems
    stored.reopen()
    stored.append()
    assert not stored.verify().problems


def test_a_hole_that_no_receipt_explains_is_damage(stored: Stored) -> None:
    """Somebody made a manifest without the oldest segment."""
    shorter = manifest.Manifest(generation=99, segments=stored.entries[1:])
    stored.paths.manifest.write_bytes(shorter.to_bytes())
    report = stored.verify()
    assert not report.ok and report.trustworthy_until == {0: 6}


def test_heads_from_before_the_removal_are_told_from_rewritten_ones(stored: Stored) -> None:
    noted = stored.entries[1].previous_hash.hex()
    lost = stored.view.segment(0).headers(3).header(1).hash.hex()
    remove(stored, 1)
    assert stored.verify(heads=[noted]).ok
    (problem,) = stored.verify(heads=[lost]).problems
    assert "removed" in problem.message


def test_a_reader_in_what_was_removed_is_told_where_to_go_on(stored: Stored) -> None:
    reader = stored.new_view()
    token = Token(partition=0, offset=3, hash=reader.hash_before(3))
    reader.check_token(token)
    remove(stored, 2)
    reader.refresh()
    with pytest.raises(HistoryChanged) as changed:
        reader.check_token(token)
    oldest = changed.value.oldest
    reader.check_token(oldest)
    assert oldest.offset == 12
    assert reader.read(oldest.offset, max_bytes=1)[0].header.base_offset == 12


def test_a_plan_made_before_the_removal_is_still_executed(stored: Stored) -> None:
    reader = stored.new_view()
    plan = reader.plan(0, 12)
    remove(stored, 2)
    rows = [
        one for part in plan for one in part.segment.read_blocks(part.start, part.stop, max_bytes=1 << 20)
    ]
    assert sum(one.header.rows for one in rows) == 12


def test_a_view_that_has_not_looked_again_is_told_too(stored: Stored) -> None:
    reader = stored.new_view()
    remove(stored, 2)
    with pytest.raises(HistoryChanged):
        reader.plan(0, 12)


def test_a_crash_at_any_step_leaves_a_log_that_opens_and_verifies(tmp_path: Path) -> None:
    crashed, steps = True, -1
    while crashed:
        steps += 1
        (tmp_path / str(steps)).mkdir()
        files = CrashingFiles()
        stored = Stored(tmp_path / str(steps), files=files).fill(segments=4, blocks=2)
        files.left = steps
        crashed = False
        try:
            remove(stored, 2)
        except Crash:
            crashed = True
        files.left = None
        stored.reopen()
        report = stored.verify()
        assert report.ok and all(problem.severity == "notice" for problem in report.problems), steps
        stored.append()
        assert stored.ids()[-1] == 26
        stored.locked(lambda committer: clean(committer, now_us=1 << 60))
        if stored.view.start_offset == 0:
            remove(stored, 2)
        assert not stored.verify().problems, steps
        stored.close()


def test_only_what_nobody_names_is_left_over(stored: Stored) -> None:
    root = stored.paths.root
    stray = [root / f"{77:020d}.arrows", root / f"{0:020d}.g0003.chain", root / f"{0:020d}.g0003.stats"]
    aside = root / ".manifest.new"
    kept = [root / f"{0:020d}.arrows.torn-1", root / "notes.txt"]
    for path in [*stray, aside, *kept]:
        path.write_bytes(b"x")

    def leftovers(now_us: int) -> list[Path]:
        return find_leftovers(stored.files, stored.paths, stored.view.manifest, now_us=now_us)

    assert leftovers(0) == sorted(stray)
    assert set(leftovers(1 << 60)) == {*stray, aside}
    stored.locked(lambda committer: clean(committer, now_us=1 << 60))
    assert all(path.exists() for path in kept) and not any(path.exists() for path in [*stray, aside])
    assert stored.ids() == list(range(24))


def test_the_receipt_is_json_that_others_can_read(stored: Stored) -> None:
    remove(stored, 1)
    raw = stored.data(-1).read_bytes()
    at = raw.rindex(b'{"bytes"')
    assert json.loads(raw[at : raw.index(b"}", at) + 1])["event"] == "retained"


def test_a_missing_segment_that_was_not_removed_is_damage(stored: Stored) -> None:
    reader = stored.new_view()
    stored.data(1).unlink()
    with pytest.raises(Corrupt, match="missing"):
        reader.plan(0, 24)
