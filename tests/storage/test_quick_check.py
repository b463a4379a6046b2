"""The short check says yes only where the long one would: tried on every byte of a block."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.stored import Stored
from virta.storage.chain import Header
from virta.storage.quick_check import QuickCheck


@pytest.fixture
def blocks(tmp_path: Path) -> list[tuple[memoryview, Header]]:
    stored = Stored(tmp_path)
    return [
        (memoryview(bytes(one.data)), one.header) for one in (stored.append(), stored.append(5, width=12))
    ]


@pytest.fixture
def quick(blocks: list[tuple[memoryview, Header]]) -> QuickCheck:
    quick = QuickCheck()
    quick.learn(blocks[0][0])
    return quick


def test_blocks_of_one_shape_hold(quick: QuickCheck, blocks: list[tuple[memoryview, Header]]) -> None:
    assert all(quick.holds(data, header) for data, header in blocks)


def test_no_changed_byte_holds(quick: QuickCheck, blocks: list[tuple[memoryview, Header]]) -> None:
    data, header = blocks[1]
    for at in range(len(data)):
        for bit in (1, 32):
            bad = bytearray(data)
            bad[at] ^= bit
            assert not quick.holds(memoryview(bad), header), at


def test_no_cut_or_longer_block_holds(quick: QuickCheck, blocks: list[tuple[memoryview, Header]]) -> None:
    data, header = blocks[1]
    for length in range(0, len(data), 3):
        assert not quick.holds(data[:length], header)
        assert not quick.holds(data[:length], header._replace(length=length))
    assert not quick.holds(memoryview(bytes(data) + bytes(8)), header)


@pytest.mark.parametrize(
    "field", ["base_offset", "rows", "span", "epoch", "min_timestamp", "producer", "flags"]
)
def test_no_other_header_holds(
    quick: QuickCheck, blocks: list[tuple[memoryview, Header]], field: str
) -> None:
    data, header = blocks[1]
    other = header._replace(**{field: getattr(header, field) + 1})
    assert not quick.holds(data, other)


def test_nothing_holds_before_something_was_learned(blocks: list[tuple[memoryview, Header]]) -> None:
    assert not QuickCheck().holds(*blocks[0])
