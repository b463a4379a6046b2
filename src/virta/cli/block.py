"""`virta block`: the units everything is made of, by their headers; one of them whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, output_options
from virta.cli.output import note, print_record, print_records, target
from virta.cli.ranges import find, holder, open_log, partition_option, the_partition
from virta.cli.text import count
from virta.errors import UsageError
from virta.requests import (
    End,
    FromEnd,
    HashBound,
    Moment,
    Offset,
    RangeRequest,
    TokenBound,
    format_moment,
    format_size,
)

if TYPE_CHECKING:
    from virta.storage.chain import Header
    from virta.topics.block import Block
    from virta.topics.partition import Partition
    from virta.topics.topic import Topic

_LIST_COLUMNS = ("offset", "rows", "bytes", "newest", "kind", "hash")


@click.group(no_args_is_help=True)
def block() -> None:
    """List blocks, show one, or export its bytes.

    \b
    Examples:
      virta block ls orders@-100:
      virta block show orders@42
      virta block export orders@42 --out block.arrows
    """


@block.command()
@click.argument("rows", metavar="TOPIC[@FROM:TO]", shell_complete=complete_topics)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the newest N.")
@partition_option
@output_options("the hashes")
@click.pass_obj
def ls(invocation: Invocation, rows: str, limit: int | None, partition: int | None) -> None:
    """List the blocks of a range, from their headers alone.

    \b
    Examples:
      virta block ls orders --limit 20
      virta block ls orders@1000:2000
      virta block ls orders -o json --columns offset,hash
    """
    with open_log(invocation) as log:
        topic, request = find(log, rows)
        found = the_partition(topic, partition)
        headers = list(_headers(found, *_offsets(found, request)))[-(limit or 0) :]
        print_records(
            invocation,
            [_summary(header) for header in headers],
            key="hash",
            names=_LIST_COLUMNS,
            shown={"bytes": format_size, "rows": count, "hash": _short_on_terminal},
        )


def _short_on_terminal(hash: str) -> str:
    return hash[:16] if sys.stdout.isatty() else hash


def _headers(partition: Partition, start: int, end: int) -> Iterator[Header]:
    """Headers of the blocks that hold rows from `start` up to `end`, control blocks among them."""
    from virta.storage.chain import HEADER_SIZE, unpack_headers

    with partition.stored.view() as view:
        for index in range(len(view.manifest.segments)):
            segment, blocks = view.segment(index), view.blocks_in(index)
            if not segment.entry.is_active and segment.entry.end < start:
                continue
            for header in unpack_headers(segment.read_chain(0, blocks * HEADER_SIZE)):
                if header.base_offset >= end and header.span:
                    return
                if header.end_offset > start or (not header.span and start <= header.base_offset <= end):
                    yield header


def _offsets(partition: Partition, request: RangeRequest) -> tuple[int, int]:
    """The range in offsets."""
    oldest, newest = partition.start_offset, partition.next_offset
    if request.is_point:
        at = _offset(partition, request.start, newest)
        return at, at + 1
    return _offset(partition, request.start, oldest), _offset(partition, request.end, newest, is_end=True)


def _offset(partition: Partition, bound: Any, otherwise: int, *, is_end: bool = False) -> int:
    match bound:
        case Offset(offset=offset):
            return offset
        case FromEnd(rows=rows):
            return max(partition.start_offset, partition.next_offset - rows)
        case Moment(us=moment):
            return partition.stored.first_offset_at(moment)
        case TokenBound(token=token):
            return token.offset
        case HashBound(hex=digits):
            found = partition.find(digits)
            return found.last_offset + 1 if is_end else found.base_offset
        case End():
            return partition.next_offset
    return otherwise


def _summary(header: Header) -> dict[str, Any]:
    has_producer = header.producer and not header.is_rewritten  # a rewritten one has its check there
    return {
        "offset": header.base_offset,
        "rows": header.rows,
        "bytes": header.length,
        "oldest": format_moment(header.min_timestamp),
        "newest": format_moment(header.max_timestamp),
        "kind": "control" if header.is_control else "rewritten" if header.is_rewritten else "rows",
        "schema_version": header.schema_version,
        "epoch": header.epoch,
        "position": header.position,
        "producer": f"{header.producer:016x}" if has_producer else None,
        "sequence": header.sequence if has_producer else None,
        "digest": header.digest.hex(),
        "hash": header.hash.hex(),
    }


# -- one block ------------------------------------------------------------------------------------


@block.command()
@click.argument("place", metavar="TOPIC@OFFSET|#HASH", shell_complete=complete_topics)
@click.option(
    "--verify", "verifying", is_flag=True, help="Hash its bytes again, and follow the link before it."
)
@partition_option
@output_option("table", "json", "jsonl", "md")
@click.pass_obj
def show(invocation: Invocation, place: str, verifying: bool, partition: int | None) -> None:
    """Show one block: every field of its header, and its event if it is a control block.

    \b
    Examples:
      virta block show orders@42
      virta block show 'orders@#3f9c1a2b'
      virta block show orders@42 --verify -o json
    """
    with open_log(invocation) as log:
        found, _ = _find_one(log, place, partition)
        if verifying:
            found.verify()
        record = {
            "topic": found.topic,
            "partition": found.partition,
            **_summary(found.header),
            "previous_hash": found.previous_hash,
        }
        if found.is_control:
            record["event"] = found.event
        if found.header.is_rewritten:
            record["stands_for_blocks"] = len(found._stored.trail())
        if verifying:
            record["verified"] = True
        print_record(invocation, record, shown={"rows": count, "bytes": format_size})


def _find_one(log: Any, place: str, number: int | None) -> tuple[Block, Topic]:
    topic, request = find(log, place)
    if not request.is_point or request.start is None:
        raise UsageError(
            f'"{place}" names no single block',
            hint=f"virta block ls {place}; then TOPIC@OFFSET or TOPIC@#HASH",
        )
    if isinstance(request.start, HashBound) and number is None:
        return holder(topic, request.start.hex).find(request.start.hex), topic
    partition = the_partition(topic, number)
    if isinstance(request.start, HashBound):
        return partition.find(request.start.hex), topic
    return partition.fetch(partition.token(_offset(partition, request.start, 0))), topic


@block.command()
@click.argument("place", metavar="TOPIC@OFFSET|#HASH", shell_complete=complete_topics)
@click.option(
    "--out", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file."
)
@click.option("--raw", is_flag=True, help="Only the bytes that were hashed, without the schema before them.")
@partition_option
@click.pass_obj
def export(invocation: Invocation, place: str, out: Path | None, raw: bool, partition: int | None) -> None:
    """Write one block to a file, as an Arrow stream that anything can read.

    \b
    Examples:
      virta block export orders@42 --out block.arrows
      virta block export 'orders@#3f9c1a2b' > block.arrows
      virta block export orders@42 --raw --out block.bin
    """
    if out is None and sys.stdout.isatty():
        raise UsageError("a block is not for a terminal", hint="write it to a file: --out block.arrows")
    with open_log(invocation) as log:
        found, _ = _find_one(log, place, partition)
        with target(out) as file:
            if not raw:
                from virta.storage.block import schema_message

                file.write(schema_message(found._stored.schema))
            file.write(found.bytes)
            if not raw:
                file.write(b"\xff\xff\xff\xff\x00\x00\x00\x00")  # the end of an Arrow stream
        if out is not None:
            note(invocation, f"block {found.hash[:16]}: {count(found.rows, 'row')} in {out}")
