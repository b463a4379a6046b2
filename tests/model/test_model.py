"""A log beside a plain list: whatever is done to both, both tell the same.

Segments and memory are made tiny, so that a few rows roll files and leave the buffer.
The list knows every row in order, the tokens and heads that were handed out, and how
far each named producer got.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

import virta
from virta.settings import Settings
from virta.types import Token

TINY = Settings(tail_bytes_per_partition=20_000, tail_bytes_per_log=20_000, dump_bytes=8_000)
SEGMENT_BYTES = 64 * 1024

offsets = st.integers(-30, 60) | st.none()
texts = st.sampled_from(["", "a", "β", "x" * 300])
counts = st.integers(1, 12)


class LogModel(RuleBasedStateMachine):
    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="virta-model-"))
        self.rows: list[dict[str, Any]] = []
        self.columns: dict[str, Any] = {"n": int, "text": str, "filler": bytes}
        self.heads: list[tuple[int, str]] = []  # after so many rows, this head
        self.sent: dict[str, int] = {}  # rows that each producer got through
        self.next_number = 0
        self.log: Any = None
        self.other: Any = None

    def teardown(self) -> None:
        for log in (self.log, self.other):
            if log is not None:
                log.close()
        shutil.rmtree(self.path)

    @initialize(
        durability=st.sampled_from(["memory", "os", "disk"]), compression=st.sampled_from(["none", "lz4"])
    )
    def begin(self, durability: str, compression: str) -> None:
        self.log = virta.open(self.path, settings=TINY)
        self.topic = self.log.create_topic(
            "model", self.columns, durability=durability, compression=compression, segment_bytes=SEGMENT_BYTES
        )
        self.other = virta.open(self.path, settings=TINY)

    # -- writing ------------------------------------------------------------------------------

    def make(self, count: int, text: str, size: int) -> list[dict[str, Any]]:
        """Rows in every column there is now."""
        made = []
        for _ in range(count):
            row = dict.fromkeys(self.columns)
            row |= {"n": self.next_number, "text": text, "filler": bytes(size)}
            if "even" in row:
                row["even"] = self.next_number % 2 == 0
            made.append(row)
            self.next_number += 1
        return made

    def appended(self, ack: Any, rows: list[dict[str, Any]]) -> None:
        assert (ack.first_offset, ack.rows) == (len(self.rows), len(rows))
        self.rows += rows
        self.heads.append((len(self.rows), ack.head))

    @rule(text=texts, size=st.sampled_from([0, 10, 5000]))
    def append_one(self, text: str, size: int) -> None:
        rows = self.make(1, text, size)
        self.appended(self.topic.append(rows[0]), rows)

    @rule(count=counts, text=texts, size=st.sampled_from([0, 5000]))
    def append_list(self, count: int, text: str, size: int) -> None:
        rows = self.make(count, text, size)
        self.appended(self.topic.append(rows, if_next_offset=len(self.rows)), rows)

    @rule(count=counts, text=texts)
    def append_arrow(self, count: int, text: str) -> None:
        rows = self.make(count, text, 100)
        self.appended(self.topic.append(pa.Table.from_pylist(rows, schema=self.topic.schema)), rows)

    @rule()
    def append_nothing(self) -> None:
        assert self.topic.append([]).rows == 0

    @rule(off=st.integers(1, 5))
    def append_with_a_wrong_expectation(self, off: int) -> None:
        with pytest.raises(virta.Conflict):
            self.topic.append(self.make(1, "never", 0), if_next_offset=len(self.rows) + off)

    @rule(count=counts)
    def append_what_does_not_fit(self, count: int) -> None:
        rows = self.make(count, "never", 0)
        rows[-1]["n"] = "text"
        with pytest.raises(virta.SchemaMismatch):
            self.topic.append(rows)

    @rule(
        producer=st.sampled_from([None, "one", "two"]),
        counts=st.lists(counts, max_size=4),
        size=st.sampled_from([0, 3000]),
    )
    def write(self, producer: str | None, counts: list[int], size: int) -> None:
        with self.topic.writer(producer=producer, max_rows=7, linger=0) as writer:
            assert writer.last_sequence == self.sent.get(producer or "", -1)
            for count in counts:
                rows = self.make(count, "written", size)
                for row in rows:
                    writer.send(row)
                self.rows += rows
        if producer is not None:
            self.sent[producer] = writer.last_sequence

    # -- changing -------------------------------------------------------------------------------

    @precondition(lambda self: "even" not in self.columns)
    @rule()
    def add_a_column(self) -> None:
        self.columns["even"] = bool | None
        self.topic.alter(schema=self.columns)
        for row in self.rows:
            row["even"] = None

    @precondition(lambda self: self.columns["text"] is str)
    @rule()
    def widen_a_column(self) -> None:
        self.columns["text"] = pa.large_string()
        self.topic.alter(schema=self.columns)

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = virta.open(self.path, settings=TINY)
        self.topic = self.log.topic("model")

    @rule()
    def reopen_everything(self) -> None:
        self.other.close()
        self.reopen()
        self.other = virta.open(self.path, settings=TINY)

    @rule()
    def sync(self) -> None:
        self.topic.sync()
        assert self.topic.durable_offset == len(self.rows)

    @rule()
    def lose_the_chain_file(self) -> None:
        """What is derived can be deleted: the newest chain file comes back the same."""
        head = self.topic.head
        self.log.close()
        self.other.close()
        newest = max((self.path / "topics" / "model" / "p0000").glob("*.chain"))
        kept = newest.read_bytes()
        newest.write_bytes(kept[: len(kept) // 2])
        self.log = virta.open(self.path, settings=TINY)
        self.topic = self.log.topic("model")
        self.appended(self.topic.append(rows := self.make(1, "after", 0)), rows)
        assert newest.read_bytes()[: len(kept)] == kept
        assert self.topic.partition(0).find(head).hash == head
        self.other = virta.open(self.path, settings=TINY)

    # -- reading ----------------------------------------------------------------------------------

    @rule(start=offsets, end=offsets, elsewhere=st.booleans())
    def read_a_slice(self, start: int | None, end: int | None, elsewhere: bool) -> None:
        topic = self.other.topic("model") if elsewhere else self.topic
        expected = self.rows[start:end]
        selection = topic[start:end]
        assert [row.to_dict() for row in selection] == expected
        assert selection.count() == len(expected)
        assert selection.to_arrow().column("n").to_pylist() == [row["n"] for row in expected]
        assert [row["n"] for row in selection.limit(3).columns("n")] == [row["n"] for row in expected[:3]]

    @rule(least=st.integers(0, 80), start=offsets)
    def read_filtered(self, least: int, start: int | None) -> None:
        found = self.topic[start:].where(f"n >= {least} and text <> 'a'")
        expected = [row["n"] for row in self.rows[start:] if row["n"] >= least and row["text"] != "a"]
        assert [row["n"] for row in found] == expected
        assert found.count() == len(expected)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def read_by_time(self, data: st.DataObject) -> None:
        stamps = [row.timestamp for row in self.topic[:].columns("n")]
        one, two = (data.draw(st.sampled_from(stamps)) for _ in range(2))
        expected = [row["n"] for row, at in zip(self.rows, stamps, strict=True) if one <= at < two]
        assert [row["n"] for row in self.topic.since(one).until(two)] == expected
        assert [row["n"] for row in self.topic[one:two]] == expected

    @rule(start=offsets)
    def tail(self, start: int | None) -> None:
        tail = self.topic[start:].limit(len(self.rows[start:])).tail(stop_when_idle=0)
        assert [row["n"] for row in tail] == [row["n"] for row in self.rows[start:]]

    @rule(max_bytes=st.sampled_from([1, 10_000, 1 << 22]))
    def walk_the_blocks(self, max_bytes: int) -> None:
        partition = self.other.topic("model").partition(0)
        token, numbers = partition.first_token, []
        while True:
            blocks, token = partition.poll(token, max_bytes=max_bytes)
            if not blocks:
                break
            for block in blocks:
                assert block.base_offset == len(numbers)
                block.verify()
                numbers += block.to_arrow().column("n").to_pylist()
        assert numbers == [row["n"] for row in self.rows]
        assert token.offset == len(self.rows)

    @rule(target=tokens, data=st.data())
    def take_a_token(self, data: st.DataObject) -> Token:
        return self.topic.token(data.draw(st.integers(0, len(self.rows))))

    @rule(token=consumes(tokens))
    def use_a_token(self, token: Token) -> None:
        numbers = [row["n"] for row in self.topic[token:]]
        assert numbers == [row["n"] for row in self.rows[token.offset :]]
        blocks, _ = self.topic.partition(0).poll(str(token), max_bytes=1)
        assert [block.base_offset <= token.offset <= block.last_offset for block in blocks] == [True] * len(
            blocks
        )

    @precondition(lambda self: self.heads)
    @rule(data=st.data())
    def a_head_names_its_history(self, data: st.DataObject) -> None:
        rows, head = data.draw(st.sampled_from(self.heads))
        assert self.topic.partition(0).find(head).last_offset == rows - 1
        assert self.topic.verify(against=head).ok

    @rule()
    def plain_arrow_reads_the_files(self) -> None:
        """Data files are Arrow streams, with no help from here."""
        self.topic.sync()
        numbers: list[int] = []
        for path in sorted((self.path / "topics" / "model" / "p0000").glob("*.arrows")):
            with path.open("rb") as file, pa.ipc.open_stream(file) as stream:
                for batch in itertools.takewhile(lambda batch: batch is not None, stream):
                    numbers += batch.column("n").to_pylist()
        assert numbers == [row["n"] for row in self.rows]

    # -- always ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.other is not None)
    @invariant()
    def positions_agree(self) -> None:
        count = len(self.rows)
        for topic in (self.topic, self.other.topic("model")):
            assert (topic.start_offset, topic.next_offset, topic.count()) == (0, count, count)
            assert topic.durable_offset <= count
            stats = topic.stats()
            assert (stats.rows, stats.next_offset) == (count, count)

    @rule()
    def verify(self) -> None:
        report = self.topic.verify()
        assert report.ok, report.problems
        assert report.rows == len(self.rows)


LogModel.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=25, deadline=None
)
TestLogModel = LogModel.TestCase
