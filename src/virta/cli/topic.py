"""`virta topic`: list, create, show, alter, lock or remove topics; `erase` has a file of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from virta.cli.complete import complete_topics
from virta.cli.erase import confirm, erase
from virta.cli.invocation import Invocation, output_option, output_options, quiet_option
from virta.cli.output import note, print_record, print_records
from virta.cli.ranges import open_log
from virta.cli.text import count
from virta.cli.versions import print_changes, print_history, print_version
from virta.errors import UsageError
from virta.requests import format_duration, format_moment, format_size

if TYPE_CHECKING:
    import pyarrow as pa

    from virta.topics.topic import Topic

Function = TypeVar("Function", bound=Callable[..., Any])
LEVELS = ("memory", "os", "disk")
COMPRESSIONS = ("none", "lz4", "zstd")
_LIST_COLUMNS = ("topic", "rows", "bytes", "blocks", "segments", "start_offset", "next_offset", "durability")


@click.group(no_args_is_help=True)
def topic() -> None:
    """List, create, show, alter, lock or remove topics.

    \b
    Examples:
      virta topic ls
      virta topic create orders id:int user:str? amount:float
      virta topic show orders
    """


# -- looking ----------------------------------------------------------------------------------


@topic.command()
@click.option("-a", "--all", "internal", is_flag=True, help="Also those that Virta keeps for itself.")
@output_options("the names")
@click.pass_obj
def ls(invocation: Invocation, internal: bool) -> None:
    """List the topics and their sizes.

    \b
    Examples:
      virta topic ls
      virta topic ls -q
      virta topic ls -o json --columns topic,rows,bytes
    """
    with open_log(invocation) as log:
        records = [_summary(log.topic(name)) for name in log.topics(internal=internal)]
        print_records(
            invocation,
            records,
            key="topic",
            names=_LIST_COLUMNS,
            shown={"rows": count, "bytes": format_size, "blocks": count},
        )
        if not records:
            note(invocation, f"no topics in {log.path} yet; `virta topic create NAME` makes one")


def _summary(found: Topic) -> dict[str, Any]:
    stats, config = found.stats(), found.config
    return {
        "topic": found.name,
        "rows": stats.rows,
        "bytes": stats.bytes,
        "blocks": stats.blocks,
        "segments": stats.segments,
        "start_offset": stats.start_offset,
        "next_offset": stats.next_offset,
        "durability": str(config.durability),
        "kind": str(config.kind),
        "locked": config.locked,
    }


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option("--history", is_flag=True, help="All its versions: when, who, and what changed.")
@click.option("--version", type=int, metavar="N", help="One version: its columns and configuration.")
@click.option("--diff", metavar="N:M", help="What is different between two versions; `N:` up to the newest.")
@output_option("table", "json", "jsonl", "md")
@click.pass_obj
def show(invocation: Invocation, name: str, history: bool, version: int | None, diff: str | None) -> None:
    """Show a topic's columns, configuration, sizes and head, or its versions.

    A version comes with every change of columns or configuration; `virta read --at-version N`
    reads with the columns of an older one.

    \b
    Examples:
      virta topic show orders -o json > orders.json; virta topic create copy --schema orders.json
      virta topic show orders --history
      virta topic show orders --diff 1:
    """
    if sum((history, version is not None, diff is not None)) > 1:
        raise UsageError("--history, --version and --diff cannot go together")
    with open_log(invocation) as log:
        found = log.topic(name)
        if history:
            print_history(invocation, found)
        elif version is not None:
            print_version(invocation, found, version)
        elif diff is not None:
            print_changes(invocation, found, diff)
        else:
            print_record(invocation, _details(found), shown=_SHOWN)


def _details(found: Topic) -> dict[str, Any]:
    from virta.exchange.schema_text import texts_of  # Arrow is not for --help

    config = dataclasses.asdict(found.config)
    stats = found.stats()
    return {
        "topic": found.name,
        "id": found.id,
        "version": found.version,
        "schema": texts_of(found.schema),
        **{name: _plain(value) for name, value in config.items()},
        "rows": stats.rows,
        "bytes": stats.bytes,
        "blocks": stats.blocks,
        "segments": stats.segments,
        **_positions(found),
    }


def _positions(found: Topic) -> dict[str, Any]:
    """Where it stands; with several partitions, where each does."""
    if found.config.partitions == 1:
        return {
            "start_offset": found.start_offset,
            "next_offset": found.next_offset,
            "durable_offset": found.durable_offset,
            "newest": _newest(found),
            "head": found.head,
        }
    return {
        "start_offsets": {str(part.number): part.start_offset for part in found.partitions},
        "next_offsets": {str(number): offset for number, offset in found.next_offsets.items()},
        "newest": _newest(found),
        "heads": {str(number): head for number, head in found.heads.items()},
    }


def _newest(found: Topic) -> str | None:
    stamp = newest_us(found)
    return None if stamp is None else format_moment(stamp)


def newest_us(found: Topic) -> int | None:
    """When the newest row was appended."""
    import pyarrow as pa  # not for --help

    newest = found[:].newest(1).columns("_timestamp")
    stamps = [batch.column(0).cast(pa.int64())[0].as_py() for batch in newest.batches()]
    return max(stamps, default=None)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _columns(schema: Mapping[str, Any]) -> str:
    width = max(map(len, schema))
    return "\n".join(f"{name.ljust(width)}  {kind}" for name, kind in schema.items())


_SHOWN: dict[str, Callable[[Any], str]] = {
    "schema": _columns,
    "start_offsets": _columns,
    "next_offsets": _columns,
    "heads": _columns,
    "keys": lambda keys: ", ".join(keys) or "none",
    "rows": count,
    "blocks": count,
    "bytes": format_size,
    "segment_bytes": format_size,
    "row_limit_bytes": format_size,
    "retention_bytes": format_size,
    "retention_age_seconds": format_duration,
    "tombstone_age_seconds": format_duration,
}


# -- making and changing --------------------------------------------------------------------------


def config_options(function: Function) -> Function:
    """The options of a topic's configuration, as `create` and `alter` take them."""
    decorators = (
        click.option(
            "--durability",
            type=click.Choice(LEVELS),
            help="What an acknowledged row has survived: nothing yet, the process, a power loss.",
        ),
        click.option("--compression", type=click.Choice(COMPRESSIONS), help="How columns are stored."),
        click.option("--segment-bytes", metavar="SIZE", help="Size of a data file, such as 256MiB."),
        click.option("--retention-age", metavar="TIME", help="Let go of rows older than 7d; `none`: keep."),
        click.option("--retention-bytes", metavar="SIZE", help="Let go of the oldest beyond 10GiB; `none`."),
        click.option("--retention-rows", metavar="N", help="Let go of the oldest beyond N rows; `none`."),
        click.option("--row-limit-bytes", metavar="SIZE", help="Refuse larger rows."),
        click.option("--tombstone-age", metavar="TIME", help="Keep deletions of an update topic so long."),
        click.option(
            "--compaction-ratio",
            type=float,
            metavar="PART",
            help="Compact an update topic when this part of it is new, such as 0.25.",
        ),
        click.option(
            "--join-blocks/--keep-blocks",
            "join_blocks",
            default=None,
            help="Whether the steward may make many small blocks into large ones.",
        ),
        click.option(
            "--erasable/--not-erasable",
            "row_deletion",
            default=None,
            help="Whether `topic erase` may erase rows of it.",
        ),
        click.option(
            "--deletable/--not-deletable",
            "topic_deletion",
            default=None,
            help="Whether `topic rm` may delete it.",
        ),
        click.option(
            "--public-write/--no-public-write",
            "public_write",
            default=None,
            help="Whether anybody may append to it over the network.",
        ),
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as the library takes it."""
    options = {name: value for name, value in given.items() if value is not None}
    for name in ("retention_age", "retention_bytes", "retention_rows"):
        if options.get(name) == "none":
            options[name] = None
    rows = options.get("retention_rows")
    if rows is not None:
        if not rows.isdigit():
            raise UsageError(f'"{rows}" is not a number of rows', hint="write --retention-rows 1000000")
        options["retention_rows"] = int(rows)
    return options


@topic.command()
@click.argument("name", metavar="TOPIC")
@click.argument("columns", metavar="[COLUMN:TYPE]…", nargs=-1)
@click.option(
    "--schema",
    "schema_file",
    metavar="FILE.json",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Columns from a JSON file: {"id": "int", "user": "str?"}.',
)
@click.option(
    "--schema-from",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Columns of a Parquet or Arrow file.",
)
@click.option("--keys", metavar="A,B", help="The columns that identify a row.")
@click.option(
    "--kind",
    type=click.Choice(("append", "update")),
    default="append",
    help="append: every row stays; update: a table, where the newest row of a key counts.  [default: append]",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Split it into N; rows of one key stay together. Fixed for good.  [default: 1]",
)
@click.option("--headers", is_flag=True, help="Rows carry headers too (a topic without columns always does).")
@click.option("--if-missing", is_flag=True, help="Succeed when the topic is there with the same columns.")
@config_options
@click.option("--dry-run", is_flag=True, help="Say what would be made, and make nothing.")
@quiet_option("Say nothing.")
@click.pass_obj
def create(
    invocation: Invocation,
    /,
    name: str,
    columns: tuple[str, ...],
    schema_file: Path | None,
    schema_from: Path | None,
    keys: str | None,
    kind: str,
    partitions: int,
    headers: bool,
    if_missing: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Create a topic, and the log where there is none yet.

    Columns are name:type, a `?` allows null: id:int user:str? tags:str[] price:decimal(10,2)
    place:{lat:float,lon:float}. Types: int float str bool bytes datetime date time duration
    decimal uuid label, and Arrow's own names. No columns: rows of key, value and headers.

    \b
    Examples:
      virta topic create orders id:int user:str? amount:float --keys id
      virta topic create users region:str id:int email:str? --kind update --keys region,id
      virta topic create trades --schema-from trades.parquet --durability disk
    """
    schema, with_headers = _wanted_schema(columns, schema_file, schema_from)
    headers = headers or with_headers
    names = tuple(key.strip() for key in keys.split(",")) if keys else ()
    options = _options(given)
    if dry_run:
        _say_plan(invocation, name, schema, names, kind, partitions, headers, options)
        return
    with open_log(invocation, create=True) as log:
        found = log.create_topic(
            name,
            schema,
            keys=names,
            kind=kind,
            partitions=partitions,
            headers=headers,
            if_missing=if_missing,
            **options,
        )
        note(invocation, f'topic "{found.name}": {count(len(found.schema), "column")}, in {log.path}')


def _wanted_schema(
    columns: tuple[str, ...], schema_file: Path | None, schema_from: Path | None
) -> tuple[pa.Schema | None, bool]:
    """The columns that were asked for, and whether headers were with them."""
    from virta.exchange.schema_text import schema_of_data, schema_of_json, schema_of_words

    if sum(map(bool, (columns, schema_file, schema_from))) > 1:
        raise UsageError("columns are given once: as words, with --schema or with --schema-from")
    if schema_file:
        return schema_of_json(schema_file)
    if schema_from:
        return schema_of_data(schema_from), False
    return (schema_of_words(columns) if columns else None), False


def _say_plan(
    invocation: Invocation,
    name: str,
    schema: pa.Schema | None,
    keys: tuple[str, ...],
    kind: str,
    partitions: int,
    headers: bool,
    options: dict[str, Any],
) -> None:
    """What `create` would make, checked as it would be."""
    from virta.exchange.schema_text import texts_of
    from virta.metadata.schemas import build_schema
    from virta.storage.layout import check_topic_name
    from virta.topics.configuration import new_config

    check_topic_name(name)
    if schema is None and kind == "update" and not keys:
        keys = ("key",)
    config = new_config(kind=kind, keys=keys, partitions=partitions, options=options)
    built = build_schema(schema, headers=headers, keys=keys)
    if invocation.quiet:
        return
    settings = {key: _plain(value) for key, value in dataclasses.asdict(config).items()}
    print_record(invocation, {"topic": name, "schema": texts_of(built), **settings}, shown=_SHOWN)
    note(invocation, "nothing was made (--dry-run)")


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.argument("columns", metavar="[COLUMN:TYPE]…", nargs=-1)
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="Rename a column; repeatable.")
@config_options
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@quiet_option("Say nothing.")
@click.pass_obj
def alter(
    invocation: Invocation,
    /,
    name: str,
    columns: tuple[str, ...],
    renames: tuple[str, ...],
    dry_run: bool,
    **given: Any,
) -> None:
    """Change a topic's configuration, add columns, widen or rename them.

    A new column must allow null; a type may only grow, so that stored rows still fit.

    \b
    Examples:
      virta topic alter orders --retention-age 30d --durability disk
      virta topic alter orders coupon:str? --rename user=customer
      virta topic alter orders --retention-bytes none --dry-run
    """
    options = _options(given)
    if not options and not columns and not renames:
        raise UsageError("nothing to change was given", hint="virta topic alter --help")
    with open_log(invocation) as log:
        found = log.topic(name)
        renamed = _renamed(found, renames)
        schema = _changed_schema(found, columns, renamed) if columns or renamed else None
        changes = _changes(found, schema, options, renamed)
        for line in changes:
            note(invocation, line)
        if not changes:
            note(invocation, "nothing changes")
        elif dry_run:
            note(invocation, "nothing was changed (--dry-run)")
        else:
            found.alter(schema=schema, renames=renamed or None, **options)
            note(invocation, f'topic "{found.name}" is at version {found.version} now')


