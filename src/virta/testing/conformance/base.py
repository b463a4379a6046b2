"""What the parts of the suite share: an open log, a topic, and rows read back plainly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

OpenLog = Callable[[], Any]


class Conformance:
    """A suite; whoever inherits it brings the fixture `open_log`."""

    # Whether all handles see what is only in memory: those of one process do, or of one broker.
    # Rows at durability `memory` reach other processes once they are written.
    shares_memory = True

    def let_others_see(self, topic: Any, durability: str) -> None:
        """After this, rows just appended are there for every handle."""
        if durability == "memory" and not self.shares_memory:
            topic.sync()

    @pytest.fixture
    def open_log(self) -> OpenLog:
        raise NotImplementedError("a backend's own fixture opens its log")

    @pytest.fixture
    def log(self, open_log: OpenLog) -> Iterator[Any]:
        with open_log() as log:
            yield log

    @pytest.fixture
    def other(self, open_log: OpenLog, log: Any) -> Iterator[Any]:
        """A second handle on the same log."""
        with open_log() as other:
            assert other is not log
            yield other

    @pytest.fixture
    def numbers(self, log: Any) -> Any:
        """A topic of one column."""
        return log.create_topic("numbers", {"n": int})


def ns(rows: Any) -> list[int]:
    """The column `n` of rows."""
    return [row["n"] for row in rows]


def up_to(count: int, start: int = 0) -> list[dict[str, int]]:
    return [{"n": n} for n in range(start, count)]


@contextlib.contextmanager
def nothing_written(topic: Any) -> Iterator[None]:
    """What happens inside leaves the topic as it was."""
    before = topic.next_offset, topic.head
    yield
    assert (topic.next_offset, topic.head) == before
