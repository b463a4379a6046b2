"""What the fault campaigns found, each as the shortest story that shows it."""

from __future__ import annotations

import contextlib
import errno
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virta.errors import Corrupt, Fenced, NoSpace, StorageFailed
from virta.log import Log
from virta.storage import manifest, recovery, state
from virta.storage.chain import HEADER_SIZE
from virta.storage.files import OperatingSystemFiles
from virta.testing import power
from virta.testing.faults import powerloss_log
from virta.testing.faults.scratch import scratch
from virta.testing.files import Fault, FaultyFiles, Killed, RecordingFiles
from virta.testing.rig import QUIET, SCHEMA, Rig, check_chain
from virta.types import Durability

REAL = OperatingSystemFiles()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A partition with ten rows, all synced."""
    rig = Rig(tmp_path / "p", REAL).create()
    for number in range(0, 10, 2):
        rig.append([number, number + 1], Durability.DISK)
    rig.partition.sync()
    rig.close()
    return tmp_path / "p"


@contextlib.contextmanager
def opened(place: Path, *faults: Fault, **options: Any) -> Iterator[Rig]:
    boot_id = options.pop("boot_id", None)
    rig = Rig(place, FaultyFiles(*faults, boot_id=boot_id), **options)
    try:
        yield rig
    finally:
        rig.abandon()


def numbers(rig: Rig) -> list[int]:
    return list(rig.read_out().numbers)


def roll(rig: Rig) -> None:
    with rig.partition.writing() as committer:
        committer.roll()


def active(place: Path, suffix: str) -> Path:
    return max(place.glob(f"*{suffix}"))


# -- rolls --------------------------------------------------------------------------------------


def test_whoever_looks_in_the_middle_of_a_roll_looks_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state record tells of the new generation before the manifest has it."""
    with opened(place) as reader, opened(place) as writer, opened(place) as other:
        numbers(reader)
        other.append([10])
        save = manifest.save

        def look_first(*arguments: Any) -> None:
            reader.partition.refresh()
            with other.partition._committing:
                other.partition.committer().view.refresh()
            save(*arguments)

        monkeypatch.setattr(manifest, "save", look_first)
        roll(writer)
        writer.append([11])
        assert numbers(reader) == list(range(12))
        other.append([12])  # not into the sealed segment
        assert numbers(reader) == list(range(13))
        check_chain(reader.partition)


def test_a_roll_that_was_cut_short_is_finished_before_anything_is_acknowledged(place: Path) -> None:
    with opened(place, Fault(1, "sync_directory", "*", times=2)) as killed, opened(place) as other:
        other.append([10])
        # the manifest's rename is done, its directory sync is not; then the process is gone
        killed.files.faults[0].seen = -1
        with killed.partition.writing() as committer, pytest.raises(OSError):
            committer.mark_failed = lambda: None
            committer.roll()
        other.files.trace = []
        other.append([11], Durability.DISK)
        trace = other.files.trace
        assert "sync_directory p" in trace
        first_write = next(at for at, what in enumerate(trace) if what.startswith("write 0"))
        assert trace.index("sync_directory p") < first_write
        assert numbers(other) == list(range(12))


def test_a_segment_that_cannot_be_opened_leaves_the_view_as_it_was(place: Path) -> None:
    with opened(place, Fault(1, "open", "00000000000000000011.arrows")) as rig:
        rig.append([10])
        with pytest.raises(StorageFailed):
            roll(rig)
        rig.append([11])
        roll(rig)
    with opened(place) as rig:
        rig.append([12])
        assert numbers(rig) == list(range(13))
        check_chain(rig.partition)


def test_an_older_holder_of_a_name_is_fenced_over_a_roll(place: Path) -> None:
    with opened(place) as older, opened(place) as newer:
        number, epoch, _ = older.claim("name")
        older.append([10], producer=(number, epoch, 0))
        roll(newer)
        newer_claim = newer.claim("name")
        assert newer_claim == (number, epoch + 1, 1)
        newer.append([11], producer=newer_claim)
        with pytest.raises(Fenced):
            older.append([12], producer=(number, epoch, 1))


# -- syncs that fail ----------------------------------------------------------------------------


