"""A buffered writer: rows are gathered by number, bytes and time, and appended as blocks.

With a producer name it is exactly once over crashes: each row has a sequence, kept in
the headers; opening the name again tells `last_sequence`, fences an older holder, and
rows sent twice are left out. Leaving the `with` block flushes or raises; what failed
stays failed, and nothing after it is written.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from virta.errors import Closed, UsageError, VirtaError
from virta.storage.layout import NAME_LIMIT_BYTES
from virta.topics.append import Appender
from virta.topics.spread import Spread
from virta.types import Ack

DEFAULT_ROWS = 8192
DEFAULT_BYTES = 4 * 1024 * 1024
DEFAULT_LINGER_SECONDS = 0.05
# Row sizes are looked at once for so many rows, on a few of them: a bound on memory, not an account of it.
_LOOK_EVERY = 256
_LOOK_AT = 4


class Writer:
    def __init__(
        self,
        appender: Appender | Spread,
        *,
        producer: str | None = None,
        max_rows: int = DEFAULT_ROWS,
        max_bytes: int = DEFAULT_BYTES,
        linger: float = DEFAULT_LINGER_SECONDS,
    ) -> None:
        if max_rows < 1 or max_bytes < 1 or linger < 0:
            raise UsageError("a writer's bounds are positive")
        self._appender = appender
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0
        self._looked = 0
        self._look_at = min(_LOOK_EVERY, max_rows)
        self._flushing = threading.RLock()
        self._failure: BaseException | None = None
        self._closed = False
        self.producer = producer
        self._producer = self._epoch = 0
        self._sequence = 0  # of the next row to be appended
        if producer is not None:
            self._claim(producer)
        self.last_ack: Ack | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._linger = linger
        if linger:
            self._thread = threading.Thread(target=self._run, name="virta-writer", daemon=True)
            self._thread.start()

    def _claim(self, producer: str) -> None:
        if not producer or len(producer.encode("utf-8", "surrogatepass")) > NAME_LIMIT_BYTES:
            raise UsageError(f"a producer name has 1 to {NAME_LIMIT_BYTES} bytes")
        if isinstance(self._appender, Spread):
            raise UsageError(
                "a producer's rows are counted in one partition",
                hint="name it: writer(producer=…, partition=n)",
            )
        with self._appender.stored.writing() as committer:
            self._producer, self._epoch, self._sequence = committer.claim_producer(producer)

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest row that is appended; -1 before the first."""
        return self._sequence - 1

    # -- sending ------------------------------------------------------------------------------

    def send(self, row: Mapping[str, Any]) -> None:
        """Take one row; it is appended with others, at the latest when the writer is left."""
        rows = self._rows
        rows.append(row)
        if len(rows) >= self._look_at:
            self.look()

    def put(self, row: Mapping[str, Any]) -> bool:
        """As `send`, but it never blocks; whether it is time to `look`."""
        self._rows.append(row)
        return len(self._rows) >= self._look_at

    def look(self) -> None:
        """Flush when enough has gathered."""
        if self._failure is not None or self._closed:
            self._rows.clear()
            self._raise()
        count = len(self._rows)
        fresh = self._rows[self._looked : count]
        if fresh:
            sample = fresh[:: max(1, len(fresh) // _LOOK_AT)]
            self._bytes += sum(map(_rough_size, sample)) * len(fresh) // len(sample)
        self._looked = count
        if count >= self._max_rows or self._bytes >= self._max_bytes:
            self.flush()
        else:
            self._look_at = min(count + _LOOK_EVERY, self._max_rows)

    def send_batch(self, rows: Any) -> None:
        """Take rows as Arrow, or a list of dicts; larger batches make larger blocks."""
        with self._flushing:
            self.flush()
            self._guard(self._append_all, rows)

    def flush(self) -> None:
        """Append what has gathered; durable to the topic's level when it returns."""
        with self._flushing:
            if self._failure is not None or self._closed:
                self._raise()
            count = len(self._rows)
            if count:
                self._guard(self._append_all, self._rows[:count])
                # rows sent meanwhile by another thread stay
                del self._rows[:count]
            self._bytes = 0
            self._looked = 0
            self._look_at = min(_LOOK_EVERY, self._max_rows)

    def _guard(self, act: Any, rows: Any) -> None:
        try:
            act(rows)
        except BaseException as error:
            self._failure = error
            raise

    def _append_all(self, rows: Any) -> None:
        if self.producer is None or isinstance(self._appender, Spread):
            self.last_ack = self._appender.append(rows)
            self._sequence += self.last_ack.rows
            return
        form, batches = self._appender.convert(rows)
        for batch in batches:
            self.last_ack = self._appender.append_batch(
                form, batch, producer=self._producer, producer_epoch=self._epoch, sequence=self._sequence
            )
            self._sequence += batch.num_rows

    # -- time and the end -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(self._linger):
            if self._has_waiting() and self._failure is None:
                try:
                    self._flush_lingering()
                except VirtaError:
                    continue  # kept in _failure and raised at the caller's next call

    def _flush_lingering(self) -> None:
        """What has waited long enough is appended, though little of it has gathered."""
        self.flush()

    def _has_waiting(self) -> bool:
        """Whether something was sent that is not appended."""
        return bool(self._rows)

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure
        raise Closed("the writer was closed")

    def close(self) -> None:
        """Flush and end; raises what went wrong, also earlier in the background."""
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._look_at = 0
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        # the caller's own error matters more; rows sent before it are still appended
        try:
            if self._failure is None:
                self.flush()
        except VirtaError:
            pass
        finally:
            self._end()

    def __repr__(self) -> str:
        name = f"producer={self.producer!r}, " if self.producer else ""
        return f"Writer({self._appender.topic!r}, {name}last_sequence={self.last_sequence})"


def _rough_size(row: Any) -> int:
    if not isinstance(row, Mapping):
        return sys.getsizeof(row)
    return sum(map(sys.getsizeof, row.values()))
