"""The verbs underneath: blocks and tokens."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from virta.errors import HistoryChanged, NotFound, UsageError
from virta.requests import format_token, parse_token
from virta.testing.conformance.base import Conformance, up_to
from virta.types import Token


class PartitionConformance(Conformance):
    @pytest.fixture
    def blocks(self, log: Any) -> Any:
        """Twenty blocks of two rows, over several segments."""
        topic = log.create_topic("blocks", {"n": int, "filler": bytes}, segment_bytes="64KiB")
        for n in range(0, 40, 2):
            topic.append([{"n": n, "filler": bytes(10_000)}, {"n": n + 1, "filler": b""}])
        assert topic.stats().segments > 2
        return topic

    def test_where_it_stands(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        assert (partition.number, partition.topic) == (0, "blocks")
        assert (partition.start_offset, partition.next_offset) == (0, 40)
        assert partition.head == blocks.head
        assert partition.first_token == partition.token(0) == blocks.token(0)
        assert partition.last_token == partition.token(40)
        assert partition.last_token.hash.hex() == blocks.head
        assert partition.stats() == blocks.stats()
        assert blocks.next_offsets == {0: 40}
        assert blocks.heads == {0: blocks.head}
        assert [each.number for each in blocks.partitions] == [0]
        for number in (1, -1):
            with pytest.raises(NotFound):
                blocks.partition(number)

    def test_fetch(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        for offset in (0, 1, 6, 39):
            block = partition.fetch(partition.token(offset))
            assert block.base_offset == offset - offset % 2
            assert (block.rows, block.last_offset) == (2, block.base_offset + 1)
            assert [row["n"] for row in block.to_pylist()] == [block.base_offset, block.last_offset]
            assert block.to_arrow().column("_offset").to_pylist() == [block.base_offset, block.last_offset]
            block.verify()
        with pytest.raises(NotFound):
            partition.fetch(partition.last_token)

    def test_fetch_batch(self, blocks: Any) -> None:
        partition = blocks.partition(0)

        def bases(start: Any, end: Any) -> list[int]:
            return [block.base_offset for block in partition.fetch_batch(start, end)]

        assert bases(0, 40) == list(range(0, 40, 2))
        assert bases(5, 8) == [4, 6]
        assert bases(4, 4) == bases(9, 3) == bases(40, 100) == []
        assert bases(38, 1000) == [38]
        assert bases(partition.token(10), partition.token(14)) == [10, 12]
        assert partition.fetch_batch(from_=0, to=2)[0].base_offset == 0
        with pytest.raises(UsageError):
            partition.fetch_batch(-5, 10)

    def test_poll_walks_to_the_end(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        token, seen, previous = partition.first_token, [], None
        while True:
            found, following = partition.poll(token, max_bytes=1)
            if not found:
                break
            assert len(found) == 1
            assert following.offset == found[0].last_offset + 1
            assert following.hash.hex() == found[0].hash
            seen.append(found[0].base_offset)
            previous, token = token, following
        assert seen == list(range(0, 40, 2))
        assert (following, following) == (token, partition.last_token)
        again, _ = partition.poll(previous)
        assert [block.base_offset for block in again] == [38]

    def test_control_blocks_are_passed_over(self, log: Any, other: Any) -> None:
        """Changes and claimed names leave blocks without rows; a reader sees none of them."""
        topic, same = log.create_topic("numbers", {"n": int}), other.topic("numbers")
        before = same.token(0)
        for name in ("a", "b", "c"):
            topic.alter(schema={**{field.name: field.type for field in topic.schema}, name: str | None})
            with topic.writer(producer=name, linger=0) as writer:
                writer.send({"n": 1})
        for each in (topic, same):
            partition = each.partition(0)
            for token in (before, partition.first_token):
                assert partition.fetch(token).base_offset == 0
                found, following = partition.poll(token, max_bytes=1)
                assert [block.rows for block in found] == [1]
                assert partition.fetch(following).base_offset == 1
            assert [block.base_offset for block in itertools.islice(partition.stream(), 3)] == [0, 1, 2]

    def test_long_poll(self, numbers: Any) -> None:
        partition = numbers.partition(0)
        token = partition.first_token
        assert partition.long_poll(token, timeout=0.01) == ([], token)
        assert partition.long_poll(token, timeout=0) == ([], token)
        appended = threading.Thread(target=numbers.append, args=(up_to(3),))
        appended.start()
        found, following = partition.long_poll(token, timeout=30.0)
        appended.join()
        assert [block.rows for block in found] == [3]
        assert following.offset == 3

    def test_stream(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        for start, expected in ((None, 0), (7, 6), (partition.token(10), 10)):
            streamed = itertools.islice(partition.stream(start), 5)
            assert [block.base_offset for block in streamed] == list(range(expected, expected + 10, 2))
        stream = iter(partition.stream(partition.last_token))
        blocks.append({"n": 40, "filler": b""})
        assert next(stream).base_offset == 40

    def test_blocks_are_chained(self, blocks: Any) -> None:
        found = blocks.partition(0).fetch_batch(0, 40)
        assert found[-1].hash == blocks.head
        assert len({block.hash for block in found}) == 20
        for one, next_one in itertools.pairwise(found):
            assert next_one.previous_hash == one.hash or next_one.base_offset == one.last_offset + 1

    def test_find(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        for block in partition.fetch_batch(0, 40)[::6]:
            for digits in (64, 8, 9, 33):
                assert partition.find(block.hash[:digits]).base_offset == block.base_offset
            assert partition.find(block.hash.upper()).hash == block.hash
        with pytest.raises(NotFound):
            partition.find("00" * 32)
        for odd in ("short", "1234567", "zz" * 32):
            with pytest.raises(UsageError):
                partition.find(odd)

    # -- tokens -----------------------------------------------------------------------------------

    def test_tokens_as_text(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        token = partition.token(12)
        for text in (format_token(token), str(token)):
            assert parse_token(text) == token
            assert partition.fetch(text).base_offset == 12
            assert partition.poll(text, max_bytes=1)[0][0].base_offset == 12
            assert next(iter(partition.stream(text))).base_offset == 12
        for odd in ("", "12", "t1" + "A" * 64, format_token(token)[:-1]):
            with pytest.raises(UsageError):
                partition.poll(odd)

    def test_tokens_hold_over_rolls(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        token = partition.last_token
        for n in range(40, 60):
            blocks.append({"n": n, "filler": bytes(20_000)})
        assert partition.fetch(token).base_offset == 40
        assert partition.token(40).offset == 40
        assert partition.fetch(partition.token(59)).base_offset == 59

    def test_tokens_of_another_history(self, blocks: Any) -> None:
        partition = blocks.partition(0)
        strangers = [
            Token(partition=0, offset=10, hash=bytes(32)),
            Token(partition=0, offset=40, hash=bytes(32)),
            Token(partition=0, offset=10_000, hash=partition.last_token.hash),
            Token(partition=0, offset=12, hash=partition.token(10).hash),
        ]
        for token in strangers:
            with pytest.raises(HistoryChanged) as caught:
                partition.poll(token)
            assert caught.value.oldest.offset == 0
            assert caught.value.topic == "blocks"
            assert partition.poll(caught.value.oldest, max_bytes=1)[0][0].base_offset == 0
        with pytest.raises(UsageError):
            partition.poll(Token(partition=1, offset=0, hash=bytes(32)))
        for offset in (-1, 41):
            with pytest.raises(NotFound):
                partition.token(offset)

    def test_a_topic_made_again_has_another_history(self, log: Any, numbers: Any) -> None:
        numbers.append(up_to(5))
        tokens = [numbers.token(0), numbers.token(3), numbers.token(5)]
        log.drop_topic("numbers")
        again = log.create_topic("numbers", {"n": int})
        again.append(up_to(5))
        for token in tokens:
            with pytest.raises(HistoryChanged):
                again.partition(0).poll(token)

    def test_blocks_as_arrow_and_as_text(self, blocks: Any) -> None:
        block = blocks.partition(0).fetch(blocks.token(0))
        assert repr(block) == f"Block('blocks'/0, 2 rows from 0, {block.hash[:8]})"
        assert not block.is_control
        assert block.event is None
        assert len(block.bytes) == block.header.length
