"""`virta pipeline verify|compact|erase`: the heavy work over a whole topic, on Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from virta.cli.complete import complete_topics
from virta.cli.erase import chosen_rows, confirm, erase_options
from virta.cli.invocation import Invocation, output_option, output_options, quiet_option
from virta.cli.output import note
from virta.cli.progress import Progress
from virta.cli.ranges import open_log
from virta.cli.report import Exit
from virta.cli.steward import print_report
from virta.cli.text import count
from virta.cli.verify import print_reports
from virta.errors import UsageError

if TYPE_CHECKING:
    from virta.pipelines.upkeep import Upkeep

Function = TypeVar("Function", bound=Callable[..., Any])


def _topic(function: Function) -> Function:
    for option in (
        click.argument("topic", metavar="TOPIC", shell_complete=complete_topics),
        click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]"),
        click.option(
            "--conf", metavar="NAME=VALUE", multiple=True, help="A setting of Spark's; may be repeated."
        ),
    ):
        function = option(function)
    return function


@contextmanager
def _upkeep(invocation: Invocation, master: str | None, conf: tuple[str, ...]) -> Iterator[Upkeep]:
    settings = {}
    for each in conf:
        name, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--conf is NAME=VALUE, not {each!r}", hint="--conf spark.executor.memory=4g")
        settings[name] = value
    from virta.pipelines.upkeep import Upkeep  # Spark is an extra, and slow to import

    with open_log(invocation) as log, Upkeep(log, master=master, conf=settings) as upkeep:
        yield upkeep


@click.command()
@_topic
@click.option("--against", metavar="HEAD", multiple=True, help="A head noted earlier must be in the history.")
@output_option("table", "json", "jsonl")
@quiet_option("Say nothing; only the exit code tells.")
@click.pass_context
def verify(
    context: click.Context, topic: str, master: str | None, conf: tuple[str, ...], against: tuple[str, ...]
) -> None:
    """Check every byte of a topic, its segments at once on Spark's workers; exit 5 on damage.

    The report is `virta verify`'s. Workers read the log's own directory, at the same path.

    \b
    Examples:
      virta pipeline verify orders
      virta pipeline verify orders --master spark://head:7077
      virta pipeline verify orders --against 3f9c1a2b…
    """
    invocation: Invocation = context.obj
    with _upkeep(invocation, master, conf) as upkeep, Progress(invocation, f"verifying {topic}") as progress:
        seen = 0

        def advance(step: Any) -> None:
            nonlocal seen
            progress.advance(bytes=step.bytes - seen)
            seen = step.bytes

        heads: Any = {0: list(against)} if len(against) > 1 else next(iter(against), None)
        report = upkeep.verify(topic, against=heads, progress=advance)
    print_reports(invocation, {topic: report})
    if not report.ok:
        context.exit(Exit.DAMAGED)


@click.command()
@_topic
@click.option("--force", is_flag=True, help="Also where it does not pay yet.")
@output_options("the topics")
@click.pass_obj
def compact(
    invocation: Invocation, topic: str, master: str | None, conf: tuple[str, ...], force: bool
) -> None:
    """Compact an update topic and join small blocks, as the steward would, on Spark's workers.

    Rows of one key meet by a shuffle; segments are written anew by tasks and put in force here,
    with the steward's receipts. Others append and read meanwhile.

    \b
    Examples:
      virta pipeline compact users
      virta pipeline compact users --force --master spark://head:7077
      virta pipeline compact users --conf spark.driver.memory=8g
    """
    with _upkeep(invocation, master, conf) as upkeep, Progress(invocation, f"compacting {topic}") as progress:
        report = upkeep.compact(topic, force=force, progress=lambda size: progress.advance(bytes=size))
    print_report(invocation, report)


@click.command()
@_topic
@erase_options
@click.pass_obj
def erase(
    invocation: Invocation,
    topic: str,
    master: str | None,
    conf: tuple[str, ...],
    where: str | None,
    keys: tuple[str, ...],
    yes: bool,
    dry_run: bool,
) -> None:
    """Erase rows for good, as `virta topic erase` does, on Spark's workers.

    \b
    Examples:
      virta pipeline erase orders --where "user = 'ada'" --dry-run
      virta pipeline erase orders --where "user = 'ada'" --master spark://head:7077
      virta pipeline erase users --key region=eu,id=7 --yes
    """
    with _upkeep(invocation, master, conf) as upkeep:
        with open_log(invocation) as log:
            chosen = chosen_rows(log.topic(topic), where, keys)
        if dry_run or not yes:
            would = upkeep.erase(topic, **chosen, dry_run=True)
            what = f'{count(would.rows, "row")} of topic "{topic}"'
            if dry_run:
                note(invocation, f"would erase {what}; nothing was erased (--dry-run)")
                return
            confirm(topic, f"This erases {what} from every file, for good.", yes)
        with Progress(invocation, f"erasing from {topic}") as progress:
            done = upkeep.erase(topic, **chosen, progress=lambda size: progress.advance(bytes=size))
        note(invocation, f'erased {count(done.rows, "row")} of topic "{topic}"')
