"""What `virta topic show` says of a topic's versions: all of them, one, and what differs between two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from virta.cli.invocation import Invocation
from virta.cli.output import print_record, print_records
from virta.errors import UsageError
from virta.requests import format_moment

if TYPE_CHECKING:
    from virta.topics.topic import Topic
    from virta.topics.versions import TopicVersion


def print_history(invocation: Invocation, topic: Topic) -> None:
    """A line for each version, with what it changed."""
    from virta.topics.versions import changes_between  # Arrow is not for --help

    versions = topic.history()
    records = []
    for before, each in zip([None, *versions[:-1]], versions, strict=True):
        changed = [] if before is None else [str(change) for change in changes_between(before, each)]
        records.append(
            {
                "version": each.number,
                "kind": each.kind,
                "time": _time(each),
                "actor": each.actor,
                "columns": len(each.columns),
                "changes": changed,
            }
        )
    print_records(invocation, records, key="version", shown={"changes": "; ".join})


def print_version(invocation: Invocation, topic: Topic, number: int) -> None:
    """Columns and configuration of one version."""
    from virta.topics.versions import find_version

    found = find_version(topic.history(), number, topic.name)
    columns = {each.name: str(each) for each in found.columns}
    record: dict[str, Any] = {
        "topic": topic.name,
        "version": found.number,
        "kind_of_change": found.kind,
        "time": _time(found),
        "actor": found.actor,
        "columns": columns,
        **found.config,
    }
    print_record(invocation, record, shown={"columns": _listed})


def print_changes(invocation: Invocation, topic: Topic, wanted: str) -> None:
    """What is different between the versions N and M of `N:M`."""
    first, mark, last = wanted.partition(":")
    try:
        before, after = int(first), int(last) if last else -1
    except ValueError:
        before, after = 0, 0
    if not mark or not before or not after:
        raise UsageError(
            f'"{wanted}" does not name two versions', hint="--diff 1:3, or --diff 1: up to the newest"
        )
    changes = topic.version_changes(before, after)
    records = [{"what": each.what, "before": each.before, "after": each.after} for each in changes]
    print_records(invocation, records, key="what", names=("what", "before", "after"))


def _time(version: TopicVersion) -> str | None:
    return (
        None if version.timestamp is None else format_moment(round(version.timestamp.timestamp() * 1_000_000))
    )


def _listed(columns: dict[str, str]) -> str:
    width = max(map(len, columns))
    return "\n".join(f"{name.ljust(width)}  {kind}" for name, kind in columns.items())
