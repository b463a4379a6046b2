"""A chain file that is deleted or damaged comes back byte for byte, and nobody who reads or writes minds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.stored import Stored, cut, flip
from virta.errors import Corrupt
from virta.storage import rebuild
from virta.storage.chain import HEADER_SIZE
from virta.storage.rebuild import ChainMender


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path).fill(segments=3, blocks=3)


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_deleted_chain_file_comes_back_the_same(stored: Stored, segment: int) -> None:
    path = stored.chain(segment)
    whole = path.read_bytes()
    stored.close()
    path.unlink()
    assert stored.ids() == list(range(27))
    assert path.read_bytes() == whole
    stored.open()
    assert stored.append().header.base_offset == 27
    assert not stored.verify().problems


@pytest.mark.parametrize("segment", [0, 1, 2])
@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_chain_file_that_was_cut_short_comes_back(stored: Stored, segment: int, blocks: int) -> None:
    path = stored.chain(segment)
    whole = path.read_bytes()
    stored.close()
    cut(path, blocks * HEADER_SIZE + 5)
    stored.open()
    stored.append()
    assert stored.ids() == list(range(30))
    assert path.read_bytes()[: len(whole)] == whole
    assert not stored.verify().problems


@pytest.mark.parametrize("segment", [0, 2])
def test_a_damaged_header_is_made_again_by_who_meets_it(stored: Stored, segment: int) -> None:
    path = stored.chain(segment)
    whole = path.read_bytes()
    for index in range(len(whole) // HEADER_SIZE):
        for at in (0, 9, 44, 70, 100):
            flip(path, index * HEADER_SIZE + at)
            base = stored.entries[segment].base
            view = stored.new_view()
            plan = view.plan(base, base + 9)
            assert sum(part.stop - part.start for part in plan) >= 3
            view.close()
            path.write_bytes(whole)
    assert stored.ids() == list(range(27))


def test_all_chain_files_may_go_at_once(stored: Stored) -> None:
    stored.close()
    wholes = {path: path.read_bytes() for path in stored.paths.root.glob("*.chain")}
    for path in wholes:
        path.unlink()
    assert stored.ids() == list(range(27))
    assert {path: path.read_bytes() for path in wholes} == wholes


def test_writers_and_readers_at_work_go_on_with_the_new_file(stored: Stored) -> None:
    reader, other = stored.new_view(), Stored.__new__(Stored)
    other.__dict__ = {**stored.__dict__}
    other.open()
    other.append()
    stored.chain(2).unlink()
    assert stored.ids() == list(range(30))  # makes it again, while two writers have the old one open
    stored.append()
    other.append()
    stored.append()
    reader.refresh()
    assert reader.next_offset == 39 and reader.cuts == 0
    assert stored.ids() == list(range(39))
    assert not stored.verify().problems


def test_only_whole_blocks_come_back_and_the_rest_is_recovered(stored: Stored) -> None:
    with stored.data(2).open("ab") as file:
        file.write(b"\xff\xff\xff\xff half a block")
    stored.close()
    stored.chain(2).unlink()
    stored.open()
    stored.append()
    assert stored.ids() == list(range(30))


def test_damaged_data_is_not_papered_over(stored: Stored) -> None:
    header = stored.view.segment(0).headers(4).header(2)
    flip(stored.data(0), header.position + 300)
    stored.chain(0).unlink()
    with pytest.raises(Corrupt) as error:
        stored.new_view().plan(0, 3)
    assert error.value.file == str(stored.data(0))
    assert error.value.position == header.position
    assert not stored.chain(0).exists()


def test_rows_that_were_synced_are_missed(stored: Stored) -> None:
    header = stored.view.segment(2).headers(4).header(2)
    stored.close()
    stored.chain(2).unlink()
    cut(stored.data(2), header.position)
    with pytest.raises(Corrupt) as error:
        stored.new_view()
    assert error.value.position == header.position
    assert not stored.chain(2).exists()


def test_a_rewritten_sealed_segment_is_refused(stored: Stored, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Stored(tmp_path / "other").fill(segments=3, blocks=3)
    stored.data(0).write_bytes(other.data(0).read_bytes())
    stored.chain(0).unlink()
    with pytest.raises(Corrupt, match="hash"):
        stored.new_view().plan(0, 3)


def test_a_read_only_place_says_what_to_do(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rebuild, "write_fully", refuse)
    stored.chain(0).unlink()
    with pytest.raises(Corrupt, match="doctor --repair orders"):
        stored.new_view().plan(0, 3)


def test_a_good_chain_file_is_told_from_a_bad_one(stored: Stored) -> None:
    mender = ChainMender(stored.files, stored.paths, stored.entries[0])
    assert mender.is_good()
    flip(stored.chain(0), 300)
    assert not mender.is_good()
    mender.mend()
    assert mender.is_good()
    stored.chain(0).unlink()
    assert not mender.is_good()
