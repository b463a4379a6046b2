"""`virta table` and `virta get`: what is true now in an update topic, or was at a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from virta import requests
from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, output_options
from virta.cli.keys import typed_keys
from virta.cli.output import Rows
from virta.cli.ranges import find, holder, open_log
from virta.cli.read import print_rows
from virta.errors import NotFound, UsageError

if TYPE_CHECKING:
    from virta.log import Log
    from virta.topics.topic import Topic


def topic_at(log: Log, text: str) -> tuple[Topic, Any]:
    """`TOPIC@MOMENT`: the topic, and an offset, a token or a time; None is now."""
    topic, request = find(log, text)
    bound = request.start
    if not request.is_point:
        if request.start is not None:
            raise UsageError(
                f'"{text}" is a range; a table is of one moment', hint=f"{topic.name}@-1h, {topic.name}@100"
            )
        bound = request.end
    return topic, moment_of(topic, bound)


def moment_of(topic: Topic, bound: requests.Bound | None) -> Any:
    """What `as_of` and `changes` take for a place as it was typed."""
    match bound:
        case requests.Offset(offset=offset):
            return offset
        case requests.FromEnd(rows=rows):
            return -rows
        case requests.Moment(us=moment):
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)
        case requests.HashBound(hex=digits):
            return holder(topic, digits).find(digits).last_offset + 1
        case requests.TokenBound(token=token):
            return token
        case _:
            return None


@click.command()
@click.argument("rows", metavar="TOPIC[@MOMENT]", shell_complete=complete_topics)
@click.option(
    "--where", metavar="EXPRESSION", multiple=True, help="Only rows for which it is true, as in SQL."
)
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most so many rows.")
@click.option("--count", "counting", is_flag=True, help="Print how many rows there are.")
@output_options("the offsets")
@click.pass_obj
def table(
    invocation: Invocation, rows: str, where: tuple[str, ...], limit: int | None, counting: bool
) -> None:
    """Print an update topic as a table: the newest row of each key, deleted ones left out.

    It is the table of this moment; @100 is that before offset 100, @-15m or
    @2026-11-18T10:00Z that of a time. `virta read` prints every row there is.

    \b
    Examples:
      virta table users
      virta table users@-1h --where "region = 'eu'" -o csv
      virta table users --count
    """
    with open_log(invocation) as log:
        topic, as_of = topic_at(log, rows)
        found = topic.table(as_of=as_of)
        for expression in where:
            found = found.where(expression)
        if limit is not None:
            found = found.limit(limit)
        print_rows(invocation, found, counting=counting)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("keys", metavar="KEY…", nargs=-1, required=True)
@output_option("table", "json", "jsonl", "csv", "tsv", "md", text="table, json, jsonl, csv, tsv or md.")
@click.pass_obj
def get(invocation: Invocation, topic: str, keys: tuple[str, ...]) -> None:
    """Print the row of a key as it is now; exit 3 where there is none.

    A key is COLUMN=VALUE[,…], the value alone where the key is one column, or a JSON object.

    \b
    Examples:
      virta get accounts 17
      virta get users region=eu,id=7 -o json
      virta get users '{"region": "eu, west", "id": 7}'
    """
    import pyarrow as pa  # not for --help

    with open_log(invocation) as log:
        found = log.topic(topic)
        schema = pa.schema([*_leading(), *found.schema])
        missing = []
        with Rows(invocation, schema) as printed:
            for text, key in zip(keys, typed_keys(found, keys), strict=True):
                row = found.get(key)
                if row is None:
                    missing.append(text)
                    continue
                values = {"_offset": row.offset, "_timestamp": row.timestamp, **row.to_dict()}
                printed.write(pa.RecordBatch.from_pylist([values], schema=schema))
        if missing:
            raise NotFound(f'topic "{topic}" has no row with the key {" or ".join(missing)}')


def _leading() -> list[Any]:
    import pyarrow as pa

    return [pa.field("_offset", pa.int64()), pa.field("_timestamp", pa.timestamp("us", tz="UTC"))]
