"""A stream of Arrow batches from a broker: pushed as far as the client gives credit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from virta.client.wire import Pending, Wire
from virta.errors import UnavailableError
from virta.protocol.codes import FrameType
from virta.protocol.messages import message


class Stopped(UnavailableError):
    """Somebody cancelled the stream."""

    code = "cancelled"


class RowStream:
    """The batches of one request, once."""

    def __init__(self, wire: Wire, type_: FrameType, header: Any) -> None:
        self._wire = wire
        self._pending: Pending = wire.post(type_, header, is_stream=True)
        self._is_over = False
        self._taken = 0
        self._source: Any = None
        self.ending: Any = None  # the last answer's header, once it is here

    def schema(self) -> pa.Schema:
        """Comes before the first batch."""
        return self._open().schema

    def _open(self) -> Any:
        if self._source is None:
            self._source = pa.ipc.open_stream(pa.PythonFile(_Bodies(self._next_body), mode="r"))
        return self._source

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._open()
        finally:
            self.close()

    def _next_body(self) -> memoryview | None:
        if self._is_over:
            return None
        self._give_credit()
        frame, answer = self._wire.next(self._pending)
        if frame.type != FrameType.ROWS:
            self._is_over = True
            raise Stopped("it was cancelled")
        self._is_over = answer.last
        if answer.last:
            self.ending = answer
        self._taken += len(frame.body) + 64
        return frame.body

    def _give_credit(self) -> None:
        if self._taken:
            self._wire.tell(FrameType.CREDIT, self._pending.channel, message("Credit")(bytes=self._taken))
            self._taken = 0

    def cancel(self) -> None:
        """Have whoever reads it stop."""
        self._wire.tell(FrameType.CANCEL, self._pending.channel, message("Cancel")())

    def close(self) -> None:
        """Take no more of it."""
        self._wire.forget(self._pending)
        if not self._is_over and self._pending.error is None:
            self._is_over = True
            self._wire.tell(FrameType.CANCEL, self._pending.channel, message("Cancel")())


class _Bodies:
    """Bodies of frames one behind the other, as a file for Arrow's reader."""

    closed = False

    def __init__(self, following: Any) -> None:
        self._following = following
        self._rest = memoryview(b"")

    def read(self, size: int) -> bytes:
        parts = []
        while size > 0:
            if not self._rest:
                body = self._following()
                if body is None:
                    break
                self._rest = body
                continue
            part = self._rest[:size]
            self._rest = self._rest[len(part) :]
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._rest = memoryview(b"")
