"""Statistics: bounds never too narrow, stale files never believed, only what cannot match skipped."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.stored import Stored
from virta.errors import Corrupt
from virta.storage import encode, statistics
from virta.storage.commit import Append
from virta.storage.segment import Segment
from virta.storage.statistics import SegmentStatistics, compute, load, make, narrow, parse, round_up, to_bytes
from virta.storage.view import Stretch


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path).fill(segments=2, blocks=4)


def sealed(stored: Stored) -> Segment:
    return stored.view.segment(0)


def whole(segment: Segment) -> Stretch:
    return Stretch(segment=segment, start=0, stop=segment.entry.blocks)


def of_block(stored: Stored, known: SegmentStatistics, index: int, *columns: str) -> dict[str, Any]:
    segment = sealed(stored)
    return known.of(index, segment.headers(segment.entry.blocks).header(index), columns)


def test_bounds_of_each_block_and_column_are_known(stored: Stored) -> None:
    known = make(stored.files, stored.paths, sealed(stored))
    assert known.blocks == 5  # the first is the control block
    assert of_block(stored, known, 2, "id", "user", "_offset", "nothing") == {
        "id": (3, 5, 0, 3),
        "user": ("user 00000000", "user 00000002", 0, 3),
        "_offset": (3, 5, 0, 3),
    }
    times = of_block(stored, known, 2, "_timestamp")["_timestamp"]
    assert times[0] == times[1] and times[0].tzinfo is not None


def test_a_file_is_written_once_and_read_again(stored: Stored) -> None:
    path = stored.paths.stats(0)
    assert load(stored.files, stored.paths, sealed(stored).entry) is None
    make(stored.files, stored.paths, sealed(stored))
    known = load(stored.files, stored.paths, sealed(stored).entry)
    assert known is not None and of_block(stored, known, 1, "id")["id"] == (0, 2, 0, 3)
    first = path.read_bytes()
    path.unlink()
    make(stored.files, stored.paths, sealed(stored))
    assert path.read_bytes() == first
    assert not list(stored.paths.root.glob(".*"))
    assert not stored.verify().problems


def test_a_damaged_or_foreign_file_is_never_believed(stored: Stored) -> None:
    entry = sealed(stored).entry
    _, batch = compute(sealed(stored))
    data = to_bytes(entry, batch)
    parse(data, entry)
    for at in range(0, len(data), 7):
        bad = bytearray(data)
        bad[at] ^= 16
        with pytest.raises(Corrupt):
            parse(bytes(bad), entry)
        with pytest.raises(Corrupt):
            parse(data[:at], entry)
    with pytest.raises(Corrupt, match="history"):
        parse(data, entry._replace(last_hash=bytes(32)))
    with pytest.raises(Corrupt, match="number"):
        parse(data, entry._replace(blocks=4))


def test_blocks_that_cannot_match_are_left_out(stored: Stored) -> None:
    segment = sealed(stored)

    def may_match(stats: Any) -> bool:
        least, greatest, _, _ = stats["id"]
        return bool(least <= 4 <= greatest or greatest >= 9)

    runs = narrow(stored.files, stored.paths, whole(segment), ["id"], may_match)
    assert [(run.start, run.stop) for run in runs] == [(2, 3), (4, 5)]
    assert stored.paths.stats(0).exists()
    part = Stretch(segment=segment, start=3, stop=5)
    runs = narrow(stored.files, stored.paths, part, ["id"], may_match)
    assert [(run.start, run.stop) for run in runs] == [(4, 5)]


def test_a_part_of_a_segment_does_not_pay_for_all_of_it(stored: Stored) -> None:
    part = Stretch(segment=sealed(stored), start=1, stop=3)
    assert narrow(stored.files, stored.paths, part, ["id"], lambda stats: False) == [part]
    assert not stored.paths.stats(0).exists()


def test_the_active_segment_is_read_as_it_is(stored: Stored) -> None:
    active = Stretch(segment=stored.view.active, start=0, stop=stored.view.blocks)
    assert narrow(stored.files, stored.paths, active, ["id"], lambda stats: False) == [active]


def test_where_nothing_can_be_written_the_read_goes_on(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(statistics, "_write_aside", refuse)
    assert narrow(stored.files, stored.paths, whole(sealed(stored)), ["id"], lambda stats: False) == []


# -- all types ---------------------------------------------------------------------------------


def bounds_of(tmp_path: Path, array: pa.Array) -> Any:
    user = pa.schema([pa.field("x", array.type)])
    stored = Stored(tmp_path, user=user)
    append = Append(encode.prepare(pa.record_batch([array], schema=user)), 1)
    stored.committer.commit([append])
    assert append.error is None
    stored.roll()
    return of_block(stored, make(stored.files, stored.paths, sealed(stored)), 1, "x")["x"]


UTC = datetime.UTC
AMOUNT = decimal.Decimal("3.25")


@pytest.mark.parametrize(
    ("array", "least", "greatest", "nulls"),
    [
        (pa.array([3, None, 1], pa.int64()), 1, 3, 1),
        (pa.array([2**64 - 1, 0], pa.uint64()), 0, 2**64 - 1, 0),
        (pa.array([1.5, float("nan"), -2.0]), -2.0, 1.5, 0),
        (pa.array([float("nan")]), None, None, 0),
        (pa.array([None, None], pa.string()), None, None, 2),
        (pa.array([True, False]), False, True, 0),
        (pa.array([AMOUNT, -AMOUNT]), -AMOUNT, AMOUNT, 0),
        (pa.array(["b" * 40, "a" * 40]), "a" * 32, "b" * 31 + "c", 0),
        (pa.array([b"\xff" * 40, b"a"]), None, None, 0),
        (pa.array(["x", "y", "x"]).dictionary_encode(), "x", "y", 0),
        (pa.array([[1], None], pa.list_(pa.int64())), None, None, 1),
        (pa.array([datetime.date(2026, 1, 2)]), datetime.date(2026, 1, 2), datetime.date(2026, 1, 2), 0),
        (
            pa.array([datetime.datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
            datetime.datetime(2026, 1, 2, tzinfo=UTC),
            datetime.datetime(2026, 1, 2, tzinfo=UTC),
            0,
        ),
        (pa.array([1], pa.timestamp("ns")), None, None, 0),
        (pa.array([2**62], pa.timestamp("s")), None, None, 0),
    ],
)
def test_every_type_has_safe_bounds_or_none(
    tmp_path: Path, array: pa.Array, least: Any, greatest: Any, nulls: int
) -> None:
    assert bounds_of(tmp_path, array) == (least, greatest, nulls, len(array))


@given(st.text(max_size=80))
def test_text_is_rounded_up(text: str) -> None:
    above = round_up(text)
    assert above is None or (above >= text and len(above) <= 32)
    if above is not None:
        above.encode()


@given(st.binary(max_size=80))
def test_bytes_are_rounded_up(data: bytes) -> None:
    above = round_up(data)
    assert above is None or (above >= data and len(above) <= 32)


def test_what_cannot_be_rounded_up_has_no_bound() -> None:
    assert round_up("\U0010ffff" * 33) is None
    assert round_up("a\ud7ff" * 17) == ("a\ud7ff" * 15) + "a\ue000"
    assert round_up(b"\xff" * 33) is None
    assert round_up("a" + "\U0010ffff" * 32) == "b"
