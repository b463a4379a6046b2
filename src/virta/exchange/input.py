"""The way in: rows from files or a pipe, as batches of a topic's columns.

Forms: jsonl (also one JSON array), csv, tsv, parquet, arrow; told by the file's ending,
else by its first bytes. What `read` and `tail` print is taken back without loss (see
json_values); `_offset` and `_timestamp` are ignored, because rows get new ones.

A pipe is taken as it comes: what has arrived is handed on at once, so a `tail` into an
`append` never waits for a batch to fill. A row that cannot be read or does not fit is
named by its file and line.
"""

from __future__ import annotations

import io
import itertools
import json
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from virta.errors import SchemaMismatch, TooLarge, UsageError
from virta.exchange.files import ENDINGS, exact_schema, restored
from virta.exchange.json_values import ColumnDecoder, Unfit, cell_reader, wants_exact_numbers
from virta.metadata.schemas import HEADERS, OFFSET, TIMESTAMP, suggest

FORMS = ("jsonl", "json", "csv", "tsv", "parquet", "arrow")
# A line longer than this is not a row: the limit of a row is 10 MiB, in base64 and escapes.
LINE_LIMIT_BYTES = 128 * 1024 * 1024
_READ_BYTES = 1 << 20
_STAMPED = (OFFSET, TIMESTAMP)


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Some rows, and where they were read."""

    rows: pa.RecordBatch
    bytes: int = 0
    place: Callable[[int], str] = field(default=lambda row: f"row {row + 1}")


class Source:
    """One input: a file, or `-` for standard input."""

    def __init__(self, name: str, form: str | None) -> None:
        self.is_stdin = name == "-"
        self.name = "stdin" if self.is_stdin else name
        self.size: int | None = None
        self._file: Any
        if name == "-":
            self._file = _buffered(sys.stdin.buffer)
        else:
            path = Path(name)
            self._file = path.open("rb")
            self.size = path.stat().st_size
            form = form or ENDINGS.get(path.suffix.lower())
        self._form = form

    def chunks(self, schema: pa.Schema, max_rows: int, *, by_shape: bool = False) -> Iterator[Chunk]:
        """The rows, as batches of at most `max_rows` of the schema's columns.

        With `by_shape` a column that a JSON row does not name is left out, not null.
        """
        try:
            form = self._form or self._sniff(schema)
            if form in ("parquet", "arrow"):
                yield from _arrow_chunks(self._file, form, self.name, max_rows)
            else:
                yield from _text_chunks(self._file, form, self.name, schema, max_rows, by_shape=by_shape)
        finally:
            if not self.is_stdin:
                self._file.close()

    def _sniff(self, schema: pa.Schema) -> str:
        head = bytes(self._file.peek(4096)[:4096])
        if head.startswith(b"PAR1"):
            return "parquet"
        if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
            return "arrow"
        text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
        if not text or text.startswith("{"):
            return "jsonl"
        if text.startswith("["):
            return "json"
        first = text.splitlines()[0]
        known = {*schema.names, *_STAMPED}
        for form, separator in (("csv", ","), ("tsv", "\t")):
            if known.issuperset(name.strip('"') for name in first.split(separator)):
                return form
        raise UsageError(
            f"{self.name}: cannot tell what form this is: it begins with {first[:40]!r}",
            hint=f"say it with --format {'|'.join(FORMS)}; csv and tsv begin with the names of the columns",
        )


def _buffered(file: BinaryIO) -> Any:
    return file if hasattr(file, "peek") else io.BufferedReader(file)


# -- lines --------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Lines:
    """Whole lines that arrived together; `first` is the number of the first, from 1."""

    lines: list[bytes]
    first: int
    bytes: int


def _lines(file: Any, name: str) -> Iterator[_Lines]:
    """Lines in runs: what one read brought, and what else is there already."""
    rest = b""
    number = 1
    while True:
        data = _arrived(file)
        if not data:
            break
        whole, newline, rest_of_it = data.rpartition(b"\n")
        if not newline:
            rest += data
            if len(rest) > LINE_LIMIT_BYTES:
                raise TooLarge(
                    f"{name}:{number}: the line is longer than {LINE_LIMIT_BYTES >> 20} MiB",
                    size=len(rest),
                    limit=LINE_LIMIT_BYTES,
                )
            continue
        lines = (rest + whole).split(b"\n")
        rest = rest_of_it
        yield _Lines(lines=lines, first=number, bytes=len(data))
        number += len(lines)
    if rest:
        yield _Lines(lines=[rest], first=number, bytes=0)


def _arrived(file: Any) -> bytes:
    """What is there, without waiting for more than the first byte of it."""
    data = bytes(file.read1(_READ_BYTES))
    if not data or len(data) >= _READ_BYTES:
        return data
    parts, size = [data], len(data)
    while size < _READ_BYTES and _has_more(file):
        more = bytes(file.read1(_READ_BYTES))
        if not more:
            break
        parts.append(more)
        size += len(more)
    return b"".join(parts)


def _has_more(file: Any) -> bool:
    try:
        return bool(select.select([file.fileno()], [], [], 0)[0])
    except (OSError, ValueError):
        return False


# -- text forms -----------------------------------------------------------------------------------


def _text_chunks(
    file: Any, form: str, name: str, schema: pa.Schema, max_rows: int, *, by_shape: bool
) -> Iterator[Chunk]:
    builder = Builder(schema, name, by_shape=by_shape)
    if form == "json":
        yield from _json_chunks(file, name, builder, max_rows)
    elif form == "jsonl":
        yield from _json_line_chunks(file, name, builder, max_rows)
    elif form == "csv":
        yield from _csv_chunks(file, name, schema, builder, max_rows)
    else:
        yield from _tsv_chunks(file, name, schema, builder, max_rows)


class Builder:
    """Makes batches of a schema from rows of JSON values."""

    def __init__(self, schema: pa.Schema, name: str, *, by_shape: bool = False) -> None:
        self._name = name
        self._by_shape = by_shape
        self._decoders = {each.name: ColumnDecoder(each) for each in schema}
        self._known = frozenset(self._decoders) | frozenset(_STAMPED)
        self.loads = json.JSONDecoder(parse_float=Decimal if wants_exact_numbers(schema) else None).decode

    def chunks(self, rows: Sequence[dict[str, Any]], places: Sequence[int], bytes: int) -> Iterator[Chunk]:
        """One chunk; or, by shape, one for each run of rows that name the same columns."""
        if not self._by_shape:
            yield self.from_rows(rows, places, bytes)
            return
        numbered = zip(rows, places, strict=True)
        for _, same in itertools.groupby(numbered, key=lambda each: frozenset(each[0])):
            part, where = zip(*same, strict=True)
            yield self.from_rows(part, where, bytes)
            bytes = 0

    def from_rows(self, rows: Sequence[dict[str, Any]], places: Sequence[int], bytes: int) -> Chunk:
        named: dict[str, None] = {}
        for row, place in zip(rows, places, strict=True):
            if not self._known.issuperset(row):
                self._refuse(row, place)
            named.update(dict.fromkeys(row))
        columns = {name: [row.get(name) for row in rows] for name in named if name not in _STAMPED}
        return self.from_columns(columns, places, bytes, word="")

    def from_columns(
        self, columns: dict[str, list[Any]], places: Sequence[int], bytes: int, word: str
    ) -> Chunk:
        def place(row: int) -> str:
            return f"{self._name}:{word}{places[row]}"

        arrays = {}
        for name, values in columns.items():
            try:
                arrays[name] = self._decoders[name].array(values)
            except Unfit as error:
                row = getattr(error, "row", 0)
                raise SchemaMismatch(f'{place(row)}: column "{name}" {error}', column=name, row=row) from None
        count = len(places)
        if not arrays:
            # rows that name no column at all: every column is null, or refused as missing
            first = next(iter(self._decoders))
            arrays[first] = self._decoders[first].array([None] * count)
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
        return Chunk(rows=batch, bytes=bytes, place=place)

    def _refuse(self, row: dict[str, Any], place: int) -> None:
        for name in row:
            if name not in self._known:
                raise SchemaMismatch(
                    f'{self._name}:{place}: there is no column "{name}"',
                    column=name,
                    hint=self.hint(name),
                )

    def hint(self, name: str) -> str:
        if name == HEADERS:
            return "this topic was made without headers"
        return suggest(name, list(self._decoders))

    @property
    def known(self) -> frozenset[str]:
        return self._known


def _json_line_chunks(file: Any, name: str, builder: Builder, max_rows: int) -> Iterator[Chunk]:
    for run in _lines(file, name):
        rows: list[dict[str, Any]] = []
        places: list[int] = []
        share = run.bytes
        for place, line in enumerate(run.lines, run.first):
            row = _parsed(line, name, place, builder)
            if row is None:
                continue
            rows.append(row)
            places.append(place)
            if len(rows) >= max_rows:
                yield from builder.chunks(rows, places, share)
                rows, places, share = [], [], 0
        if rows:
            yield from builder.chunks(rows, places, share)


def _parsed(line: bytes, name: str, place: int, builder: Builder) -> dict[str, Any] | None:
    """The object on a line; None for an empty line."""
    try:
        text = line.decode().strip()
        if place == 1:
            text = text.removeprefix("\ufeff")
        if not text:
            return None
        row = builder.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}:{place}: not UTF-8, at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{name}:{place}: not JSON: {error.msg.lower()} at character {error.colno}",
            hint="one JSON object per line; other forms are named with --format",
        ) from None
    except RecursionError:
        raise UsageError(f"{name}:{place}: nested too deeply") from None
    if type(row) is not dict:
        raise UsageError(
            f"{name}:{place}: a row is a JSON object, not {type(row).__name__}",
            hint='write {"column": value} on each line',
        )
    return row


def _json_chunks(file: Any, name: str, builder: Builder, max_rows: int) -> Iterator[Chunk]:
    """A whole JSON document: an array of objects, or one object; also lines, if it is that."""
    data = file.read()
    try:
        document = builder.loads(data.decode("utf-8-sig").strip() or "[]")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}: not UTF-8, at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and data.lstrip().startswith(b"{"):
            yield from _json_line_chunks(_buffered(io.BytesIO(data)), name, builder, max_rows)
            return
        raise UsageError(f"{name}:{error.lineno}: not JSON: {error.msg.lower()}") from None
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None
    rows = document if isinstance(document, list) else [document]
    for place, row in enumerate(rows, 1):
        if type(row) is not dict:
            raise UsageError(f"{name}: element {place} is not an object but {type(row).__name__}")
    for start in range(0, len(rows), max_rows):
        part = rows[start : start + max_rows]
        yield from builder.chunks(
            part, range(start + 1, start + 1 + len(part)), len(data) if not start else 0
        )


def _check_names(names: Sequence[str], name: str, builder: Builder) -> None:
    for at, column in enumerate(names):
        if column not in builder.known:
            raise SchemaMismatch(
                f'{name}:1: there is no column "{column}"', column=column, hint=builder.hint(column)
            )
        if column in names[:at]:
            raise SchemaMismatch(f'{name}:1: column "{column}" is there twice', column=column)


def _readers(names: Sequence[str], schema: pa.Schema, builder: Builder) -> dict[str, Callable[[str], Any]]:
    return {
        name: cell_reader(schema.field(name).type, builder.loads) for name in names if name not in _STAMPED
    }


def _cells_to_chunk(
    cells: dict[str, list[str | None]],
    readers: dict[str, Callable[[str], Any]],
    builder: Builder,
    places: Sequence[int],
    bytes: int,
    name: str,
    word: str,
) -> Chunk:
    columns: dict[str, list[Any]] = {}
    for column, read in readers.items():
        values: list[Any] = []
        for at, text in enumerate(cells[column]):
            try:
                values.append(None if text is None else read(text))
            except Unfit as error:
                raise SchemaMismatch(
                    f'{name}:{word}{places[at]}: column "{column}" {error}', column=column, row=at
                ) from None
        columns[column] = values
    return builder.from_columns(columns, places, bytes, word)


def _tsv_chunks(file: Any, name: str, schema: pa.Schema, builder: Builder, max_rows: int) -> Iterator[Chunk]:
    names: list[str] = []
    readers: dict[str, Callable[[str], Any]] = {}
    for run in _lines(file, name):
        lines = list(enumerate(_decoded(run, name), run.first))
        if not names and lines:
            names = lines.pop(0)[1].removeprefix("\ufeff").split("\t")
            _check_names(names, name, builder)
            readers = _readers(names, schema, builder)
        lines = [(place, line) for place, line in lines if line]
        for start in range(0, len(lines), max_rows):
            part = lines[start : start + max_rows]
            rows = [_tsv_row(line, len(names), name, place) for place, line in part]
            cells = {column: [row[at] for row in rows] for at, column in enumerate(names)}
            yield _cells_to_chunk(
                cells, readers, builder, [place for place, _ in part], 0 if start else run.bytes, name, ""
            )


def _decoded(run: _Lines, name: str) -> Iterator[str]:
    for place, line in enumerate(run.lines, run.first):
        try:
            yield line.decode().removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UsageError(f"{name}:{place}: not UTF-8, at byte {error.start + 1} of the line") from None


def _tsv_row(line: str, width: int, name: str, place: int) -> list[str | None]:
    cells = line.split("\t")
    if len(cells) != width:
        raise UsageError(f"{name}:{place}: the line has {len(cells)} cells, but the first has {width}")
    return [None if cell == "\\N" else _unescaped(cell) for cell in cells]


_TSV_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def _unescaped(cell: str) -> str:
    if "\\" not in cell:
        return cell
    result = []
    at = 0
    while at < len(cell):
        if cell[at] == "\\" and at + 1 < len(cell) and cell[at + 1] in _TSV_ESCAPES:
            result.append(_TSV_ESCAPES[cell[at + 1]])
            at += 2
        else:
            result.append(cell[at])
            at += 1
    return "".join(result)


class _Raw(io.RawIOBase):
    """A file Arrow may read from: it gets what is there, so a pipe is not waited for; counts bytes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.taken = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._file.read1(size if size > 0 else _READ_BYTES))
        self.taken += len(data)
        return data

    def take(self) -> int:
        taken, self.taken = self.taken, 0
        return taken


