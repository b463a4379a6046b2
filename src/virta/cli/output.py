"""One way out for everything a command prints: rows and records, in the form that was asked for.

Rows are Arrow batches as they come (`read`, `tail`); records are a few things known
at once (`topic ls`, `block ls`). Both go through one sink per form:

    table, md          for people; a table on a terminal is cut to its width, elsewhere never
    jsonl, json        lossless, see json_values
    csv                null is an empty cell, empty text is ""
    tsv                null is \\N; tab, newline and backslash are \\t, \\n, \\r, \\\\
    parquet, arrow     bytes: never to a terminal

Data goes to stdout or to `--out`, in UTF-8; whatever else there is to say goes to stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self, TypeAlias

from virta.cli.invocation import Invocation
from virta.cli.table import Layout, Table
from virta.cli.text import visible
from virta.errors import NotFound, UsageError
from virta.exchange.sinks import (
    ArrowSink,
    Cells,
    Csv,
    JsonArray,
    JsonLines,
    TextSink,
    Tsv,
    cell_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

Record: TypeAlias = Mapping[str, Any]
Shown: TypeAlias = Mapping[str, Callable[[Any], str]]

ENDINGS = {
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".md": "md",
    ".txt": "table",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
BINARY_FORMS = ("parquet", "arrow")

_pretty = json.JSONEncoder(ensure_ascii=False, indent=2, default=str).encode


# -- where it goes ----------------------------------------------------------------------------


@contextlib.contextmanager
def target(out: Path | None) -> Iterator[BinaryIO]:
    """Stdout, or a file that gets its name only once it is whole."""
    if out is None:
        sys.stdout.flush()
        yield from _standard_output()
        return
    unfinished = out.with_name(out.name + ".part")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)


def _standard_output() -> Iterator[BinaryIO]:
    stdout: Any = sys.stdout.buffer
    if not isinstance(stdout, io.RawIOBase):
        yield stdout
        return
    # PYTHONUNBUFFERED: a raw file may write less than it was given
    whole: Any = io.BufferedWriter(stdout)
    try:
        yield whole
    finally:
        whole.detach()


def choose_form(invocation: Invocation) -> str:
    """What `-o` says, else the file's ending, else a table on a terminal and jsonl in a pipe."""
    terminal = invocation.out is None and sys.stdout.isatty()
    form = invocation.output
    if form is None and invocation.out is not None:
        form = ENDINGS.get(invocation.out.suffix.lower(), "jsonl")
    if form is None:
        form = "table" if terminal else "jsonl"
    if form in BINARY_FORMS and terminal:
        raise UsageError(
            f"{form} is not for a terminal", hint=f"write it to a file: --out rows.{form}, or > rows.{form}"
        )
    return form


# -- one sink per form --------------------------------------------------------------------------


