"""The twin has what the sync interface has: every public name, with the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable
from typing import Any, get_type_hints

import pytest

import virta
from virta.aio import (
    AsyncChanges,
    AsyncDeadLetters,
    AsyncGroup,
    AsyncGroupReader,
    AsyncLog,
    AsyncPartition,
    AsyncSelection,
    AsyncTable,
    AsyncTopic,
    AsyncWriter,
    Opening,
)
from virta.log import Log
from virta.topics.changes import Changes
from virta.topics.groups.group import Group
from virta.topics.groups.letters import DeadLetters
from virta.topics.groups.reader import GroupReader
from virta.topics.partition import Partition
from virta.topics.read import Selection
from virta.topics.table import Table
from virta.topics.topic import Topic
from virta.topics.writer import Writer

PAIRS = [
    (Log, AsyncLog),
    (Topic, AsyncTopic),
    (Selection, AsyncSelection),
    (Table, AsyncTable),
    (Changes, AsyncChanges),
    (Partition, AsyncPartition),
    (Writer, AsyncWriter),
    (GroupReader, AsyncGroupReader),
    (Group, AsyncGroup),
    (DeadLetters, AsyncDeadLetters),
]

# What the twin itself is built on; no part of what users see.
PARTS = {
    "stored",
    "by_partition",
    "steps",
    "row_steps",
    "batch_steps",
    "chosen_columns",
    "put",
    "look",
    "snapshot",
    "step",
    "pause",
    "waits_for",
    "rows_of",
}

# What only names or narrows is the same on both sides, without an await.
NARROWING = {"since", "until", "where", "columns", "limit", "newest", "partition", "table", "as_of", "group"}
NARROWING |= {"changes", "attempt", "dead_letters", "under_schema"}
ITERATIONS = {"tail", "tail_batches", "batches", "rows", "stream"}
CONTEXTS = {"writer", "reader"}
PLAIN_PROPERTIES = {
    "name", "id", "kind", "group", "partition", "partitions", "position", "committed", "epochs", "number",
    "topic", "producer", "last_sequence", "last_ack",
}  # fmt: skip


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if name[0] != "_" and name not in PARTS}


def members() -> list[Any]:
    return [
        pytest.param(sync, twin, name, id=f"{sync.__name__}.{name}")
        for sync, twin in PAIRS
        for name in public(sync)
    ]


@pytest.mark.parametrize(("sync", "twin", "name"), members())
def test_every_public_member_has_its_twin(sync: type, twin: type, name: str) -> None:
    ours, theirs = vars(sync)[name], vars(twin).get(name)
    assert theirs is not None, f"{twin.__name__} has no {name}"
    assert isinstance(theirs, property) == isinstance(ours, property)
    if isinstance(ours, property):
        return
    assert list(inspect.signature(ours).parameters.values()) == list(
        inspect.signature(theirs).parameters.values()
    )


@pytest.mark.parametrize(("sync", "twin", "name"), members())
def test_what_it_gives_back_says_how_it_is_used(sync: type, twin: type, name: str) -> None:
    member = vars(twin)[name]
    if isinstance(member, property):
        given = get_type_hints(member.fget)["return"]
        is_awaitable = getattr(given, "__origin__", None) is Awaitable
        assert is_awaitable != (name in PLAIN_PROPERTIES)
    elif name in NARROWING or (twin, name) == (AsyncGroupReader, "send"):
        assert not inspect.iscoroutinefunction(member)
    elif name in ITERATIONS:
        given = get_type_hints(member)["return"]
        assert issubclass(given.__origin__, AsyncIterator)
    elif name in CONTEXTS:
        assert get_type_hints(member)["return"].__origin__ is Opening
    else:
        assert inspect.iscoroutinefunction(member)


@pytest.mark.parametrize(("sync", "twin"), PAIRS)
def test_the_twin_has_nothing_more(sync: type, twin: type) -> None:
    instance_names = {
        "path",
        "settings",
        "producer",
        "last_ack",
        "member",
    }  # plain attributes on the sync side
    assert public(twin).keys() - public(sync).keys() - instance_names - {"start"} == set()


def test_aopen_takes_what_open_takes() -> None:
    assert inspect.signature(virta.aopen).parameters.keys() == inspect.signature(virta.open).parameters.keys()
    for name, parameter in inspect.signature(virta.open).parameters.items():
        assert inspect.signature(virta.aopen).parameters[name] == parameter
