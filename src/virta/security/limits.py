"""What one client may take of a broker: numbers, token buckets and books of who holds what.

Nothing here waits or reads a clock: a bucket says how long to wait, and whoever asked waits.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on clients; None: no bound. Each number says what it protects."""

    # One frame: a block of 16 MiB decoded, or one oversize row, which the topic bounds.
    frame_bytes: int = 64 * MIB
    # Of somebody who has not logged in: a hello, a proof, or a few rows for a publicly writable topic.
    stranger_frame_bytes: int = MIB
    # A hello comes at once; who takes longer only holds a place.
    hello_seconds: float = 10.0
    # A frame that was begun goes on.
    frame_seconds: float = 60.0
    # Requests of one connection that wait for something; beyond it nothing more is read from it.
    requests_in_flight: int = 4096
    # Bytes of its appends that are not committed yet: what a commit can take in one go, some times over.
    append_bytes_in_flight: int = 32 * MIB
    # Answers it has not taken: two large ones. A stuck reader costs no more than this.
    answer_bytes: int = 16 * MIB
    # Descriptors and memory: about 100 KiB each when idle.
    connections: int = 10_000
    connections_per_address: int | None = None
    connections_per_user: int | None = 2_000
    # Strangers may not take the places of those who can log in.
    connections_before_login: int = 1_000
    bytes_per_second_per_connection: int | None = None
    bytes_per_second_per_user: int | None = None
    # Silence after which a connection is closed. Clients come back by themselves; dead ones are
    # found by TCP keepalive anyhow, so this is for who has few places.
    idle_seconds: float | None = None
    # Failed logins of one address in a minute; then each waits for its turn.
    failed_logins_per_minute: int = 30

    def changed(self, **changes: object) -> Limits:
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


class TokenBucket:
    """A rate, with a burst of one second's worth unless said otherwise.

    `take` always takes: a frame that is here already cannot be unread. It says how long to wait
    before reading the next, so debts are paid by waiting and the mean rate holds exactly.
    """

    __slots__ = ("_burst", "_level", "_rate", "_stamp")

    def __init__(self, rate: float, *, burst: float | None = None) -> None:
        if rate <= 0:
            raise ValueError("a rate is more than nothing")
        self._rate = rate
        self._burst = rate if burst is None else burst
        self._level = self._burst
        self._stamp: float | None = None

    def take(self, amount: float, now: float) -> float:
        """Take, and say for how many seconds nothing more should be taken."""
        self._fill(now)
        self._level -= amount
        return max(0.0, -self._level / self._rate)

    def try_take(self, amount: float, now: float) -> bool:
        """Take only what is there."""
        self._fill(now)
        if self._level < amount:
            return False
        self._level -= amount
        return True

    def wait(self, amount: float, now: float) -> float:
        """Seconds until this much is there."""
        self._fill(now)
        return max(0.0, (min(amount, self._burst) - self._level) / self._rate)

    @property
    def is_full(self) -> bool:
        return self._level >= self._burst

    def _fill(self, now: float) -> None:
        if self._stamp is not None and now > self._stamp:
            self._level = min(self._burst, self._level + (now - self._stamp) * self._rate)
        if self._stamp is None or now > self._stamp:
            self._stamp = now


class Rates:
    """Bytes per second of one connection and of its user, together."""

    __slots__ = ("_buckets",)

    def __init__(self, *buckets: TokenBucket | None) -> None:
        self._buckets = tuple(bucket for bucket in buckets if bucket is not None)

    @property
    def is_bounded(self) -> bool:
        return bool(self._buckets)

    def take(self, amount: int, now: float) -> float:
        """Seconds for which the connection should not be read from."""
        return max((bucket.take(amount, now) for bucket in self._buckets), default=0.0)


class Failures:
    """Failed logins per address: who fails often has to wait.

    Bounded: addresses beyond MOST push out the one that failed longest ago; an attacker with
    that many addresses is stopped by the price of a guess, not here.
    """

    MOST = 10_000

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Seconds until this address may try again; 0: now."""
        bucket = self._buckets.get(address)
        return 0.0 if bucket is None else bucket.wait(1, now)

    def note(self, address: str, now: float) -> None:
        """One more failed login."""
        bucket = self._buckets.pop(address, None) or TokenBucket(
            self._per_minute / 60, burst=self._per_minute
        )
        bucket.take(1, now)
        self._buckets[address] = bucket
        if len(self._buckets) > self.MOST:
            self._buckets.popitem(last=False)


class Places:
    """How many connections each name holds; a name with none takes no memory."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def held(self, name: str) -> int:
        return self._held.get(name, 0)

    def take(self, name: str, most: int | None) -> bool:
        held = self._held.get(name, 0)
        if most is not None and held >= most:
            return False
        self._held[name] = held + 1
        return True

    def give_back(self, name: str) -> None:
        held = self._held[name] - 1
        if held:
            self._held[name] = held
        else:
            del self._held[name]
