"""Topics and schemas as a client knows them: what a directory's catalog says, asked of the broker."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from virta.client.wire import Wire
from virta.clock import Clock
from virta.metadata.catalog import TopicRecord
from virta.metadata.schemas import schema_from_bytes
from virta.protocol.codes import FrameType
from virta.protocol.messages import message
from virta.types import Compression, Durability, Kind, TopicConfig

_ENUMS: dict[str, Any] = {"kind": Kind, "durability": Durability, "compression": Compression}
_FIELDS = {field.name for field in dataclasses.fields(TopicConfig)}


class RemoteCatalog:
    """Stands where `metadata.catalog.Catalog` stands in an embedded log."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self.wire = wire
        self.clock = clock

    def administer(
        self,
        verb: str,
        topic: str = "",
        *,
        arguments: dict[str, Any] | None = None,
        body: bytes = b"",
        topic_id: bytes = b"",
        can_retry: bool = True,
        progress: Callable[[Any], None] | None = None,
    ) -> tuple[Any, memoryview]:
        """Ask for one of the rare verbs; the answer's value and its body."""
        header = message("Administer")(verb=verb, topic=topic)
        if arguments:
            header.arguments = json.dumps(arguments).encode()
        if topic_id:
            header.topic_id = topic_id
        if not can_retry:
            self.wire.check_alive()
        pending = self.wire.post(FrameType.ADMINISTER, header, *([body] if body else ()), can_retry=can_retry)
        while True:
            frame, answer = self.wire.next(pending)
            if frame.type != FrameType.PROGRESS:
                self.wire.forget(pending)
                return json.loads(answer.value), frame.body
            if progress is not None:
                progress(json.loads(answer.value))

    def names(self) -> list[str]:
        names: list[str] = self.administer("topics")[0]
        return names

    def load(self, name: str) -> TopicRecord:
        return self.load_with_schema(name)[0]

    def load_with_schema(self, name: str) -> tuple[TopicRecord, pa.Schema]:
        """A topic's record, and its newest stored schema, which came along."""
        value, body = self.administer("topic", name)
        return record_from(value), schema_from_bytes(bytes(body))

    def schema(self, record: TopicRecord, version: int) -> pa.Schema:
        """A version of the topic's stored schema."""
        _, body = self.administer("schema", record.name, arguments={"version": version}, topic_id=record.id)
        return schema_from_bytes(bytes(body))


def record_from(value: dict[str, Any]) -> TopicRecord:
    """The record that an answer holds; what a newer broker says beside it is passed over."""
    config: dict[str, Any] = {
        name: _ENUMS[name](given) if name in _ENUMS else tuple(given) if isinstance(given, list) else given
        for name, given in value["config"].items()
        if name in _FIELDS
    }
    return TopicRecord(
        name=value["name"],
        id=bytes.fromhex(value["id"]),
        version=value["version"],
        schema_version=value["schema_version"],
        created_us=value["created_us"],
        config=TopicConfig(**config),
    )