def test_after_a_failed_sync_nobody_is_acknowledged(place: Path) -> None:
    """The kernel reports a failed sync once: the next one succeeds, and the rows are not there."""
    with opened(place) as rig, opened(place) as other:
        rig.append([10])
        rig.files.faults.append(Fault(1, "sync", "*.arrows"))
        with pytest.raises(StorageFailed):
            rig.partition.sync()
        for durability in Durability:
            with pytest.raises(StorageFailed):
                rig.append([11], durability)
            with pytest.raises(StorageFailed):
                other.append([11], durability)
        with pytest.raises(StorageFailed):
            rig.partition.sync()
    with opened(place) as rig, pytest.raises(StorageFailed):
        rig.append([11])


def test_of_two_who_wait_for_one_sync_neither_is_acknowledged(place: Path) -> None:
    with opened(place) as rig:
        rig.append([10])
        gate, inside = threading.Event(), threading.Event()
        answers: dict[int, object] = {}
        sync = rig.files.sync

        def failing(descriptor: int) -> None:
            if inside.is_set():  # the second sync is for the two that came while the first was at it
                raise OSError(errno.EIO, "gone")
            inside.set()
            assert gate.wait(60)
            sync(descriptor)

        rig.files.sync = failing

        def append(number: int) -> None:
            try:
                rig.append([number], Durability.DISK)
                answers[number] = "acknowledged"
            except StorageFailed as error:
                answers[number] = error

        threads = [threading.Thread(target=append, args=(number,)) for number in (11, 12, 13)]
        threads[0].start()
        assert inside.wait(60)
        for thread in threads[1:]:
            thread.start()
        while len(rig.partition._turns._waiting) < 2:
            pass  # both wait for who leads
        gate.set()
        for thread in threads:
            thread.join(60)
        del rig.files.sync
        assert answers.pop(11) == "acknowledged"
        assert len(answers) == 2 and "acknowledged" not in answers.values()


def test_a_failed_sync_counts_even_if_nobody_can_be_told(place: Path) -> None:
    with opened(place) as rig:
        rig.append([10])
        rig.files.faults += [Fault(1, "sync", "*.arrows"), Fault(1, "write", "lock", times=99)]
        with pytest.raises(StorageFailed):
            rig.partition.sync()
        rig.files.faults.clear()
        with pytest.raises(StorageFailed):
            rig.append([11], Durability.DISK)


def test_a_failed_sync_in_a_roll_stops_everyone(place: Path) -> None:
    for kind, name in (("sync", "*.chain"), ("sync", ".manifest.new"), ("sync_directory", "p")):
        with opened(place, Fault(1, kind, name)) as rig:
            with pytest.raises(StorageFailed):
                roll(rig)
            with pytest.raises(StorageFailed):
                rig.append([10])
            with rig.partition._committing:
                committer = rig.partition._committer
                committer.failed = False
                committer.lock_only()
                committer.view.refresh()
                assert committer.view.state.flags & state.FAILED, (kind, name)
                committer.write_state(flags=0)
                committer.release()


# -- writes that fail -----------------------------------------------------------------------------


def test_rows_whose_header_is_visible_are_appended_although_the_write_failed(place: Path) -> None:
    with opened(place, Fault(1, "write", "*.chain", how="after")) as rig:
        append = rig.append([10, 11])
        assert append.block is not None
        assert numbers(rig) == list(range(12))


def test_no_space_leaves_nothing_and_the_next_row_fits(place: Path) -> None:
    for name in ("*.arrows", "*.chain"):
        before = {path.name: path.stat().st_size for path in place.glob("0*")}
        with opened(place, Fault(1, "write", name, errno.ENOSPC, "half")) as rig:
            with pytest.raises(NoSpace):
                rig.append([10, 11])
            assert {path.name: path.stat().st_size for path in place.glob("0*")} == before
            assert numbers(rig) == list(range(10))


@pytest.mark.parametrize("act", ["roll", "claim", "dump", "sync"])
def test_rows_lost_from_memory_are_told_whoever_tried_to_write_them(place: Path, act: str) -> None:
    with opened(place, segment_bytes=1 << 30) as rig:
        rig.append([10], Durability.MEMORY)
        assert numbers(rig)[-1] == 10
        rig.files.faults.append(Fault(1, "write", "*.arrows", errno.ENOSPC))
        with pytest.raises((StorageFailed, NoSpace)):
            {
                "roll": lambda: roll(rig),
                "claim": lambda: rig.claim("name"),
                "dump": rig.partition.dump,
                "sync": rig.partition.sync,
            }[act]()
        with pytest.raises(StorageFailed, match=r"rows 10 to 10 .* are lost"):
            rig.append([11], Durability.MEMORY)
        assert numbers(rig) == list(range(10))
        with opened(place) as other:  # the lock is free
            other.append([10])


