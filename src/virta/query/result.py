"""What a query gives: read when it is asked for, as often as it is asked for.

Every reading runs the query anew over the same snapshot, so two of them agree. Rows stream
through; only `to_arrow` holds all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 64 * 1024
_SHOWN_ROWS = 20
_SHOWN_WIDTH = 40
# DuckDB hears an interrupt only while it works, so it is told until it has stopped.
_INTERRUPT_SECONDS = 0.05


class Opened:
    """A query bound in a cursor of its own, to be read once."""

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, relation: Any, failed: Callable[[BaseException], NoReturn]
    ) -> None:
        self.cursor = cursor
        self.relation = relation
        self.failed = failed
        self.columns: list[str] = list(relation.columns)
        self._thread: ThreadPoolExecutor | None = None

    def reader(self) -> pa.RecordBatchReader:
        """Begin to run it."""
        make = getattr(self.relation, "to_arrow_reader", None) or self.relation.fetch_record_batch
        return self._run(lambda: make(_BATCH_ROWS))

    def following(self, reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
        """The next rows; None at the end."""
        return self._run(lambda: next(reader, None))

    def _run(self, call: Callable[[], Any]) -> Any:
        """Have DuckDB work. The main thread only waits, so that Ctrl-C is heard at any moment."""
        try:
            if threading.current_thread() is not threading.main_thread():
                return call()
            if self._thread is None:
                self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="virta-sql")
            return self._wait(self._thread.submit(call))
        except Exception as error:
            self.failed(error)

    def _wait(self, working: Future[Any]) -> Any:
        try:
            return working.result()
        except KeyboardInterrupt:
            while not working.done():
                self.cursor.interrupt()
                wait([working], timeout=_INTERRUPT_SECONDS)
            raise

    def close(self) -> None:
        self.relation = None
        self.cursor.close()
        if self._thread is not None:
            self._thread.shutdown(wait=False)


class Result:
    """The rows of a query, not read yet."""

    def __init__(self, query: str, open_query: Callable[[], Opened]) -> None:
        self.query = query
        self._open_query = open_query
        self._lock = threading.Lock()
        self._running: set[Opened] = set()
        self._ready: Opened | None = open_query()
        self.columns = self._ready.columns
        self._schema: pa.Schema | None = None

    def _take(self) -> Opened:
        """The query bound when it was made, for whoever is first; bound again for the others."""
        with self._lock:
            opened, self._ready = self._ready, None
        opened = opened or self._open_query()
        with self._lock:
            self._running.add(opened)
        return opened

    def _end(self, opened: Opened) -> None:
        with self._lock:
            self._running.discard(opened)
        opened.close()

    # -- reading ------------------------------------------------------------------------------

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow record batches, streamed."""
        opened = self._take()
        try:
            reader = opened.reader()
            self._schema = reader.schema
            while (batch := opened.following(reader)) is not None:
                if batch.num_rows:
                    yield batch
            del reader
        finally:
            self._end(opened)

    @property
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types."""
        if self._schema is None:
            opened = self._take()
            try:
                self._schema = opened.reader().schema
            finally:
                self._end(opened)
        return self._schema

    def to_arrow(self) -> pa.Table:
        batches = list(self.batches())
        return pa.Table.from_batches(batches, schema=self.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """A fresh stream of record batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Row by row, as dicts; where two columns have one name, the last counts."""
        for row in self.tuples():
            yield dict(zip(self.columns, row, strict=True))

    def tuples(self) -> Iterator[tuple[Any, ...]]:
        """Row by row, as tuples."""
        for batch in self.batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def to_pylist(self) -> list[dict[str, Any]]:
        return list(self)

    def first(self) -> dict[str, Any] | None:
        rows = iter(self)
        try:
            return next(rows, None)
        finally:
            rows.close()  # type: ignore[attr-defined]

    def cancel(self) -> None:
        """Stop whoever reads it now, from any thread: they get a QueryCancelled."""
        with self._lock:
            for opened in self._running:
                opened.cursor.interrupt()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    # -- for people -----------------------------------------------------------------------------

    def _head(self) -> tuple[list[tuple[Any, ...]], bool]:
        """The first rows, and whether there are more."""
        rows: list[tuple[Any, ...]] = []
        source = self.tuples()
        for row in source:
            if len(rows) == _SHOWN_ROWS:
                source.close()  # type: ignore[attr-defined]
                return rows, True
            rows.append(row)
        return rows, False

    def __repr__(self) -> str:
        rows, more = self._head()
        texts = [list(self.columns), *([_shown(value) for value in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in texts
        ]
        rule = "  ".join("-" * width for width in widths)
        count = f"(the first {len(rows)} rows)" if more else f"({len(rows)} row{'s' * (len(rows) != 1)})"
        return "\n".join([lines[0], rule, *lines[1:], count])

    def _repr_html_(self) -> str:
        from html import escape

        rows, more = self._head()
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row) + "</tr>" for row in rows
        )
        note = f"<caption>the first {len(rows)} rows</caption>" if more else ""
        return f"<table>{note}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    text = "NULL" if value is None else str(value).replace("\n", "\\n")
    return text if len(text) <= _SHOWN_WIDTH else text[: _SHOWN_WIDTH - 1] + "…"
