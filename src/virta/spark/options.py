"""What `.option(...)` says, checked: reading and writing options as values.

Spark hands options over as text, their names in any case. A name that is not known is a
mistake that would change the result without a word, so it is refused with the nearest.

    both       log            path, address or @context; $VIRTA_LOG, else the user's own log
               topic          its name; load("orders") and save("orders") do as well
    reading    kind           of an update topic: table (the newest row of each key, the default)
                              or changes (all rows, with a column `_deleted`); of any topic
                              blocks (what chain files say of each block, see `headers`)
               starting       earliest (the default), latest, an offset, -10, a moment, a token,
                              a block's #hash; or JSON by partition {"0": 100, "1": "latest"}
               ending         the same; latest is the default
               columns        a,b,c
               where          an SQL expression, as in topic.where()
               verify         true (the default): hashes and links are checked while reading
               pushdown       once: filters of the query are used for planning; right only if this
                              DataFrame serves one query (see `filters`)
               tasks          at least so many tasks, as far as there are blocks; else as many as
                              the driver's machine has cores, or more by taskBytes
               taskBytes      a task hands about so much to Spark (128MiB)
               maxRowsPerTrigger, maxBytesPerTrigger       of a stream
               gaps           fail (the default) or skip: when rows a stream has not read are gone
    writing    create         true: make the topic, if it is not there, with the columns of the rows
               transaction    a name for this write: under one name rows are written once
               staging        a directory that driver and executors see; for logs behind an address
               keep           commit records kept of a stream (100)
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from virta.contexts import resolve
from virta.errors import UsageError
from virta.requests import parse_size

_COMMON = ("log", "topic", "path")
_READING = (
    "kind",
    "starting",
    "ending",
    "columns",
    "where",
    "verify",
    "pushdown",
    "tasks",
    "taskBytes",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "gaps",
)
_WRITING = ("create", "transaction", "staging", "keep")
# Spark puts its own among those of a streaming write.
_SPARKS_OWN = ("checkpointlocation", "queryname", "basepath", "header")
KINDS = ("rows", "changes", "table", "blocks", "")
# As Spark's own files: enough to amortise a task and its part of a shuffle.
TASK_BYTES = 128 * 1024 * 1024

# By text for all partitions, or by partition.
Bounds = str | Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A topic in a log, as every process of a job can open it."""

    log: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read, and how."""

    place: Place
    kind: str = ""  # what fits the topic
    starting: Bounds = "earliest"
    ending: Bounds = "latest"
    columns: tuple[str, ...] | None = None
    where: str | None = None
    verify: bool = True
    pushdown: bool = False
    tasks: int | None = None
    task_bytes: int = TASK_BYTES
    max_rows: int | None = None
    max_bytes: int | None = None
    skip_gaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """Where to write, and how."""

    place: Place
    create: bool = False
    transaction: str | None = None
    staging: str | None = None
    keep: int = 100


def reading(options: Mapping[str, str]) -> Reading:
    """The options of a source."""
    _check_names(options, (*_COMMON, *_READING), others=_WRITING)
    said = _Said(options)
    return Reading(
        place=_place(said),
        kind=said.one_of("kind", KINDS, ""),
        starting=_bounds(said, "starting", "earliest"),
        ending=_bounds(said, "ending", "latest"),
        columns=_names(said.text("columns")),
        where=said.text("where"),
        verify=said.flag("verify", True),
        pushdown=said.one_of("pushdown", ("never", "once"), "never") == "once",
        tasks=said.number("tasks"),
        task_bytes=said.size("taskBytes") or TASK_BYTES,
        max_rows=said.number("maxRowsPerTrigger"),
        max_bytes=said.size("maxBytesPerTrigger"),
        skip_gaps=said.one_of("gaps", ("fail", "skip"), "fail") == "skip",
    )


def writing(options: Mapping[str, str]) -> Writing:
    """The options of a sink."""
    _check_names(options, (*_COMMON, *_WRITING), others=_READING)
    said = _Said(options)
    return Writing(
        place=_place(said),
        create=said.flag("create", False),
        transaction=said.text("transaction"),
        staging=said.text("staging"),
        keep=said.number("keep") or 100,
    )


def _check_names(options: Mapping[str, str], known: tuple[str, ...], *, others: tuple[str, ...]) -> None:
    low = {name.lower() for name in known}
    for name in options:
        if name.lower() in low or name.lower() in _SPARKS_OWN:
            continue
        if name.lower() in {other.lower() for other in others}:
            raise UsageError(
                f"the option {name!r} is for {'reading' if others is _READING else 'writing'} only"
            )
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}"
        raise UsageError(f"Virta has no option {name!r}", hint=hint)


def _place(said: _Said) -> Place:
    topic = said.text("topic") or said.text("path")
    if topic is None:
        raise UsageError(
            "which topic is not said", hint="give its name: .option('topic', 'orders') or load('orders')"
        )
    # a context is known where the query is made, and not on every executor
    log = resolve(said.text("log")).address
    if "://" not in log:
        # executors may stand in another directory
        log = str(Path(log).expanduser().absolute())
    return Place(log=log, topic=topic)


def _bounds(said: _Said, name: str, otherwise: str) -> Bounds:
    text = said.text(name)
    if text is None:
        return otherwise
    if not text.startswith("{"):
        return text
    try:
        found = {int(number): str(bound) for number, bound in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise UsageError(
            f"the option {name!r} is not JSON by partition: {text}", hint='write {"0": 100, "1": "latest"}'
        ) from error
    return found


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UsageError("the option 'columns' names none", hint=".option('columns', 'id,amount')")
    return names


class _Said:
    """Options by name, whatever their case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower()) or None

    def flag(self, name: str, otherwise: bool) -> bool:
        return self.one_of(name, ("true", "false"), "true" if otherwise else "false") == "true"

    def one_of(self, name: str, values: tuple[str, ...], otherwise: str) -> str:
        value = (self.text(name) or otherwise).lower()
        if value not in values:
            raise UsageError(
                f"the option {name!r} is {value!r}", hint=f"it is one of {', '.join(filter(None, values))}"
            )
        return value

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isdigit() or int(text) == 0:
            raise UsageError(f"the option {name!r} is {text!r}, which is not a number above zero")
        return int(text)

    def size(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else self._positive(name, parse_size(text))

    def _positive(self, name: str, size: int) -> int:
        if size < 1:
            raise UsageError(f"the option {name!r} is a size above zero")
        return size