def test_an_interrupted_append_is_not_acknowledged_and_frees_the_lock(place: Path) -> None:
    with opened(place) as rig, opened(place) as other:
        rig.append([10])
        rig.files.pwrite = rig.files.pwritev = _interrupt
        with pytest.raises(KeyboardInterrupt):
            rig.append([11])
        del rig.files.pwrite, rig.files.pwritev
        other.append([12])
        rig.append([13])
        assert numbers(rig) == [*range(11), 12, 13]


def _interrupt(*_: object) -> int:
    raise KeyboardInterrupt


# -- recovery ----------------------------------------------------------------------------------------


def test_a_recovery_that_was_killed_is_done_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a boot the last block's bytes are gone; the recovery that saw it dies before it cut."""
    with opened(place) as rig:
        rig.append([10])
    with active(place, ".arrows").open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"\xee" * 8)
    stuck = Fault(1, "truncate", "*", times=99)
    with opened(place, stuck, boot_id=b"2" * 16) as killed, pytest.raises(StorageFailed):
        killed.append([99])
    with opened(place, boot_id=b"2" * 16) as rig:
        assert numbers(rig) == list(range(10))
        rig.append([10])
        check_chain(rig.partition)


def test_without_a_boot_id_everything_above_the_watermark_is_checked(place: Path) -> None:
    nameless = bytes(16)
    with opened(place, boot_id=nameless) as rig:
        rig.append([10])
        assert not rig.partition._view.state.is_checked_in(nameless)
    with active(place, ".arrows").open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"\xee" * 8)
    with opened(place, boot_id=nameless) as rig:
        assert numbers(rig) == list(range(10))


def test_below_the_watermark_nothing_is_cut(place: Path) -> None:
    path = active(place, ".arrows")
    data = bytearray(path.read_bytes())
    data[-900] ^= 1
    path.write_bytes(data)
    active(place, ".chain").write_bytes(b"")
    with opened(place, boot_id=b"2" * 16) as rig, pytest.raises(Corrupt):
        rig.append([10])
    assert path.read_bytes() == data
    assert not list(place.glob("*.torn-*"))


def test_an_older_history_that_is_back_in_the_chain_is_not_believed(place: Path) -> None:
    """The chain is not synced: what a recovery cut from it may be there again after the next loss."""
    with opened(place) as rig:
        rig.append([99])
    before = active(place, ".chain").read_bytes()
    with active(place, ".arrows").open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"\xee" * 8)
    with opened(place, boot_id=b"2" * 16) as rig:
        rig.append([10], Durability.DISK)
        rig.partition.sync()
    active(place, ".chain").write_bytes(before)
    with opened(place, boot_id=b"3" * 16) as rig:
        assert numbers(rig) == list(range(11))
        check_chain(rig.partition)


def test_a_copy_of_evidence_that_does_not_fit_is_not_left_behind(place: Path) -> None:
    with active(place, ".arrows").open("ab") as file:
        file.write(b"\xff" * 100)
    with opened(place, Fault(1, "write", "*.torn-*", errno.ENOSPC, times=99)) as rig:
        for _ in range(3):
            with pytest.raises(NoSpace):
                rig.append([10])
    assert not list(place.glob("*.torn-*"))
    with opened(place) as rig:
        rig.append([10])
        assert numbers(rig) == list(range(11))
    assert len(list(place.glob("*.torn-*"))) == 1


def test_readers_recover_too_after_a_boot(place: Path) -> None:
    """The chain file is not synced: rows acknowledged at disk are missing in it, not in the data."""
    with active(place, ".chain").open("r+b") as file:
        file.truncate(2 * HEADER_SIZE + 17)
    with opened(place, boot_id=b"2" * 16) as reader:
        assert numbers(reader) == list(range(10))


