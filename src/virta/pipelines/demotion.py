"""De-promotion: topics of one environment into a lower one, masked on the way.

    [demote]
    from = "@prod"
    to = "@dev"
    topics = ["users", "orders"]
    key = { env = "VIRTA_MASKING_KEY" }
    sample = { share = 0.1, by = { users = "id", orders = "user_id" } }
    where = { orders = "amount > 0" }
    [[demote.mask]]
    columns = ["id", "user_id"]
    mask = "hash"

Both logs are named by contexts, because only a context says how high its environment
stands: from a higher rank to a lower one, never up, never sideways. Every column needs a
rule. Each topic becomes a flow; what was done is told in a signed statement (`statement`).
"""

from __future__ import annotations

import fnmatch
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import virta
from virta import contexts
from virta.contexts import Context
from virta.errors import Denied, NotFound, UsageError
from virta.pipelines.flow import Flow
from virta.pipelines.settings import Words
from virta.pipelines.sinks.topic import TopicSink
from virta.pipelines.sources.topic import TopicSource
from virta.pipelines.specification import Shared, Specification, key_of
from virta.pipelines.transform import Sampling, Transform
from virta.security.masking import MaskPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Demotion:
    """Who gives to whom, how the statement is signed, and the flows that do it."""

    above: Context
    below: Context
    flows: tuple[Flow, ...]
    statement: Path
    signing_key: str | None
    policy_hash: str


def demotion(spec: Specification) -> Demotion | None:
    """The [demote] of a pipeline, its topics looked up in the upper log."""
    if spec.demotion is None:
        return None
    words = Words("[demote]", spec.demotion)
    above, below = _context(words.text("from"), "from"), _context(words.text("to"), "to")
    check_direction(above, below)
    policy = MaskPolicy.of(words.tables("mask"))
    patterns = words.names("topics")
    key = key_of(words.table("key") or spec.extra.get("key"))
    sampling = Words("the sample of [demote]", words.table("sample"))
    share = sampling.take("share", (int, float), None)
    by = sampling.table("by")
    where = words.table("where")
    statement = words.text("statement", None)
    signing = words.table("sign")
    words.end()
    sampling.end()
    if not patterns:
        raise UsageError("[demote] names no topics", hint='topics = ["orders", "users-*"]')
    if (share is None) != (not by):
        raise UsageError(
            "a sample has a share, and says by which column of each topic",
            hint='sample = { share = 0.1, by = { users = "id", orders = "user_id" } }',
        )
    shared = Shared(pipeline=spec.name, base=spec.base, log=None, batch_rows=spec.batch_rows, key=None)
    addresses = [shared.address(contexts.MARK + each.name) for each in (above, below)]
    names = _topics(addresses[0], patterns, above)
    _check_known(by, names, "by")
    _check_known(where, names, "where")
    flows = tuple(
        Flow(
            name=name,
            identity=f"{spec.name}/{name}",
            source=TopicSource(log=addresses[0], topic=name),
            transform=Transform(
                name=name,
                where=where.get(name),
                sampling=Sampling(by=by[name], share=share) if name in by else None,
                policy=policy,
                key=key,
            ),
            sink=TopicSink(log=addresses[1], topic=name),
            batch_rows=spec.batch_rows,
        )
        for name in names
    )
    return Demotion(
        above=above,
        below=below,
        flows=flows,
        statement=Path(shared.path(statement)) if statement else spec.state / "statement.json",
        signing_key=_signing_key(signing, shared),
        policy_hash=policy.hash(),
    )


def policy_of(path: str | os.PathLike[str]) -> MaskPolicy:
    """The rules of a file's [demote], to hold a statement against."""
    try:
        written = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFound(f"the pipeline {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not readable as TOML: {error}") from None
    if "demote" not in written:
        raise UsageError(f"{path} has no [demote]")
    return MaskPolicy.of(Words("[demote]", written["demote"]).tables("mask"))


def _signing_key(signing: Mapping[str, Any], shared: Shared) -> str | None:
    if not signing:
        return None
    words = Words("sign of [demote]", signing)
    path = shared.path(words.text("file"))
    words.end()
    return path


def _context(address: str, word: str) -> Context:
    place = contexts.resolve(address)
    if place.context is None:
        raise UsageError(
            f"{word} of [demote] is a context, not the address {address!r}",
            hint="its environment has to be known: virta context add NAME ADDRESS --environment prod",
        )
    return place.context


def check_direction(above: Context, below: Context) -> None:
    """Only from a higher environment to a lower one."""
    if above.rank <= below.rank:
        raise Denied(
            f"rows are not copied from {above.environment} (rank {above.rank}, @{above.name}) to "
            f"{below.environment} (rank {below.rank}, @{below.name}): de-promotion only goes down",
            hint="virta context ls shows the ranks",
        )
    if above.address == below.address:
        raise Denied(f"@{above.name} and @{below.name} are the same log, {above.address}")


def _topics(address: str, patterns: tuple[str, ...], above: Context) -> list[str]:
    with virta.open(address, create=False) as log:
        known = log.topics()
    found: list[str] = []
    for pattern in patterns:
        matching = [name for name in known if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not matching:
            raise NotFound(f"@{above.name} has no topic {pattern!r}", hint=f"virta topic ls -l @{above.name}")
        found += [name for name in matching if name not in found]
    return found


def _check_known(given: Mapping[str, Any], names: list[str], word: str) -> None:
    for name, value in given.items():
        if name not in names:
            raise UsageError(f"{word} of [demote] names the topic {name!r}, which is not copied")
        if not isinstance(value, str):
            raise UsageError(f"{word} of [demote] for {name!r} cannot be {value!r}")


def check_other_log(flow: Flow) -> None:
    """A log under another address may still be the same one: its topics have the same ids."""
    source, sink = flow.source, flow.sink
    assert isinstance(source, TopicSource) and isinstance(sink, TopicSink)
    head = sink.head_if_there()
    if head is not None and head["topic_id"] == source.topic.id:
        raise Denied(f"source and target of the topic {flow.name} are the same topic")
