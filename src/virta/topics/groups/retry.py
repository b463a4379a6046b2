"""Rows that fail: how often and when they are tried again, before they become dead letters. Pure."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from virta.errors import UsageError
from virta.requests import parse_duration
from virta.topics.groups.model import Failure

ATTEMPTS_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A row is tried `attempts` times, each wait twice as long as the one before.

    `hopeless`: errors that are not worth another try.
    """

    attempts: int = 5
    delay: Any = "1s"
    longest: Any = "5m"
    hopeless: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not 1 <= self.attempts <= ATTEMPTS_LIMIT:
            raise UsageError(f"a row is tried 1 to {ATTEMPTS_LIMIT} times, not {self.attempts!r}")
        if parse_duration(self.delay) < 0 or parse_duration(self.longest) < 0:
            raise UsageError("a delay is not negative")

    def is_over(self, attempts: int, error: BaseException) -> bool:
        """Whether a row that failed so often is given up."""
        return attempts >= self.attempts or isinstance(error, self.hopeless)

    def delay_seconds(self, attempts: int) -> float:
        """How long to wait after so many failures."""
        doubled = parse_duration(self.delay) * 2.0 ** min(attempts - 1, 60)
        return float(min(doubled, parse_duration(self.longest)))


def failure_of(error: BaseException, *, partition: int, epoch: int, offset: int, attempts: int) -> Failure:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return Failure(
        partition=partition,
        epoch=epoch,
        offset=offset,
        attempts=attempts,
        error_type=name,
        error=str(error),
        traceback="".join(traceback.format_exception(error)),
    )
