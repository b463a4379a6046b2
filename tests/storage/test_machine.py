"""A partition beside a list: three processes' worth of handles, crashes between any two operations.

The list knows each row and how many of them were promised to outlast a power loss. A
crash of one process happens at any of its next file operations, a power loss to all of
them at once, with unsynced writes kept, lost or torn as `virta.testing.power` has it.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from virta.errors import HistoryChanged
from virta.testing import power
from virta.testing.files import Killed, RecordingFiles
from virta.testing.rig import Rig, check_chain
from virta.types import Durability, Token

SEGMENT_BYTES = 3000
WHO = st.sampled_from(["first", "second"])
MEMORY = Path("/dev/shm")


class PartitionMachine(RuleBasedStateMachine):
    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(
            prefix="virta-machine-", dir=MEMORY if MEMORY.is_dir() else None
        )
        self.lives = 0
        self.rows: list[int] = []
        self.promised = 0
        self.following = 0
        self.handles: dict[str, Rig] = {}

    @initialize()
    def make(self) -> None:
        self.root = Path(self.directory.name) / "0"
        self.root.mkdir()
        self.files = RecordingFiles(self.root, boot_id=b"\x01" * 16)
        Rig(self.root / "p", self.files).create()
        self.files.sync_directory(self.root)

    def teardown(self) -> None:
        for handle in self.handles.values():
            handle.abandon()
        self.directory.cleanup()

    def handle(self, who: str) -> Rig:
        if who not in self.handles:
            self.handles[who] = Rig(self.root / "p", self.files, segment_bytes=SEGMENT_BYTES)
        return self.handles[who]

    def numbers(self, count: int) -> list[int]:
        first = self.following
        self.following += count
        return list(range(first, first + count))

    # -- what processes do ------------------------------------------------------------------

    @rule(who=WHO, count=st.integers(1, 5), durability=st.sampled_from([Durability.OS, Durability.DISK]))
    def append(self, who: str, count: int, durability: Durability) -> None:
        numbers = self.numbers(count)
        append = self.handle(who).append(numbers, durability, expected_offset=len(self.rows))
        assert append.block is not None and append.block.header.base_offset == len(self.rows)
        self.rows += numbers
        if durability is Durability.DISK:
            self.promised = len(self.rows)

    @rule(who=WHO)
    def sync(self, who: str) -> None:
        self.handle(who).partition.sync()
        self.promised = len(self.rows)

    @rule(who=WHO)
    def roll(self, who: str) -> None:
        with self.handle(who).partition.writing() as committer:
            committer.roll()
        self.promised = len(self.rows)

    @rule(who=WHO, name=st.sampled_from(["one", "two"]), count=st.integers(1, 4), again=st.integers(0, 3))
    def send_as_a_producer(self, who: str, name: str, count: int, again: int) -> None:
        """Claims the name and sends, some rows perhaps twice."""
        handle = self.handle(who)
        number, epoch, sent = handle.claim(name)
        numbers = self.numbers(count)
        handle.append(numbers, producer=(number, epoch, sent))
        self.rows += numbers
        for _ in range(again):
            assert handle.append(numbers, producer=(number, epoch, sent)).duplicate

    @rule(who=WHO)
    def reopen(self, who: str) -> None:
        self.handle(who).close()
        del self.handles[who]

    @rule(who=WHO, at=st.integers(0, 12), count=st.integers(1, 3), roll=st.booleans())
    def crash(self, who: str, at: int, count: int, roll: bool) -> None:
        """The process dies at its n-th change from now, in the middle of an append or a roll."""
        handle = self.handle(who)
        numbers = self.numbers(count)
        self.files.kill_in = at
        try:
            if roll:
                with handle.partition.writing() as committer:
                    committer.roll()
            handle.append(numbers, Durability.DISK)
            self.rows += numbers
            self.promised = len(self.rows)
            self.files.revive()
        except Killed:
            handle.abandon()
            del self.handles[who]
            self.files.revive()
            self._settle(numbers)

    def _settle(self, numbers: list[int]) -> None:
        """Rows of an append that was cut short are there, all of them, or none."""
        with self.handle("first").partition.writing():
            pass
        there = list(self.handle("first").read_out().numbers)
        assert there in (self.rows, self.rows + numbers)
        self.rows = there

    @rule(seed=st.integers(0, 2**32 - 1))
    def lose_power(self, seed: int) -> None:
        for handle in self.handles.values():
            handle.abandon()
        self.handles.clear()
        rng = random.Random(seed)
        state = power.after_all(self.files.record, rng)
        self.lives += 1
        self.root = Path(self.directory.name) / str(self.lives)
        state.materialise(self.root)
        self.files = RecordingFiles(self.root, boot_id=bytes([self.lives % 250 + 2]) * 16)
        there = list(self.handle("second").read_out().numbers)
        assert self.promised <= len(there) and there == self.rows[: len(there)]
        # what a recovery kept is not promised for the next loss, but nothing below was taken back
        self.rows = there

    # -- what readers see --------------------------------------------------------------------------

    @rule(target=tokens, who=WHO, offset=st.integers(0, 100))
    def take_a_token(self, who: str, offset: int) -> Token:
        return self.handle(who).partition.token_at(min(offset, len(self.rows)))

    @rule(who=WHO, token=tokens)
    def use_a_token(self, who: str, token: Token) -> None:
        """It still holds, unless its history was lost with the power; then that is said."""
        partition = self.handle(who).partition
        try:
            partition.check_token(token)
        except HistoryChanged:
            assert self.lives
            return
        found = self._from(partition, token.offset)
        assert found == self.rows[token.offset :]

    def _from(self, partition: Any, offset: int) -> list[int]:
        found: list[int] = []
        while blocks := partition.read(offset, max_bytes=1000):
            for block in blocks:
                if block.header.span:
                    numbers = block.decode()["n"].to_pylist()
                    found += numbers[max(0, offset - block.header.base_offset) :]
            offset = blocks[-1].header.end_offset
        return found

    @rule(who=WHO, offset=st.integers(0, 200))
    def read_from_anywhere(self, who: str, offset: int) -> None:
        assert self._from(self.handle(who).partition, offset) == self.rows[offset:]

    @invariant()
    def everyone_sees_the_same(self) -> None:
        for handle in self.handles.values():
            assert list(handle.read_out().numbers) == self.rows
            assert handle.partition.next_offset == len(self.rows)
            check_chain(handle.partition)


TestPartitionMachine = PartitionMachine.TestCase
TestPartitionMachine.settings = settings(stateful_step_count=25, deadline=None)
