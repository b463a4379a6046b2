"""`virta demo`: everything in one go, and then, on a terminal, live until Ctrl-C."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

import virta
from virta.cli.demo import feeds
from virta.cli.demo.children import Children
from virta.cli.demo.copies import Copies
from virta.cli.demo.first_look import FirstLook
from virta.cli.demo.places import Places
from virta.cli.demo.serving import Serving, lag_of
from virta.cli.demo.stage import Stage
from virta.cli.report import Exit
from virta.cli.text import count

if TYPE_CHECKING:
    from virta.log import Log

_LOOK_SECONDS = 3.0
_STATUS_SECONDS = 1.0


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    metavar="N",
    help="Write for so long, then end instead of staying live.",
)
@click.option(
    "--engine",
    type=click.Choice(("spark", "local")),
    default="spark",
    show_default=True,
    help="What runs the pipeline of the last step; local needs no Java.",
)
@click.option("--open", "opening", is_flag=True, help="Open the console in the browser.")
@click.pass_context
def demo(
    context: click.Context, directory: Path | None, seconds: float | None, engine: str, opening: bool
) -> None:
    """See it work: a log with live topics, a broker, the console, and a masked copy.

    Makes everything in a temporary directory, or in the one given. On a terminal it goes on
    until Ctrl-C, with addresses to open; with --seconds, or without a terminal, it writes,
    reads, queries, verifies, says what it found, and ends.

    \b
    Examples:
      virta demo
      virta demo --seconds 10
      virta demo ./demo-events --engine local
    """
    stays = seconds is None and sys.stdout.isatty()
    places, stage = Places.chosen(directory), Stage(context.obj)
    with Children(places.environment(), places.root / "logs") as children:
        _play(stage, places, children, seconds or _LOOK_SECONDS, engine, stays, opening)
    if not stays:
        _summary(stage, places)
    if stage.failures:
        context.exit(Exit.FAILED)


def _play(
    stage: Stage,
    places: Places,
    children: Children,
    seconds: float,
    engine: str,
    stays: bool,
    opening: bool,
) -> None:
    with virta.open(places.events) as log:
        stage.step("A log is a directory", str(places.events))
        feeds.make_topics(log)
        FirstLook(stage, children).play(log, seconds)
        serving = Serving(stage, children, places)
        serving.play(log)
        if stays:
            _tell_addresses(stage, places, serving)
            if opening and serving.console:
                click.launch(serving.console)
        Copies(stage, places).play(engine=engine)
        if stays:
            _stay(stage, log)


def _tell_addresses(stage: Stage, places: Places, serving: Serving) -> None:
    """What can be opened and typed while the rest goes on."""
    layout = stage.layout
    stage.step("It is live; look at it")
    if serving.console:
        stage.fact("console", layout.bold(serving.console))
        stage.fact("life", layout.bold(f"{serving.console}life?topic=life"))
    stage.fact("broker", serving.broker or "none")
    print(f"\n    In another terminal{_activation()}:\n")
    print(f"    export VIRTA_LOG={shlex.quote(serving.broker or str(places.events))}")
    for line in _commands():
        print(f"    {line}")


def _commands() -> list[str]:
    return [
        "virta tail orders --since -10s --where 'amount > 100'",
        "virta sql 'select country, count(*) from orders group by 1 order by 2 desc'",
        f"virta group show {feeds.GROUP} orders",
    ]


def _activation() -> str:
    """How `virta` comes to be found, where it is not on the PATH."""
    here = Path(sys.executable).parent
    return "" if shutil.which("virta") else f" (export PATH={shlex.quote(str(here))}:$PATH)"


def _stay(stage: Stage, log: Log) -> None:
    """One line that says what comes in, until Ctrl-C."""
    names = ("orders", "sensors", "life")
    verdict = (
        stage.layout.bad("Something went wrong.") if stage.failures else stage.layout.good("All of it works.")
    )
    print(f"\n{verdict} Ctrl-C ends the demo.\n")
    before = {name: log.topic(name).next_offset for name in names}
    try:
        while True:
            time.sleep(_STATUS_SECONDS)
            now = {name: log.topic(name).next_offset for name in names}
            parts = [f"{name} {count(now[name])} (+{count(now[name] - before[name])}/s)" for name in names]
            line = " · ".join([*parts, f"{feeds.GROUP} {count(lag_of(log))} behind"])
            print(f"\r\x1b[2K    {line}", end="", flush=True)
            before = now
    except KeyboardInterrupt:
        print("\n")


def _summary(stage: Stage, places: Places) -> None:
    if stage.failures:
        print(f"\n{stage.layout.bad('Something went wrong:')} {'; '.join(stage.failures)}")
    else:
        print(f"\n{stage.layout.good('All of it worked')}: {count(stage.checks, 'check')}.", end=" ")
    where = shlex.quote(str(places.events))
    print(f"The log is yours to try{_activation()}:\n")
    print(f"    export VIRTA_LOG={where}")
    print("    virta tail orders@-5: --stop-when-idle 1s")
    print("    virta console --open")
    print("    virta verify\n")
    print(stage.layout.dim(f"It goes with: rm -r {shlex.quote(str(places.root))}"))
