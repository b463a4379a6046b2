"""Exactly once through a process: what a group's rows cause in another topic, with their position.

    with orders.reader(group="billing", into=invoices) as reader:
        for row in reader:
            reader.send({"order": row["id"], "total": row["amount"] * 1.25})

What a batch causes in a partition of the target is one block, and that block says up to where
the source had been read (`storage/sources`). The group's own position in `__offsets` follows
it. A process that dies between the two leaves `__offsets` behind; whoever reads next asks the
target first and goes on behind what is there. Taking over claims the producer's name, so one
that was thought dead can append no more.

A target of several partitions may have the newest batch in some of them only. Then that batch
is read again, cut as it was, and goes to those that do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from blake3 import blake3

from virta.errors import TooLarge, UsageError
from virta.requests import parse_token
from virta.storage.layout import NAME_LIMIT_BYTES
from virta.topics.groups.model import GroupKey
from virta.topics.partitioner import split_by_key
from virta.types import Durability, Token

if TYPE_CHECKING:
    from virta.topics.topic import Topic


@dataclass(slots=True)
class _Claim:
    """What this reader holds in one partition of the target, for one partition of the source."""

    producer: int
    epoch: int
    count: int
    position: Token | None


class Outlet:
    """Where one reader puts what its rows cause."""

    def __init__(self, target: Topic, key: GroupKey) -> None:
        if target.config.durability is Durability.MEMORY:
            raise UsageError(
                f"topic {target.name!r} acknowledges rows that only are in memory",
                hint="exactly once takes a target of durability os, or disk",
            )
        self._target = target
        self._key = key
        self._claims: dict[int, dict[int, _Claim]] = {}
        self._sent: list[Any] = []
        self._finished = 0

    def begin(self, number: int) -> list[Token]:
        """Take over a partition of the source: the positions that the target has it at, in order."""
        claims = {}
        name = _producer_name(self._key, number)
        for partition in self._target.partitions:
            producer, epoch, count = partition.stored.claim(name)
            text = partition.stored.newest_source(producer) if count else None
            position = None if text is None else parse_token(text)
            claims[partition.number] = _Claim(producer, epoch, count, position)
        self._claims[number] = claims
        known = {claim.position for claim in claims.values() if claim.position is not None}
        return sorted(known, key=lambda token: token.offset)

    @property
    def is_single(self) -> bool:
        return self._target.config.partitions == 1

    # -- what the body sends ----------------------------------------------------------------------

    def send(self, rows: Any) -> None:
        self._sent.append(rows)

    def finish(self) -> None:
        """What was sent so far belongs to rows that are finished."""
        self._finished = len(self._sent)

    def forget(self) -> None:
        """What was sent since is not to be: its rows failed."""
        del self._sent[self._finished :]

    def drop(self, number: int) -> None:
        """The partition of the source is another's now."""
        self._claims.pop(number, None)

    def clear(self) -> None:
        self._sent.clear()
        self._finished = 0

    # -- appending ----------------------------------------------------------------------------------

    def deliver(self, number: int, position: Token) -> None:
        """Append what the finished rows caused, each part with the position behind them."""
        if not self._finished:
            return
        for partition, batches in self._parts(self._sent[: self._finished], number).items():
            claim = self._claims[number][partition]
            if claim.position is None or claim.position.offset < position.offset:
                self._append(partition, claim, batches, position)
        del self._sent[: self._finished]
        self._finished = 0

    def _parts(self, sent: list[Any], number: int) -> dict[int, list[pa.RecordBatch]]:
        """The rows by partition of the target."""
        count = self._target.config.partitions
        parts: dict[int, list[pa.RecordBatch]] = {}
        for rows in _joined(sent):
            form, batches = self._target._appender(0).convert(rows)
            keys = form.record.config.keys
            for batch in batches:
                if keys and count > 1:
                    for partition, part in split_by_key(batch, keys, count):
                        parts.setdefault(partition, []).append(part)
                elif batch.num_rows:
                    # without keys what one partition causes stays in one
                    parts.setdefault(number % count, []).append(batch)
        return parts

    def _append(self, partition: int, claim: _Claim, batches: list[pa.RecordBatch], position: Token) -> None:
        appender = self._target._appender(partition)
        form, whole = appender.convert(pa.Table.from_batches(batches).combine_chunks())
        if len(whole) != 1:
            raise TooLarge(
                f"what one batch caused is too large for one block of {self._target.name!r}",
                hint="read smaller batches: reader.batches(max_rows=…)",
            )
        appender.append_caused(
            form,
            whole[0],
            producer=claim.producer,
            producer_epoch=claim.epoch,
            sequence=claim.count,
            source=str(position),
        )
        claim.count += whole[0].num_rows
        claim.position = position


def _joined(sent: list[Any]) -> list[Any]:
    """Single rows that follow each other together; Arrow as it is."""
    found: list[Any] = []
    rows: list[Any] = []
    for each in sent:
        if isinstance(each, Mapping):
            rows.append(each)
            continue
        if rows:
            found.append(rows)
            rows = []
        found.append(each)
    if rows:
        found.append(rows)
    return found


def _producer_name(key: GroupKey, number: int) -> str:
    name = f"group {key.group} {key.topic_id} {number}"
    if len(name.encode("utf-8", "surrogatepass")) <= NAME_LIMIT_BYTES:
        return name
    digest = blake3(key.group.encode("utf-8", "surrogatepass")).hexdigest()
    return f"group {digest} {key.topic_id} {number}"
