"""Verification: what is whole passes, every damage is found, named and told from what a crash leaves."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.storage.stored import IDENTITY, Stored, cut, flip
from virta.errors import UsageError
from virta.storage import block, chain, key_index, manifest, state, statistics
from virta.storage.chain import HEADER_SIZE
from virta.storage.verify import Progress, combine, verify_partition
from virta.types import Problem, VerifyReport


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path).fill(segments=3, blocks=3)


def damages(report: VerifyReport) -> list[Problem]:
    return [problem for problem in report.problems if problem.severity == "damage"]


def other_boot(stored: Stored) -> None:
    """As after a restart of the machine: what is above the watermark may be torn."""
    stored.locked(lambda committer: committer.write_state(boot_id=b"another boot id!"))


# -- what is whole -----------------------------------------------------------------------------


def test_a_whole_partition_passes_and_is_counted(stored: Stored) -> None:
    report = stored.verify()
    assert report.ok and not report.problems
    assert report.rows == 27
    assert report.blocks == 12
    assert report.heads == {0: stored.view.head.hex()}
    assert report.trustworthy_until == {0: 27}


def test_an_empty_partition_passes(tmp_path: Path) -> None:
    report = Stored(tmp_path).verify()
    assert report.ok and report.rows == 0 and report.trustworthy_until == {0: 0}


def test_a_segment_without_rows_passes(stored: Stored) -> None:
    stored.roll()
    stored.roll()
    stored.append()
    assert stored.verify() == dataclasses.replace(stored.verify(), problems=())


def test_it_passes_while_a_writer_appends_and_rolls(tmp_path: Path) -> None:
    stored = Stored(tmp_path, segment_bytes=20_000)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            stored.append(50)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            report = stored.verify()
            assert not report.problems
    finally:
        stop.set()
        writer.join()
    assert stored.verify().rows == stored.view.next_offset


def test_it_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virta.storage.verify_segment._PROGRESS_BYTES", 2000)
    stored = Stored(tmp_path).fill()
    told: list[Progress] = []
    stored.verify(progress=told.append)
    assert told == sorted(told, key=lambda progress: progress.blocks)
    assert 0 < told[0].bytes < told[-1].bytes <= told[-1].total_bytes


def test_reports_of_partitions_add_up(stored: Stored) -> None:
    one = stored.verify()
    other = dataclasses.replace(one, heads={1: "ab"}, trustworthy_until={1: 3})
    both = combine([one, other])
    assert both.rows == 2 * one.rows and both.heads.keys() == {0, 1}
    assert both.trustworthy_until == {0: 27, 1: 3}


# -- damage in data ----------------------------------------------------------------------------


def test_a_flipped_bit_in_a_sealed_block_is_named_with_its_place(stored: Stored) -> None:
    header = stored.view.segment(1).headers(4).header(2)
    flip(stored.data(1), header.position + header.length - 5)
    report = stored.verify()
    (problem,) = damages(report)
    assert problem.topic == "orders" and problem.partition == 0
    assert problem.file == str(stored.data(1))
    assert problem.position == header.position
    assert problem.offset == header.base_offset == 12
    assert "restore" in (problem.cure or "")
    assert report.trustworthy_until == {0: 12}
    assert report.rows == 24  # all the others were looked at nevertheless


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_every_damaged_byte_of_data_and_chain_is_found(stored: Stored, segment: int) -> None:
    for path, step in ((stored.data(segment), 29), (stored.chain(segment), 5)):
        whole = path.read_bytes()
        for at in range(0, len(whole), step):
            flip(path, at, 1 << at % 8)
            assert not stored.verify().ok, f"{path.name} at {at}"
            path.write_bytes(whole)
        for at in range(0, len(whole), 8 * step):
            cut(path, at)
            assert not stored.verify().ok, f"{path.name} cut at {at}"
            path.write_bytes(whole)
    assert stored.verify().ok


def test_a_missing_data_file_is_damage_without_a_cure(stored: Stored) -> None:
    stored.data(1).unlink()
    report = stored.verify()
    assert [problem.message for problem in damages(report)] == ["the data file is missing"]
    assert report.trustworthy_until == {0: 9}


def test_two_blocks_that_changed_places_are_found(stored: Stored) -> None:
    headers = stored.view.segment(0).headers(4)
    first, second = headers.header(1), headers.header(2)
    raw = stored.data(0).read_bytes()
    a, b = raw[first.position : first.end_position], raw[second.position : second.end_position]
    assert len(a) == len(b)
    stored.data(0).write_bytes(raw[: first.position] + b + a + raw[second.end_position :])
    report = stored.verify()
    assert report.trustworthy_until == {0: 0}
    assert len(damages(report)) == 2


def test_bytes_behind_the_last_block_of_a_sealed_segment_are_found(stored: Stored) -> None:
    with stored.data(0).open("ab") as file:
        file.write(bytes(8))
    (problem,) = damages(stored.verify())
    assert "left over" in problem.message


def test_columns_that_differ_from_the_header_are_found(tmp_path: Path) -> None:
    """A writer that stamped wrong: all digests fit, but `_offset` is not what the chain says."""
    stored = Stored(tmp_path)
    stored.append()
    original = block._leading_body
    try:
        block._leading_body = lambda rows, codec, base, time: original(rows, codec, base + 1, time)
        stored.append()
    finally:
        block._leading_body = original
    stored.append()
    report = stored.verify()
    (problem,) = damages(report)
    assert "_offset" in problem.message and problem.offset == 3
    assert report.trustworthy_until == {0: 3}


def test_time_that_goes_back_is_found(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.append()
    stored.view.last_timestamp = 0
    stored.committer._tip = None
    stored.clock.now -= 3_600_000_000
    stored.append()
    (problem,) = damages(stored.verify())
    assert "time" in problem.message


def test_the_schema_file_must_be_the_one_the_blocks_were_written_with(stored: Stored) -> None:
    stored.schemas[1] = pa.schema([*block.leading_fields(), pa.field("id", pa.int32())])
    report = stored.verify()
    assert not report.ok and report.trustworthy_until == {0: 0}


# -- damage in derived files ---------------------------------------------------------------------


def test_a_damaged_header_has_a_cure_and_costs_no_trust(stored: Stored) -> None:
    flip(stored.chain(1), 2 * HEADER_SIZE + 40)
    report = stored.verify()
    (problem,) = damages(report)
    assert problem.file == str(stored.chain(1)) and problem.position == 2 * HEADER_SIZE
    assert problem.cure == "virta doctor --repair orders"
    assert report.trustworthy_until == {0: 27} and report.rows == 27


@pytest.mark.parametrize("at", [chain.PLACE_AT, chain.PLACE_AT + 4])
def test_a_damaged_place_in_a_header_has_a_cure(stored: Stored, at: int) -> None:
    flip(stored.chain(0), HEADER_SIZE + at)
    report = stored.verify()
    assert [problem.file for problem in damages(report)] == [str(stored.chain(0))]
    assert report.trustworthy_until == {0: 27}


@pytest.mark.parametrize("segment", [0, 2])
def test_a_missing_chain_file_is_a_warning(stored: Stored, segment: int) -> None:
    stored.chain(segment).unlink()
    report = stored.verify()
    assert report.ok and report.rows == 27
    assert [problem.severity for problem in report.problems] == ["warning"]


def test_a_damaged_manifest_is_found(stored: Stored) -> None:
    flip(stored.paths.manifest, 60)
    report = stored.verify()
    assert not report.ok and report.trustworthy_until == {0: 0}


def test_a_manifest_that_lies_is_found(stored: Stored) -> None:
    first, *others = stored.entries
    for change in ({"rows": 8}, {"data_length": 16}, {"min_timestamp": 5}, {"blocks": 3}):
        false = manifest.Manifest(generation=9, segments=(first._replace(**change), *others))
        stored.paths.manifest.write_bytes(false.to_bytes())
        assert not stored.verify().ok, change


def test_a_lost_state_record_is_a_warning(stored: Stored) -> None:
    stored.paths.lock.write_bytes(b"")
    report = stored.verify()
    assert report.ok and [problem.severity for problem in report.problems] == ["warning"]


def test_files_of_keys_belong_there_and_damaged_ones_are_a_warning(stored: Stored) -> None:
    entry = stored.view.manifest.segments[0]
    path = stored.paths.keys(entry.base, entry.generation)
    entries = key_index.KeyEntries(hashes=np.array([5], np.uint64), rows=np.array([0], np.uint32))
    key_index.save(stored.files, path, entries, entry)
    assert stored.verify().ok and not stored.verify().problems
    flip(path, 90)
    report = stored.verify()
    assert report.ok and [problem.severity for problem in report.problems] == ["warning"]
    assert report.problems[0].file == str(path) and report.problems[0].cure == f"rm {path}"
    path.write_bytes(b"")
    assert [problem.severity for problem in stored.verify().problems] == ["warning"]


def test_damaged_statistics_are_a_warning_and_never_believed(stored: Stored) -> None:
    statistics.make(stored.files, stored.paths, stored.view.segment(0))
    assert not stored.verify().problems
    flip(stored.paths.stats(0), 200)
    report = stored.verify()
    assert report.ok and [problem.file for problem in report.problems] == [str(stored.paths.stats(0))]


# -- what a crash leaves -------------------------------------------------------------------------


def test_bytes_behind_the_active_segment_are_a_notice(stored: Stored) -> None:
    with stored.data(2).open("ab") as file:
        file.write(b"half a block")
    report = stored.verify()
    assert report.ok and report.rows == 27
    (problem,) = report.problems
    assert problem.severity == "notice" and "the next append recovers it" in problem.message


def test_a_bad_block_above_the_watermark_of_another_boot_is_a_notice(stored: Stored) -> None:
    lost = stored.append().header
    flip(stored.data(2), lost.end_position - 3)
    assert not stored.verify().ok  # in this boot the page cache had it whole
    other_boot(stored)
    report = stored.verify()
    assert report.ok and report.rows == 27 and report.trustworthy_until == {0: 27}
    assert [problem.severity for problem in report.problems] == ["notice"]


def test_a_bad_block_below_the_watermark_is_damage_after_any_boot(stored: Stored) -> None:
    header = stored.append().header
    stored.sync()
    other_boot(stored)
    flip(stored.data(2), header.end_position - 3)
    assert not stored.verify().ok


def test_rows_that_were_synced_and_are_cut_off_are_missed(stored: Stored) -> None:
    header = stored.view.segment(2).headers(4).header(2)
    cut(stored.chain(2), 2 * HEADER_SIZE)
    cut(stored.data(2), header.position)
    report = stored.verify()
    (problem,) = damages(report)
    assert "2 blocks are missing" in problem.message
    assert report.trustworthy_until == {0: 21}


def test_evidence_and_leftovers_are_notices(stored: Stored) -> None:
    (stored.paths.root / "00000000000000000000.arrows.torn-1").write_bytes(b"x")
    (stored.paths.root / "00000000000000000900.arrows").write_bytes(b"x")
    (stored.paths.root / ".manifest.new").write_bytes(b"x")
    (stored.paths.root / "holiday.jpg").write_bytes(b"x")
    report = stored.verify()
    assert report.ok
    assert sorted(problem.severity for problem in report.problems) == ["notice"] * 3 + ["warning"]


# -- heads noted earlier -------------------------------------------------------------------------


def test_heads_noted_earlier_are_in_the_chain(stored: Stored) -> None:
    noted = stored.view.head.hex()
    stored.append()
    assert stored.verify(heads=[noted, stored.view.head.hex(), IDENTITY.genesis().hex()]).ok


def test_a_rewritten_history_is_found_by_a_head(tmp_path: Path) -> None:
    noted = Stored(tmp_path / "a" if (tmp_path / "a").mkdir() is None else tmp_path).fill().view.head.hex()
    (tmp_path / "b").mkdir()
    other = Stored(tmp_path / "b").fill()
    report = other.verify(heads=[noted])
    (problem,) = damages(report)
    assert noted in problem.message


def test_a_history_cut_back_and_written_on_is_found_by_a_head(stored: Stored) -> None:
    """Whoever rewrites files can rewrite the state record too; only a head noted elsewhere tells."""
    header = stored.view.segment(2).headers(4).header(3)
    noted = stored.view.head.hex()
    cut(stored.chain(2), 3 * HEADER_SIZE)
    cut(stored.data(2), header.position)
    stored.paths.lock.write_bytes(bytes(state.SLOT_DISTANCE) + state.State(generation=3).to_bytes())
    assert stored.verify().ok
    assert not stored.verify(heads=[noted]).ok


def test_a_history_rewritten_under_the_watermark_is_found_without_a_head(stored: Stored) -> None:
    stored.locked(lambda committer: committer.write_state(synced_hash=b"?" * 32))
    report = stored.verify()
    assert "rewritten" in damages(report)[0].message


def test_another_partition_s_files_do_not_pass(stored: Stored) -> None:
    other = dataclasses.replace(IDENTITY, number=1)
    report = verify_partition(stored.files, stored.paths, other, stored.schemas.__getitem__)
    assert not report.ok and report.trustworthy_until == {1: 0}


@pytest.mark.parametrize("text", ["", "abc", "zz" * 32, "ab" * 31])
def test_what_is_no_head_is_refused(stored: Stored, text: Any) -> None:
    with pytest.raises(UsageError):
        stored.verify(heads=[text])