def _csv_chunks(file: Any, name: str, schema: pa.Schema, builder: Builder, max_rows: int) -> Iterator[Chunk]:
    """Cells as text from Arrow's reader, which tells null (an empty cell) from empty text ("")."""
    from pyarrow import csv  # only for csv

    head = _csv_names(file, name)
    if not head:
        return
    _check_names(head, name, builder)
    readers = _readers(head, schema, builder)
    raw = _Raw(file)
    first = 1
    try:
        batches = csv.open_csv(
            raw,
            read_options=csv.ReadOptions(block_size=_READ_BYTES),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(head, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in batches:
            for start in range(0, batch.num_rows, max_rows):
                part = batch.slice(start, max_rows)
                cells = {column: part.column(column).to_pylist() for column in readers}
                places = range(first, first + part.num_rows)
                yield _cells_to_chunk(cells, readers, builder, places, raw.take(), name, "row ")
                first += part.num_rows
    except pa.ArrowInvalid as error:
        raise UsageError(f"{name}: after row {first - 1}: {error}") from None


def _csv_names(file: Any, name: str) -> list[str]:
    """The names in the first line, left where they are."""
    import csv

    head = bytes(file.peek(_READ_BYTES))
    try:
        text = head.decode("utf-8-sig", "strict" if len(head) < 1024 else "ignore")
    except UnicodeDecodeError:
        raise UsageError(f"{name}: not UTF-8") from None
    return next(iter(csv.reader(io.StringIO(text))), [])


# -- Arrow forms ------------------------------------------------------------------------------------


def _arrow_chunks(file: Any, form: str, name: str, max_rows: int) -> Iterator[Chunk]:
    first = 0
    try:
        for batch, size in _arrow_batches(file, form, max_rows):
            for start in range(0, batch.num_rows, max_rows):
                part = batch.slice(start, max_rows)
                yield Chunk(
                    rows=part,
                    bytes=0 if start else size,
                    place=lambda row, base=first + start: f"{name}:row {base + row + 1}",  # type: ignore[misc]
                )
            first += batch.num_rows
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, EOFError) as error:
        raise UsageError(f"{name}: not readable as {form}: {error}") from None


def _arrow_batches(file: Any, form: str, max_rows: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    if form == "parquet":
        from pyarrow import parquet  # only for parquet

        source = parquet.ParquetFile(file if file.seekable() else pa.BufferReader(file.read()))
        exact = exact_schema(source.schema_arrow)
        for batch in source.iter_batches(batch_size=max_rows):
            yield restored(batch, exact), batch.nbytes
        return
    if bytes(file.peek(6)[:6]) == b"ARROW1":
        whole = pa.ipc.open_file(file if file.seekable() else pa.BufferReader(file.read()))
        for at in range(whole.num_record_batches):
            yield whole.get_batch(at), 0
        return
    if not file.peek(1):
        return
    raw = _Raw(file)
    for batch in pa.ipc.open_stream(_Whole(raw)):
        yield batch, raw.take()


class _Whole(io.RawIOBase):
    """Arrow's stream reader wants each read in full; it never asks for more than a message."""

    def __init__(self, raw: _Raw) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        left = size if size >= 0 else 1 << 62
        while left > 0:
            data = self._raw.read(min(left, _READ_BYTES))
            if not data:
                break
            parts.append(data)
            left -= len(data)
        return b"".join(parts)
