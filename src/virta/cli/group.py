"""`virta group`: consumer groups: where they stand, who reads, and putting them somewhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from virta.cli.complete import complete_topics
from virta.cli.invocation import Invocation, output_option, output_options, quiet_option
from virta.cli.output import choose_form, note, print_record, print_records
from virta.cli.ranges import open_log
from virta.cli.text import count
from virta.errors import NotFound, UsageError
from virta.requests import format_duration

if TYPE_CHECKING:
    from virta.topics.groups.letters import DeadLetter
    from virta.topics.groups.model import GroupDescription, ResetPlan

_LIST_COLUMNS = ("group", "topic", "members", "lag_rows", "lag_seconds")
_PART_COLUMNS = ("partition", "offset", "next_offset", "lag_rows", "lag_seconds", "member")


def _seconds(value: float) -> str:
    return format_duration(round(value, 1))


_SHOWN: dict[str, Callable[[Any], str]] = {"lag_rows": count, "lag_seconds": _seconds}


@click.group(no_args_is_help=True)
def group() -> None:
    """List consumer groups, show one, put it somewhere else, or forget it; their dead letters.

    \b
    Examples:
      virta group ls
      virta group show billing orders
      virta group dead billing orders
    """


@group.command()
@output_options("the groups")
@click.pass_obj
def ls(invocation: Invocation) -> None:
    """List the consumer groups of all topics, and how far each is behind.

    \b
    Examples:
      virta group ls
      virta group ls -q
      virta group ls -o json --columns group,topic,lag_rows
    """
    with open_log(invocation) as log:
        records = [_summary(found) for found in log.groups()]
        print_records(invocation, records, key="group", names=_LIST_COLUMNS, shown=_SHOWN)
        if not records:
            note(invocation, 'no groups yet; a reader makes one: topic.reader(group="billing")')


def _summary(found: GroupDescription) -> dict[str, Any]:
    return {
        "group": found.group,
        "topic": found.topic,
        "members": len(found.members),
        "lag_rows": found.lag.rows,
        "lag_seconds": round(found.lag.seconds, 3),
        "epoch": found.epoch,
    }


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", shell_complete=complete_topics)
@output_option("table", "json", "jsonl", "md")
@click.pass_obj
def show(invocation: Invocation, name: str, topic: str) -> None:
    """Show where a group stands in each partition, how far it is behind, and who reads.

    \b
    Examples:
      virta group show billing orders
      virta group show billing orders -o json
      virta -l @prod group show billing orders
    """
    with open_log(invocation) as log:
        found = log.topic(topic).group(name).describe()
        parts = [
            {
                "partition": part.partition,
                "offset": part.offset,
                "next_offset": part.next_offset,
                "lag_rows": part.lag.rows,
                "lag_seconds": round(part.lag.seconds, 3),
                "member": part.owner,
            }
            for part in found.partitions
        ]
        if invocation.wants_json:
            tokens = {str(part.partition): str(part.token) for part in found.partitions if part.token}
            print_record(invocation, {**_summary(found), "partitions": parts, "tokens": tokens})
            return
        print_records(invocation, parts, key="partition", names=_PART_COLUMNS, shown=_SHOWN)
        for member in found.members:
            ends = _seconds(member.expires_in_seconds)
            note(invocation, f"{member.member}: partitions {list(member.partitions)}, session ends in {ends}")


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="WHERE",
    help="oldest, newest, a moment (-1h, 2026-11-18T10:00Z), or an offset.",
)
@click.option("-p", "--partition", type=click.IntRange(0), metavar="N", help="Only this partition.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--dry-run", is_flag=True, help="Say what would be read again or passed over, and change nothing."
)
@output_option("table", "json", "jsonl", "md")
@quiet_option("Say nothing.")
@click.pass_obj
def reset(
    invocation: Invocation,
    name: str,
    topic: str,
    target: str,
    partition: int | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Put a group somewhere else; tells first which rows come again, and asks.

    Its readers have to be stopped: a group that is being read is left alone (exit 7).

    \b
    Examples:
      virta group reset billing orders --to -1h --dry-run
      virta group reset billing orders --to oldest --yes
      virta group reset billing orders --to 5000 --partition 2
    """
    with open_log(invocation) as log:
        found = log.topic(topic)
        place = _place(target, partition, found.config.partitions)
        chosen = found.group(name)
        if partition is not None and not isinstance(place, dict):
            plans = [plan for plan in chosen.plan_reset(place) if plan.partition == partition]
        else:
            plans = chosen.plan_reset(place)
        records = [_planned(plan) for plan in plans]
        print_records(
            invocation, records, key="partition", names=tuple(records[0]) if records else ("partition",)
        )
        again, skipped = sum(plan.again for plan in plans), sum(plan.skipped for plan in plans)
        what = f"{count(again, 'row')} read again, {count(skipped, 'row')} passed over"
        if dry_run:
            note(invocation, f"would have {what}; nothing was changed (--dry-run)")
            return
        if not yes:
            _confirm(name, f'This puts group "{name}" on "{topic}" elsewhere: {what}.')
        chosen.reset({plan.partition: plan.token for plan in plans})
        note(invocation, f'group "{name}" on "{topic}" was put elsewhere: {what}')


