"""SQL over the topics of a broker: it runs there, where the rows are, and comes back as Arrow."""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from virta.client.partition import WINDOW_BYTES
from virta.client.rows import RowStream, Stopped
from virta.client.wire import Wire
from virta.errors import UsageError, VirtaError
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.query.engine import Parameters, QueryCancelled
from virta.query.result import Result


def query(wire: Wire, text: str, parameters: Parameters, *, external_access: bool) -> Result:
    """Have the broker bind a query to the rows of this moment; read as often as it is asked for."""
    if external_access:
        raise UsageError(
            "a broker's queries read its topics and nothing else",
            hint="fetch the rows with topic[:].to_arrow(), and ask DuckDB here",
        )
    header = message("Query")(sql=text)
    if parameters is not None:
        header.parameters = _plain(parameters)
    _, answer = wire.call(FrameType.QUERY, header)
    handle, columns = answer.handle, list(answer.columns)
    made = Result(text, lambda: _RemoteOpened(wire, handle, columns))  # type: ignore[arg-type,return-value]
    weakref.finalize(made, _forget, wire, handle)
    return made


def _plain(parameters: Parameters) -> bytes:
    if isinstance(parameters, str | bytes):
        raise UsageError("parameters are a list or a dict", hint="log.sql(query, [value])")
    given: Any = dict(parameters) if isinstance(parameters, Mapping) else list(parameters or ())
    try:
        return json.dumps(given).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"a parameter cannot be sent: {error}", hint="give it as text, and cast it in SQL"
        ) from error


def _forget(wire: Wire, handle: int) -> None:
    with contextlib.suppress(VirtaError, OSError):  # with the connection the broker forgets it anyway
        wire.tell_apart(FrameType.QUERY, message("Query")(handle=handle, forget=True))


class _RemoteOpened:
    """One reading of a query; stands where `query.result.Opened` stands."""

    def __init__(self, wire: Wire, handle: int, columns: list[str]) -> None:
        self._wire = wire
        self._handle = handle
        self.columns = columns
        self._stream: RowStream | None = None
        self.cursor = self

    def interrupt(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def reader(self) -> _Reader:
        """Begin to run it."""
        header = message("Query")(handle=self._handle, credit=WINDOW_BYTES)
        self._stream = RowStream(self._wire, FrameType.QUERY, header)
        try:
            return _Reader(self._stream.schema(), iter(self._stream))
        except Stopped as error:
            raise QueryCancelled("the query was cancelled") from error

    def following(self, reader: _Reader) -> pa.RecordBatch | None:
        """The next rows; None at the end."""
        try:
            return next(reader.batches, None)
        except Stopped as error:
            raise QueryCancelled("the query was cancelled") from error

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


class _Reader:
    def __init__(self, schema: pa.Schema, batches: Any) -> None:
        self.schema = schema
        self.batches = batches