class Markdown(Cells):
    def head(self) -> str:
        return super().head() + "\n" + "|" + " --- |" * len(self.names)

    def line(self, cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    def cell(self, value: Any) -> str:
        text = "" if value is None else visible(cell_text(value))
        return text.replace("|", "\\|")


class TableSink(TextSink):
    """For people. Widths are settled by the first rows, so that the rest can follow at once."""

    def __init__(self, file: BinaryIO, *, header: bool, layout: Layout) -> None:
        super().__init__(file, header=header)
        self._layout = layout
        self._table: Table | None = None

    def begin(self, names: Sequence[str]) -> None:
        super().begin(names)
        self._table = Table(names, self._layout, header=self.header)

    def lines(self, columns: Sequence[Sequence[Any]]) -> list[str]:
        assert self._table is not None
        return self._table.add(list(zip(*columns, strict=True)))

    def flush(self) -> None:
        self._settle()
        super().flush()

    def end(self) -> None:
        self._settle()
        super().end()

    def _settle(self) -> None:
        lines = self._table.settle() if self._table is not None else []
        if lines:
            self.put("\n".join(lines) + "\n")


_TEXT_FORMS: dict[str, type[TextSink]] = {
    "json": JsonArray,
    "jsonl": JsonLines,
    "csv": Csv,
    "tsv": Tsv,
    "md": Markdown,
}


def _text_sink(invocation: Invocation, form: str, file: BinaryIO, shown: Shown | None = None) -> TextSink:
    if form != "table":
        return _TEXT_FORMS[form](file, header=invocation.header)
    return TableSink(
        file,
        header=invocation.header,
        layout=Layout.of(invocation, invocation.out is None, shown or {}),
    )


# -- rows -------------------------------------------------------------------------------------


class _Printing:
    """A sink that is open for the length of a `with` block."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._form = choose_form(invocation)
        self._stack = contextlib.ExitStack()
        self._sink: Any = None
        self.count = 0

    @property
    def is_table(self) -> bool:
        return self._form == "table" and not self._invocation.quiet

    def __enter__(self) -> Self:
        self._stack.__enter__()
        try:
            self._begin(self._stack.enter_context(target(self._invocation.out)))
        except BaseException:
            self._stack.__exit__(*sys.exc_info())
            raise
        return self

    def _begin(self, file: BinaryIO) -> None:
        raise NotImplementedError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # Ctrl-C ends a tail, and damage a read: what came before is made whole, except a file.
            if kind is None or (self._invocation.out is None and kind is not BrokenPipeError):
                self._sink.end()
        finally:
            self._stack.__exit__(kind, error, trace)

    def flush(self) -> None:
        self._sink.flush()


class Rows(_Printing):
    """The rows of a read, on their way out: `with Rows(invocation, schema) as rows: rows.write(batch)`."""

    def __init__(self, invocation: Invocation, schema: pa.Schema) -> None:
        super().__init__(invocation)
        self._schema = schema
        names = list(invocation.columns or schema.names)
        check_columns(names, schema.names)
        self._names = names[:1] if invocation.quiet else names

    def _begin(self, file: BinaryIO) -> None:
        if self._invocation.quiet:
            self._sink = Tsv(file, header=False)
        elif self._form in BINARY_FORMS:
            self._sink = ArrowSink(file, self._form)
            self._sink.begin(_selected(self._schema, self._names))
            return
        else:
            self._sink = _text_sink(self._invocation, self._form, file)
        self._sink.begin(self._names)

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if batch.schema.names != self._names:
            batch = batch.select(self._names)
        self._sink.write(batch if isinstance(self._sink, ArrowSink) else _json_columns(batch))
        self.count += batch.num_rows


class MixedRows(_Printing):
    """Rows of several topics at once: each says its topic; where columns must agree, the row is one cell."""

    def __init__(self, invocation: Invocation, schemas: Sequence[pa.Schema]) -> None:
        super().__init__(invocation)
        if self._form in BINARY_FORMS:
            raise UsageError(
                "several topics have several schemas", hint="use -o jsonl, or read each on its own"
            )
        known = list(dict.fromkeys(name for schema in schemas for name in schema.names))
        check_columns(invocation.columns or (), known)

    def _begin(self, file: BinaryIO) -> None:
        self._sink = _text_sink(self._invocation, self._form, file)
        if not isinstance(self._sink, JsonLines):
            self._sink.begin((TOPIC, *_STAMPED, "row"))

    def write(self, topic: str, batch: pa.RecordBatch) -> None:
        names = list(batch.schema.names)
        wanted = [name for name in self._invocation.columns or names if name in names]
        columns = dict(zip(names, _json_columns(batch), strict=True))
        topics = [topic] * batch.num_rows
        if isinstance(self._sink, JsonLines):
            self._sink.names = (TOPIC, *wanted)
            self._sink.write([topics, *(columns[name] for name in wanted)])
        else:
            inside = [name for name in wanted if name not in _STAMPED]
            rows = [
                dict(zip(inside, values, strict=True))
                for values in zip(*(columns[name] for name in inside), strict=True)
            ] or [{}] * batch.num_rows
            self._sink.write([topics, *(columns[name] for name in _STAMPED), rows])
        self.count += batch.num_rows


TOPIC = "_topic"
_STAMPED = ("_offset", "_timestamp")


def _json_columns(batch: pa.RecordBatch) -> list[list[Any]]:
    from virta.exchange.json_values import json_columns  # with Arrow: not for --help

    return json_columns(batch)


def _selected(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in names], metadata=schema.metadata)


def check_columns(names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise NotFound(f'there is no column "{name}"', hint="the columns are: " + ", ".join(known))


# -- records ------------------------------------------------------------------------------------


def print_records(
    invocation: Invocation,
    records: Sequence[Record],
    *,
    key: str,
    shown: Shown | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Things known by their `key`. `shown` says how people see a value; machines get it as it is."""
    form = choose_form(invocation)
    known = list(records[0]) if records else list(names or (key,))
    wanted = list(invocation.columns or (known if form not in ("table", "md") else names or known))
    check_columns(wanted, known)
    with target(invocation.out) as file:
        if invocation.quiet:
            file.write("".join(f"{cell_text(record[key])}\n" for record in records).encode())
            return
        if form in BINARY_FORMS:
            _write_records(file, form, [{name: each[name] for name in wanted} for each in records], wanted)
            return
        sink = _text_sink(invocation, form, file, shown)
        sink.begin(wanted)
        sink.write([[record[name] for record in records] for name in wanted])
        sink.end()


def _write_records(file: BinaryIO, form: str, records: Sequence[Record], names: Sequence[str]) -> None:
    import pyarrow as pa

    if records:
        table = pa.Table.from_pylist([dict(record) for record in records])
    else:
        table = pa.table({name: pa.nulls(0, pa.string()) for name in names})
    sink = ArrowSink(file, form)
    sink.begin(table.schema)
    for batch in table.to_batches():
        sink.write(batch)
    sink.end()


def print_record(invocation: Invocation, record: Record, *, shown: Shown | None = None) -> None:
    """One thing: an object in JSON, a list of its fields for people."""
    form = choose_form(invocation)
    if form != "table":
        if form == "json":
            with target(invocation.out) as file:
                wanted = invocation.columns or tuple(record)
                check_columns(wanted, list(record))
                file.write((_pretty({name: record[name] for name in wanted}) + "\n").encode())
            return
        print_records(invocation, [record], key=next(iter(record)))
        return
    with target(invocation.out) as file:
        layout = Layout.of(invocation, invocation.out is None, shown or {})
        wanted = invocation.columns or tuple(record)
        check_columns(wanted, list(record))
        lines = layout.fields([(name, record[name]) for name in wanted])
        file.write(("\n".join(lines) + "\n").encode())
        file.flush()


def note(invocation: Invocation, text: str) -> None:
    """A word to people, on stderr; `-q` keeps it back."""
    if not invocation.quiet:
        print(text, file=sys.stderr)
