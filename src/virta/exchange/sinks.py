"""Rows on their way out: one sink per form, told batches or columns of JSON values.

    jsonl, json        lossless, see json_values
    csv                null is an empty cell, empty text is ""
    tsv                null is \\N; tab, newline and backslash are \\t, \\n, \\r, \\\\
    parquet, arrow     the batches themselves

Arrow is imported by the sinks that need it, when they begin.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from virta.exchange.binary_mark import MARK_BEGINS, as_mark
from virta.exchange.text import visible

if TYPE_CHECKING:
    import pyarrow as pa

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode


def to_json(value: Any) -> str:
    """One line of JSON that a terminal can show: no control characters in it."""
    text = _encode(value)
    return text if text.isascii() else visible(text, json=True)


class TextSink:
    """Writes columns of JSON values as lines."""

    def __init__(self, file: BinaryIO, *, header: bool) -> None:
        self._file = file
        self.header = header
        self.names: Sequence[str] = ()

    def begin(self, names: Sequence[str]) -> None:
        self.names = names

    def write(self, columns: Sequence[Sequence[Any]]) -> None:
        lines = self.lines(columns)
        if lines:
            self.put("\n".join(lines) + "\n")

    def put(self, text: str) -> None:
        self._file.write(text.encode())

    def lines(self, columns: Sequence[Sequence[Any]]) -> list[str]:
        raise NotImplementedError

    def flush(self) -> None:
        self._file.flush()

    def end(self) -> None:
        self._file.flush()


class JsonLines(TextSink):
    def lines(self, columns: Sequence[Sequence[Any]]) -> list[str]:
        names = self.names
        return [to_json(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


class JsonArray(JsonLines):
    """One array, an element per line."""

    _opened = False

    def write(self, columns: Sequence[Sequence[Any]]) -> None:
        lines = self.lines(columns)
        if lines:
            # noted first: Ctrl-C may come right after the write
            before, self._opened = (",\n" if self._opened else "[\n"), True
            self.put(before + ",\n".join(lines))

    def end(self) -> None:
        self.put("\n]\n" if self._opened else "[]\n")
        super().end()


class Cells(TextSink):
    """Forms with a line of names and a cell per value."""

    def begin(self, names: Sequence[str]) -> None:
        super().begin(names)
        if self.header:
            self.put(self.head() + "\n")

    def head(self) -> str:
        return self.line([self.cell(name) for name in self.names])

    def lines(self, columns: Sequence[Sequence[Any]]) -> list[str]:
        texts = [[self.cell(value) for value in column] for column in columns]
        return [self.line(row) for row in zip(*texts, strict=True)]

    def line(self, cells: Sequence[str]) -> str:
        raise NotImplementedError

    def cell(self, value: Any) -> str:
        raise NotImplementedError


class Csv(Cells):
    _special = frozenset('",\r\n')

    def line(self, cells: Sequence[str]) -> str:
        return ",".join(cells)

    def cell(self, value: Any) -> str:
        if value is None:
            return ""
        text = cell_text(value)
        if text and self._special.isdisjoint(text) and not (text[0].isspace() or text[-1].isspace()):
            return text
        return '"' + text.replace('"', '""') + '"'


class Tsv(Cells):
    _escapes = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

    def line(self, cells: Sequence[str]) -> str:
        return "\t".join(cells)

    def cell(self, value: Any) -> str:
        return "\\N" if value is None else cell_text(value).translate(self._escapes)


class ArrowSink:
    """The batches themselves: an Arrow stream, or a Parquet file."""

    def __init__(self, file: BinaryIO, form: str) -> None:
        self._file = _Kept(file)
        self._form = form
        self._writer: Any = None

    def begin(self, schema: pa.Schema) -> None:
        if self._form == "arrow":
            import pyarrow as pa

            self._writer = pa.ipc.new_stream(self._file, schema)
        else:
            from pyarrow import parquet

            self._writer = parquet.ParquetWriter(self._file, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def flush(self) -> None:
        self._file.flush()

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._file.flush()


class _Kept(io.RawIOBase):
    """A file that stays open when Arrow is done with it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._file.write(data)
        self._written += size
        return size

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        self._file.flush()


def cell_text(value: Any) -> str:
    """A JSON value as the text of a cell; null is up to the form."""
    if isinstance(value, str):
        # text that reads like our own mark for bytes goes as bytes, so that it comes back
        return value if not value.startswith(MARK_BEGINS) else _encode(as_mark(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _encode(value)