def test_a_lost_epoch_is_not_given_again(place: Path) -> None:
    with opened(place) as rig:
        with rig.partition.writing() as committer:
            committer.write_state(epoch=7)
        rig.append([10])
    (place / "lock").write_bytes(bytes(672))
    with opened(place) as rig, rig.partition.writing() as committer:
        recovery.recover(committer.view, committer.lock.descriptor)
        assert committer.view.state.epoch >= 7


# -- what is believed -----------------------------------------------------------------------------------


def test_a_search_that_a_bad_header_misleads_is_noticed(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "p", REAL).create()
    for number in range(20):
        rig.append([number], Durability.DISK)
    rig.close()
    path = active(tmp_path / "p", ".chain")
    pristine = path.read_bytes()
    for index in range(len(pristine) // HEADER_SIZE - 1):
        data = bytearray(pristine)
        data[index * HEADER_SIZE + 6] = 1  # a base offset far away
        path.write_bytes(data)
        with opened(tmp_path / "p") as reader:
            for offset in range(20):
                reader.partition.tail.clear()
                with contextlib.suppress(Corrupt):
                    found = reader.partition.read(offset, max_bytes=1)[0].header
                    assert found.base_offset <= offset < found.end_offset
        path.write_bytes(pristine)


def test_another_schema_than_the_one_it_was_written_with_is_refused(place: Path) -> None:
    rig = Rig(place, REAL)
    other = SCHEMA.set(2, SCHEMA.field(2).with_name("m"))
    from virta.storage.view import View

    with pytest.raises(Corrupt, match="schema"):
        View(REAL, rig.paths, rig.identity, lambda _: other)


def test_timestamps_never_go_back_when_the_clock_does(place: Path) -> None:
    class Backwards:
        now = 4_000_000_000_000_000

        def now_us(self) -> int:
            self.now -= 1_000_000
            return self.now

        def monotonic(self) -> float:
            return 0.0

    clock = Backwards()
    for number in range(10, 20):
        with opened(place, clock=clock) as rig:
            rig.append([number])
            if number % 3 == 0:
                roll(rig)
            rig.append([number + 100])
            rig.read_out()  # checks them


def test_a_control_block_before_rows_hides_none_of_them(place: Path) -> None:
    with opened(place) as reader, opened(place) as writer:
        numbers(reader)
        writer.claim("somebody")
        writer.append([10])
        found = reader.partition.read(10, max_bytes=1)
        assert [block.header.rows for block in found] == [1]


# -- topics ---------------------------------------------------------------------------------------------


def test_a_topic_whose_making_fails_anywhere_is_there_whole_or_not_at_all() -> None:
    at = 0
    fault = Fault(1, hit="something")
    while fault.hit:
        at += 1
        fault = Fault(at)
        with scratch("virta-topics") as root:
            Log(root / "log", settings=QUIET).close()
            refused = contextlib.suppress(StorageFailed)
            with refused, Log(root / "log", settings=QUIET, files=FaultyFiles(fault)) as log:
                log.create_topic("t", {"n": int}, durability="disk")
            with Log(root / "log", settings=QUIET) as log:
                topic = log.create_topic("t", {"n": int}, durability="disk", if_missing=True)
                topic.append({"n": 1})
                assert topic.to_arrow()["n"].to_pylist() == [1]
                assert topic.verify().ok


def test_a_topic_found_halfway_made_outlasts_a_power_loss_once_it_is_written_to(tmp_path: Path) -> None:
    """Its maker died between the rename and the sync of the directory it went to."""
    root = tmp_path / "live"
    root.mkdir()
    files = RecordingFiles(root)
    log = powerloss_log.open_log(root, files)
    made = len(files.record.events)
    log.create_topic("first", {"n": int})
    events = files.record.events[made:]
    renamed = next(at for at, event in enumerate(events) if event.path == "log/topics/first")
    changes = sum(event.kind != "mark" for event in events[: renamed + 1])
    files.kill_in = changes
    with pytest.raises(Killed):
        log.create_topic("second", {"n": int, "text": str}, durability="disk")
    powerloss_log._abandon(log)
    files.revive()
    with powerloss_log.open_log(root, files) as log:
        log.topic("second").append({"n": 0, "text": ""})
        files.mark(("second", 1))
        record = list(files.record.events)
    files.record.events = record
    last = list(power.states(files.record, random.Random(1), samples=0, first_cut=len(record)))
    assert last
    for lost in last:
        assert powerloss_log.check_state(lost, tmp_path / "cut") == [], lost.fates
