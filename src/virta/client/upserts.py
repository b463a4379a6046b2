"""Partial updates through a broker: it completes the rows, since it has those that are there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from virta.client.partition import RemotePartition
from virta.topics.acks import SpreadAck
from virta.types import Ack, Durability


def upsert_at_broker(
    ask: Callable[..., Any], partitions: Sequence[RemotePartition], given: Sequence[pa.RecordBatch]
) -> Ack:
    """Have the broker complete and append these rows; each partition's atomically.

    They go as a producer's rows do, with a number drawn at random and a sequence for each
    partition: so they can be sent again over a new connection, and are written once.
    """
    with contextlib.ExitStack() as stack:
        identities = [stored.take_identity() for stored in partitions]
        origins = {str(at): [each.number, each.sequence] for at, each in enumerate(identities)}
        value, _ = ask("upsert", {"origins": origins}, body=_streams(given))
        # what goes wrong leaves open which rows were written, so the numbers are used no more
        for at, rows in value["sequences"].items():
            identities[int(at)].sequence += rows
        for stored, identity in zip(partitions, identities, strict=True):
            stack.callback(stored.give_back, identity)
    acks = [Ack(**{**each, "durability": Durability(each["durability"])}) for each in value["parts"]]
    return acks[0] if len(acks) == 1 else SpreadAck.of(acks)


def _streams(given: Sequence[pa.RecordBatch]) -> bytes:
    """One Arrow stream behind the other: rows that name other columns have other schemas."""
    sink = pa.BufferOutputStream()
    for batch in given:
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
