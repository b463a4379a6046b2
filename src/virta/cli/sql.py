"""`virta sql`: one query and its rows, or a shell on a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virta.cli.invocation import Invocation, output_options
from virta.cli.output import BINARY_FORMS, Rows, note
from virta.cli.ranges import open_log
from virta.cli.text import count, span
from virta.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from virta.log import Log


@click.command()
@click.argument("query", metavar="['QUERY'|-]", required=False)
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the query from a file.",
)
@click.option(
    "-p",
    "--parameter",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    help="The value of $NAME; a number, true, false, null, or else a text.",
)
@click.option("--external-access", is_flag=True, help="Let the query read files and the network.")
@output_options("the first column")
@click.pass_obj
def sql(
    invocation: Invocation,
    query: str | None,
    file: Path | None,
    parameters: tuple[str, ...],
    external_access: bool,
) -> None:
    """Ask in SQL (DuckDB's), over any topics at once.

    Every topic is fixed to its rows of this moment, with the columns _offset and _timestamp.
    Without a query it is a shell on a terminal, and reads the query from a pipe. Queries only
    read; names other than of plain words stand in double quotes.

    \b
    Examples:
      virta sql 'select user, sum(amount) from orders group by 1 order by 2 desc'
      virta sql 'from orders where _offset >= $first' -p first=100 -o csv
      virta sql
    """
    text = _query(query, file)
    with open_log(invocation) as log:
        if text is None:
            from virta.cli.shell import Shell  # readline is for terminals

            Shell(invocation, log, external_access=external_access).run()
            return
        show(invocation, log, text, _values(parameters), external_access=external_access)


def _query(query: str | None, file: Path | None) -> str | None:
    """The query's text; None means the shell."""
    if file is not None:
        if query is not None:
            raise UsageError("a query and a file with one are one too many")
        return file.read_text(encoding="utf-8")
    if query is None and sys.stdin.isatty():
        return None
    return sys.stdin.read() if query in (None, "-") else query


def _values(parameters: tuple[str, ...]) -> dict[str, Any] | None:
    values = {}
    for text in parameters:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{text!r} is no parameter", hint="-p name=value stands for $name")
        values[name.removeprefix("$")] = _value(value)
    return values or None


def _value(text: str) -> Any:
    """A number, true, false or null as JSON has them; anything else is text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, bool | int | float) else text


def show(
    invocation: Invocation, log: Log, text: str, values: dict[str, Any] | None, *, external_access: bool
) -> None:
    """Run a query and print its rows in the form that was asked for."""
    begun = time.monotonic()
    result = log.sql(text, values, external_access=external_access)
    with Rows(invocation, result.schema) as rows:
        for batch in result.batches():
            rows.write(batch if invocation.output in BINARY_FORMS else _with_numbers(batch))
    if invocation.out is not None:
        note(invocation, f"{count(rows.count, 'row')} in {invocation.out}")
    elif sys.stdout.isatty() and rows.is_table:
        note(invocation, f"({count(rows.count, 'row')}, {span(time.monotonic() - begun)})")


def _with_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Sums of whole numbers are 128 bits wide, which would be text in JSON: as numbers, where they fit."""
    import pyarrow as pa

    columns = batch.columns
    for place, column in enumerate(columns):
        if column.type == pa.decimal128(38, 0):
            with contextlib.suppress(pa.ArrowInvalid):
                columns[place] = column.cast(pa.int64())
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