def _renamed(found: Topic, given: tuple[str, ...]) -> dict[str, str]:
    renames = {}
    for text in given:
        old, mark, new = text.partition("=")
        if not mark or not old or not new:
            raise UsageError(f'"{text}" does not say what is renamed', hint="--rename user=customer")
        if old not in found.schema.names:
            raise UsageError(
                f'topic "{found.name}" has no column "{old}"',
                hint=f"its columns are {', '.join(found.schema.names)}",
            )
        renames[old] = new
    return renames


def _changed_schema(found: Topic, columns: tuple[str, ...], renamed: Mapping[str, str]) -> pa.Schema:
    """The topic's own columns, with these renamed, changed or added."""
    import pyarrow as pa

    from virta.exchange.schema_text import schema_of_words
    from virta.metadata.schemas import HEADERS

    own = [field.with_name(renamed.get(field.name, field.name)) for field in found.schema]
    fields = {field.name: field for field in own if field.name != HEADERS}
    for wanted in schema_of_words(columns):
        known = fields.get(wanted.name)
        fields[wanted.name] = wanted if known is None else wanted.with_metadata(known.metadata)
    return pa.schema(list(fields.values()))


def _changes(
    found: Topic, schema: pa.Schema | None, options: dict[str, Any], renamed: Mapping[str, str]
) -> list[str]:
    """One line per change; raises what `alter` would raise."""
    from virta.exchange.schema_text import texts_of
    from virta.metadata.schemas import build_schema, evolve
    from virta.topics.configuration import changed_config

    before = dataclasses.asdict(found.config)
    after = dataclasses.asdict(changed_config(found.config, options))
    if schema is not None:
        headers = "_headers" in found.schema.names
        keys = tuple(renamed.get(key, key) for key in found.config.keys)
        evolve(found.schema, build_schema(schema, headers=headers, keys=keys), renames=renamed)
        before["column"], after["column"] = None, None
        old = {renamed.get(name, name): kind for name, kind in texts_of(found.schema).items()}
        before |= {f"column {name}": kind for name, kind in old.items()}
        after |= {f"column {name}": before.get(f"column {name}") for name in old}
        after |= {f"column {name}": kind for name, kind in texts_of(schema).items()}
    return [
        *(f"column {one}: {one} → {two}" for one, two in renamed.items() if one != two),
        *(
            f"{name}: {_said(before.get(name))} → {_said(value)}"
            for name, value in after.items()
            if before.get(name) != value
        ),
    ]


