"""Rewriting segments: what stays the same, what a receipt vouches for, what a crash leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.storage.stored import Stored, flip
from virta.errors import Corrupt
from virta.storage import chain, encode, manifest, trail
from virta.storage.chain import HEADER_SIZE
from virta.storage.commit import Append
from virta.storage.files import OperatingSystemFiles
from virta.storage.rebuild import ChainMender
from virta.storage.removal import clean, remove_oldest
from virta.storage.rewrite import Rewriter, SourcesChanged, Written, install, unlink_asides
from virta.storage.segment import StoredBlock
from virta.types import Compression, Token


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """Four sealed segments of four blocks of three rows, and an active one."""
    return Stored(tmp_path).fill(segments=5, blocks=4)


def keep_all(source: int, index: int, stored: StoredBlock) -> None:
    return None


def keep_where(test: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    def keep(source: int, index: int, stored: StoredBlock) -> Any:
        return test(stored.decode().column(0).to_numpy())

    return keep


def write(stored: Stored, first: int, count: int, keep: Any = keep_all, **options: Any) -> Written:
    stored.view.refresh()
    sources = [stored.view.segment(index) for index in range(first, first + count)]
    return Rewriter(stored.files, stored.paths, sources, keep, **options).write()


def rewrite(
    stored: Stored, first: int, count: int, keep: Any = keep_all, reason: str = "joined", **options: Any
) -> Written:
    written = write(stored, first, count, keep, **options)
    stored.locked(lambda committer: install(committer, written, reason))
    return written


def tokens(stored: Stored) -> list[Token]:
    """A token for every offset, as the blocks are now."""
    view = stored.new_view()
    found = [
        Token(partition=0, offset=offset, hash=view.hash_before(offset))
        for offset in range(view.start_offset, view.next_offset + 1)
    ]
    view.close()
    return found


def hashes(stored: Stored) -> list[str]:
    view = stored.new_view()
    found = []
    for index in range(len(view.manifest.segments)):
        data = view.segment(index).read_chain(0, view.blocks_in(index) * HEADER_SIZE)
        found += [header.hash.hex() for header in chain.unpack_headers(data)]
    view.close()
    return found


def check_tokens(stored: Stored, given: list[Token]) -> None:
    view = stored.new_view()
    for token in given:
        view.check_token(token)
    wrong = Token(partition=0, offset=given[5].offset, hash=b"x" * 32)
    with pytest.raises(Exception, match="another history"):
        view.check_token(wrong)
    view.close()


def notices(stored: Stored) -> list[str]:
    return [problem.message for problem in stored.verify().problems]


# -- what stays the same ---------------------------------------------------------------------------


def test_joining_keeps_rows_offsets_tokens_and_heads(stored: Stored) -> None:
    before, ids, all_hashes = tokens(stored), stored.ids(), hashes(stored)
    written = rewrite(stored, 0, 4)
    assert (written.before.segments, written.after.blocks) == (4, 2)  # the opening one, and all rows
    assert stored.ids() == ids
    check_tokens(stored, before)
    check_tokens(stored, tokens(stored))
    assert [token.hash for token in tokens(stored)[:-1]] == [token.hash for token in before[:-1]]
    report = stored.verify(heads=all_hashes)
    assert report.ok and report.problems == ()
    (receipt,) = report.receipts
    assert (receipt.reason, receipt.from_offset, receipt.to_offset, receipt.rows_removed) == (
        "joined",
        0,
        48,
        0,
    )
    assert len(list(stored.paths.root.glob("*.arrows"))) == 2


def test_rows_that_go_leave_gaps_and_the_others_their_offsets(stored: Stored) -> None:
    before = tokens(stored)
    rewrite(stored, 0, 4, keep_where(lambda offsets: offsets % 5 == 1), "compacted")
    expected = [offset for offset in range(48) if offset % 5 == 1] + list(range(48, 60))
    assert stored.ids() == expected
    check_tokens(stored, before)
    assert stored.verify().problems == ()
    assert stored.verify().receipts[0].rows_removed == 38
    stored.append()
    assert stored.ids() == [*expected, 60, 61, 62]


def test_a_block_without_rows_covers_its_offsets(stored: Stored) -> None:
    before = tokens(stored)
    rewrite(stored, 1, 2, keep_where(lambda offsets: offsets < 0), "erased")
    assert stored.ids() == [*range(12), *range(36, 60)]
    view = stored.new_view()
    (found,) = view.read(20, max_bytes=1)
    assert (found.header.base_offset, found.header.span, found.header.rows) == (12, 24, 0)
    found.check()
    view.close()
    check_tokens(stored, before)
    assert stored.verify().ok


def test_what_keeps_all_its_rows_is_copied_as_it_is(stored: Stored) -> None:
    view = stored.new_view()
    whole = [bytes(each.data) for each in view.segment(1).read_blocks(0, 5, max_bytes=1 << 20)]
    view.close()
    rewrite(stored, 1, 1, keep_where(lambda offsets: offsets != 16), "erased", join=False)
    view = stored.new_view()
    now = [bytes(each.data) for each in view.segment(1).read_blocks(0, 5, max_bytes=1 << 20)]
    view.close()
    assert [old == new for old, new in zip(whole, now, strict=True)] == [True, True, False, True, True]
    assert stored.verify().ok


def test_rewritten_segments_are_rewritten_again(stored: Stored) -> None:
    before, all_hashes = tokens(stored), hashes(stored)
    rewrite(stored, 0, 2)
    rewrite(stored, 1, 2, keep_where(lambda offsets: offsets % 2 == 0), "compacted")
    check_tokens(stored, tokens(stored))
    between = tokens(stored)
    rewrite(stored, 0, 2, keep_where(lambda offsets: offsets % 3 == 0), "erased")
    rewrite(stored, 0, 1, join=False)
    check_tokens(stored, before)
    check_tokens(stored, between)
    assert stored.ids() == [
        offset for offset in range(48) if offset % (6 if offset >= 24 else 3) == 0
    ] + list(range(48, 60))
    report = stored.verify(heads=all_hashes)
    assert report.problems == ()
    # an erasure is told for ever; what else was done before it is out of date
    assert [receipt.reason for receipt in report.receipts] == ["erased", "joined"]


@pytest.mark.parametrize("compression", Compression)
def test_columns_of_all_kinds_come_out_as_they_were(tmp_path: Path, compression: Compression) -> None:
    user = pa.schema(
        [
            pa.field("word", pa.dictionary(pa.int8(), pa.string())),
            pa.field("list", pa.list_(pa.int32())),
            pa.field("map", pa.map_(pa.string(), pa.binary())),
            pa.field("some", pa.float64()),
        ]
    )
    stored = Stored(tmp_path, user=user)
    rows = [
        {"word": f"word-of-{number % 7}", "list": [number] * (number % 3), "map": [("k", b"v")], "some": None}
        for number in range(40)
    ]
    for at in range(0, 40, 4):
        batch = pa.RecordBatch.from_pylist(rows[at : at + 4], schema=user)
        append = Append(encode.prepare(batch, compression), 1)
        stored.committer.commit([append])
        assert append.error is None
    stored.roll()
    rewrite(stored, 0, 1, keep_where(lambda offsets: offsets % 7 != 3), "erased", compression=compression)
    view = stored.new_view()
    blocks = view.read(0, max_bytes=1 << 20)
    found = [row for each in blocks for row in each.decode().to_pylist()]
    assert [{key: row[key] for key in rows[0]} for row in found] == [
        row for number, row in enumerate(rows) if number % 7 != 3
    ]
    assert b"word-of-3" not in bytes(b"".join(bytes(each.data) for each in blocks))
    view.close()
    assert stored.verify().ok


def test_the_chain_file_is_made_again_byte_for_byte(stored: Stored) -> None:
    rewrite(stored, 0, 2, keep_where(lambda offsets: offsets % 3 == 0), "compacted")
    path = stored.chain(0)
    whole = path.read_bytes()
    path.unlink()
    assert [row for row in stored.ids() if row < 24] == list(range(0, 24, 3))
    assert path.read_bytes() == whole
    flip(path, 130)
    ChainMender(stored.files, stored.paths, stored.entries[0]).mend()
    assert path.read_bytes() == whole
    assert stored.verify().ok


def test_arrow_reads_a_rewritten_file(stored: Stored) -> None:
    rewrite(stored, 0, 4, keep_where(lambda offsets: offsets % 2 == 0), "compacted")
    with pa.ipc.open_stream(stored.data(0)) as reader:
        table = reader.read_all()
    assert table.column("_offset").to_pylist() == list(range(0, 48, 2))


# -- readers meanwhile -----------------------------------------------------------------------------


def test_a_view_that_is_behind_finds_the_new_segments(stored: Stored) -> None:
    behind = stored.new_view()
    reading = behind.plan(14, 60)
    rewrite(stored, 0, 2)
    rewrite(stored, 1, 2, keep_where(lambda offsets: offsets % 2 == 0), "compacted")
    assert behind.plan(30, 40)[0].segment.entry.base == 24  # never opened before, and gone
    assert [each.header.base_offset for each in behind.read(0, max_bytes=1)] == [0]
    old = reading[0].segment.read_blocks(reading[0].start, reading[0].stop, max_bytes=1 << 20)
    assert [each.header.base_offset for each in old] == [12, 15, 18, 21]  # held until it is let go of
    assert behind.first_offset_at(0) == 0
    behind.close()


def test_a_view_of_the_active_segment_finds_it_sealed_and_rewritten(stored: Stored) -> None:
    behind = stored.new_view()
    stored.append()
    stored.roll()
    rewrite(stored, 3, 2)
    stored.append()
    assert behind.refresh()
    assert behind.next_offset == 66
    assert behind.rewrites > 0
    behind.close()


def test_sources_that_changed_are_not_replaced(stored: Stored) -> None:
    written = write(stored, 0, 2)
    rewrite(stored, 1, 1)
    with pytest.raises(SourcesChanged):
        stored.locked(lambda committer: install(committer, written, "joined"))
    assert not written.data.exists() and not written.chain.exists()
    assert stored.verify().problems == ()


def test_rewritten_blocks_are_not_believed_where_rows_are_appended(stored: Stored) -> None:
    """Nobody may slip a block with a hash of its choice behind the newest one."""
    view = stored.view
    written = write(stored, 3, 1, keep_where(lambda offsets: offsets % 2 == 0))
    record = bytearray(written.chain.read_bytes()[-HEADER_SIZE:])
    data = written.data.read_bytes()[-chain.unpack_header(bytes(record)).length :]
    fields = chain.with_place(bytes(record[:64]), view.data_end, len(data))
    fields = chain.FIELDS.pack(view.next_offset, *chain.FIELDS.unpack(fields)[1:])
    made = chain.with_check(view.head, fields, bytes(record[64:96]), bytes(record[96:]))
    with stored.data(4).open("r+b") as file:
        file.seek(view.data_end)
        file.write(data)
    with stored.chain(4).open("ab") as file:
        file.write(made + bytes(record[64:]))
    view.refresh()
    assert view.next_offset == 60
    with pytest.raises(Corrupt, match="does not follow"):
        stored.new_view()
    written.discard(stored.files)


# -- verifying -------------------------------------------------------------------------------------


def test_every_byte_of_a_rewritten_file_is_vouched_for(stored: Stored) -> None:
    rewrite(stored, 0, 2, keep_where(lambda offsets: offsets % 3 == 0), "compacted")
    for path in (stored.data(0), stored.chain(0)):
        size = path.stat().st_size
        for at in range(0, size, max(1, size // 41)):
            flip(path, at, 4)
            assert not stored.verify().ok, f"{path.name} at {at}"
            flip(path, at, 4)
    assert stored.verify().ok


def test_a_forged_segment_has_no_receipt(stored: Stored) -> None:
    """Other rows under the right hashes, in files that are sound in themselves."""
    rewrite(stored, 0, 2, keep_where(lambda offsets: offsets % 3 == 0), "compacted")
    honest = stored.data(0), stored.chain(0)
    stored.view.refresh()
    forged = Rewriter(
        stored.files,
        stored.paths,
        [stored.view.segment(0)],
        keep_where(lambda offsets: offsets != 9),
    ).write()
    entry = manifest.with_generation(forged.entry, stored.entries[0].generation)
    forged.data.replace(honest[0])
    forged.chain.replace(honest[1])
    loaded = manifest.load(stored.files, stored.paths.manifest)
    segments = (entry, *loaded.segments[1:])
    manifest.save(
        stored.files,
        stored.paths.manifest,
        manifest.Manifest(generation=loaded.generation, segments=segments),
    )
    report = stored.verify()
    assert not report.ok
    assert any("no receipt in the chain names them" in problem.message for problem in report.problems)


def test_a_receipt_that_says_nothing_went_is_held_to_it(stored: Stored) -> None:
    rewrite(stored, 0, 2, keep_where(lambda offsets: offsets % 3 == 0), "joined")
    assert any("counts fewer than before" in text for text in notices(stored))


def test_a_rewrite_that_was_not_finished_is_told(stored: Stored) -> None:
    written = write(stored, 0, 2)
    written.discard(stored.files)
    stored.locked(lambda committer: committer.write_control(written.receipt("erased", {})))
    report = stored.verify()
    assert report.ok
    assert any("was begun and not finished" in problem.message for problem in report.problems)


def test_removal_after_rewriting_and_receipts_in_rewritten_segments(stored: Stored) -> None:
    rewrite(stored, 0, 2, keep_where(lambda offsets: offsets % 3 == 0), "erased")
    stored.roll()
    stored.append()
    rewrite(stored, 2, 2)  # holds the erasure's receipt
    stored.locked(lambda committer: remove_oldest(committer, 1, "rows"))
    stored.roll()
    rewrite(stored, 0, 1, keep_where(lambda offsets: offsets > 30), "compacted")
    assert stored.verify().problems == ()
    assert [receipt.reason for receipt in stored.verify().receipts] == [
        "erased",
        "joined",
        "rows",
        "compacted",
    ]


# -- trails ----------------------------------------------------------------------------------------


def test_a_trail_comes_back_from_its_text(stored: Stored) -> None:
    view = stored.new_view()
    headers = chain.unpack_headers(view.segment(1).read_chain(0, 5 * HEADER_SIZE))
    view.close()
    old = trail.joined([trail.of_header(header) for header in headers])
    again = trail.decode(trail.encode(old), headers[0].base_offset)
    assert again.tobytes() == old.tobytes()
    assert trail.hashes(again, stored.entries[1].previous_hash) == [header.hash for header in headers]


@pytest.mark.parametrize(
    "text", [b"", b"####", b"AAAA", b"AAAAAAAAAAA=", trail.base64.b64encode(b"\xff" * 100)]
)
def test_a_text_that_is_no_trail_is_refused(text: bytes) -> None:
    with pytest.raises(Corrupt):
        trail.decode(text, 0)


def test_a_small_text_does_not_become_gigabytes() -> None:
    bomb = trail.zlib.compress(bytes(1 << 26))
    head = trail._HEAD.pack(1, len(bomb))
    with pytest.raises(Corrupt, match="not as long"):
        trail.decode(trail.base64.b64encode(head + bomb + bytes(32)), 0)


# -- crashes ---------------------------------------------------------------------------------------


class Crash(Exception):
    pass


class CrashingFiles(OperatingSystemFiles):
    """Ends with `Crash` at the n-th change; nothing after it is done, as if the process were gone."""

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

    def sync_directory(self, path: Path) -> None:
        self._step()

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._step()
        super().unlink(path)


def test_a_crash_at_every_change_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    done = False
    at = 0
    while not done:
        files = CrashingFiles()
        (tmp_path / str(at)).mkdir()
        stored = Stored(tmp_path / str(at), files=files).fill(segments=4, blocks=3)
        before, ids = tokens(stored), stored.ids()
        kept = [row for row in ids if row % 2 or row >= 27]
        files.left = at
        try:
            rewrite(stored, 0, 2, keep_where(lambda offsets: offsets % 2 == 1), "compacted")
            rewrite(stored, 1, 1, keep_where(lambda offsets: offsets % 2 == 1), "compacted")
            done = True
        except Crash:
            pass
        files.left = None
        stored.reopen()
        now = stored.ids()
        assert [row for row in now if row >= 27] == list(range(27, 36)), at
        assert set(kept) <= set(now) <= set(ids), at
        check_tokens(stored, before)
        report = stored.verify()
        assert report.ok, (at, report.problems)
        stored.append()
        stored.locked(lambda committer: clean(committer, now_us=1 << 60))
        unlink_asides(stored.files, stored.paths)
        assert all("nothing refers to it" not in text for text in notices(stored)), at
        assert stored.ids() == [*now, 36, 37, 38]
        stored.close()
        at += 1
    assert at > 20


def test_events_of_receipts_are_plain(stored: Stored) -> None:
    written = rewrite(stored, 0, 2)
    receipt = json.loads(json.dumps(written.receipt("joined", {"more": 1})))
    assert receipt["blocks_before"] == 10 and receipt["blocks"] == 2 and receipt["more"] == 1