def _place(target: str, partition: int | None, partitions: int) -> Any:
    """An offset, for the partition it is of; else the text as the library takes it."""
    if not target.isdigit():
        return target
    if partition is None and partitions != 1:
        raise UsageError(
            f"an offset is a matter of one partition, and the topic has {partitions}",
            hint="name one: --partition N; or give a moment, oldest or newest",
        )
    return {partition or 0: int(target)}


def _planned(plan: ResetPlan) -> dict[str, Any]:
    return {
        "partition": plan.partition,
        "before": plan.before,
        "after": plan.after,
        "again": plan.again,
        "skipped": plan.skipped,
    }


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be forgotten, and forget nothing.")
@quiet_option("Say nothing.")
@click.pass_obj
def rm(invocation: Invocation, name: str, topic: str, yes: bool, dry_run: bool) -> None:
    """Forget a group: a reader of its name begins anew. Its readers have to be stopped.

    \b
    Examples:
      virta group rm billing orders
      virta group rm billing orders --dry-run
      virta group rm billing orders --yes
    """
    with open_log(invocation) as log:
        chosen = log.topic(topic).group(name)
        found = chosen.describe()
        what = f'group "{name}" on "{topic}": {count(len(found.partitions), "position")}'
        if dry_run:
            note(invocation, f"would forget {what}; nothing was changed (--dry-run)")
            return
        if not yes:
            _confirm(name, f"This forgets {what}.")
        chosen.remove()
        note(invocation, f"forgot {what}")


# -- dead letters ---------------------------------------------------------------------------------


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--at", metavar="N@OFFSET", help="Only this one, whole: with its traceback.")
@output_options("the places of the rows")
@click.pass_obj
def dead(invocation: Invocation, name: str, topic: str, at: str | None) -> None:
    """List rows that failed too often in a group, and why.

    They are rows of the topic TOPIC.dead as well, for SQL and export.

    \b
    Examples:
      virta group dead billing orders
      virta group dead billing orders --at 0@4711
      virta group dead billing orders -o json
    """
    with open_log(invocation) as log:
        letters = log.topic(topic).group(name).dead_letters().all()
        if at is not None:
            (letter,) = _letters_at(letters, [at])
            whole = _whole_letter(letter)
            if choose_form(invocation) != "table":
                print_record(invocation, {**whole, "traceback": letter.traceback})
            else:
                print_record(invocation, whole)
                print(letter.traceback.rstrip())
            return
        records = [_letter(each) for each in letters]
        print_records(invocation, records, key="place", names=_LETTER_COLUMNS)
        if not records:
            note(invocation, f'no dead letters of group "{name}" on "{topic}"')


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--at", multiple=True, metavar="N@OFFSET", help="Only this one; can be given several times.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@quiet_option("Say nothing.")
@click.pass_obj
def resend(
    invocation: Invocation, name: str, topic: str, at: tuple[str, ...], yes: bool, dry_run: bool
) -> None:
    """Append dead letters to their topic again, and take them off the list.

    They are new rows, for every group on the topic. What was interrupted can be said again:
    no row is sent twice.

    \b
    Examples:
      virta group resend billing orders --dry-run
      virta group resend billing orders --yes
      virta group resend billing orders --at 0@4711 --at 2@17
    """
    _clear(invocation, name, topic, at, yes=yes, dry_run=dry_run, again=True)