def _said(value: Any) -> str:
    return "none" if value is None else str(value)


# -- ending ---------------------------------------------------------------------------------------


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@quiet_option("Say nothing.")
@click.pass_obj
def rm(invocation: Invocation, name: str, yes: bool, dry_run: bool) -> None:
    """Remove a topic with all its rows; asks for its name first.

    \b
    Examples:
      virta topic rm orders
      virta topic rm orders --dry-run
      virta topic rm orders --yes
    """
    with open_log(invocation) as log:
        found = log.topic(name)
        stats = found.stats()
        what = f'topic "{name}": {count(stats.rows, "row")}, {format_size(stats.bytes)}'
        if dry_run:
            note(invocation, f"would remove {what}; nothing was removed (--dry-run)")
            return
        confirm(name, f"This removes {what}, for good.", yes)
        log.drop_topic(name)
        note(invocation, f"removed {what}")


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be locked, and lock nothing.")
@quiet_option("Say nothing.")
@click.pass_obj
def lock(invocation: Invocation, name: str, yes: bool, dry_run: bool) -> None:
    """Lock a topic: it takes no more rows, for good; asks for its name first.

    \b
    Examples:
      virta topic lock orders-2025
      virta topic lock orders-2025 --dry-run
      virta topic lock orders-2025 --yes
    """
    with open_log(invocation) as log:
        found = log.topic(name)
        if found.config.locked:
            note(invocation, f'topic "{name}" is locked already')
            return
        what = f'topic "{name}" at {count(found.stats().rows, "row")}'
        if dry_run:
            note(invocation, f"would lock {what}; nothing was locked (--dry-run)")
            return
        confirm(name, f"This locks {what}: no row can follow, ever.", yes)
        found.lock()
        note(invocation, f"locked {what}, head {', '.join(found.heads.values())}")


topic.add_command(erase)