@group.command()
@click.argument("name", metavar="GROUP")
@click.argument("topic", shell_complete=complete_topics)
@click.option("--at", multiple=True, metavar="N@OFFSET", help="Only this one; can be given several times.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what would be thrown away, and keep it.")
@quiet_option("Say nothing.")
@click.pass_obj
def discard(
    invocation: Invocation, name: str, topic: str, at: tuple[str, ...], yes: bool, dry_run: bool
) -> None:
    """Take dead letters off the list without sending them again. Their rows stay in the topic.

    \b
    Examples:
      virta group discard billing orders --at 0@4711
      virta group discard billing orders --dry-run
      virta group discard billing orders --yes
    """
    _clear(invocation, name, topic, at, yes=yes, dry_run=dry_run, again=False)


def _clear(
    invocation: Invocation,
    name: str,
    topic: str,
    at: tuple[str, ...],
    *,
    yes: bool,
    dry_run: bool,
    again: bool,
) -> None:
    with open_log(invocation) as log:
        box = log.topic(topic).group(name).dead_letters()
        letters = box.all()
        chosen = _letters_at(letters, at) if at else letters
        what = f'{count(len(chosen), "dead letter")} of group "{name}" on "{topic}"'
        did = ("send", "again, to every group", "sent") if again else ("discard", "for good", "discarded")
        if dry_run:
            note(invocation, f"would {did[0]} {what} {did[1]}; nothing was changed (--dry-run)")
            return
        if not chosen:
            note(invocation, f'no dead letters of group "{name}" on "{topic}"')
            return
        if not yes:
            _confirm(name, f"This {did[0]}s {what} {did[1]}.")
        done = box.resend(chosen) if again else box.discard(chosen)
        note(invocation, f'{did[2]} {count(done, "dead letter")} of group "{name}" on "{topic}"')


_LETTER_COLUMNS = ("place", "attempts", "error_type", "error", "row", "failed_at")


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": letter.place,
        "failed_at": letter.failed_at.isoformat(timespec="milliseconds"),
        "attempts": letter.attempts,
        "error_type": letter.error_type,
        "error": letter.error,
        "row": letter.row,
        "member": letter.member,
    }


def _whole_letter(letter: DeadLetter) -> dict[str, Any]:
    appended = None if letter.appended_at is None else letter.appended_at.isoformat()
    return {**_letter(letter), "appended_at": appended}


def _letters_at(letters: Sequence[DeadLetter], places: Sequence[str]) -> list[DeadLetter]:
    known = {letter.place: letter for letter in letters}
    for place in places:
        if place not in known:
            raise NotFound(
                f"there is no dead letter at {place!r}",
                hint="virta group dead GROUP TOPIC lists their places",
            )
    return [known[place] for place in places]


def _confirm(name: str, warning: str) -> None:
    """Have the name typed; a script says --yes."""
    print(warning, file=sys.stderr)
    print("Type the group's name to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().rstrip("\r\n") != name:
        raise UsageError("the name was not typed; nothing was done", hint="type it, or say --yes")
