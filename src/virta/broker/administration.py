"""The verbs that are rare: a table of names, what right each takes, and what it does.

Their arguments and answers are JSON, schemas and rows beside them are Arrow: they change
more often than the verbs that carry the load, and cost matters little. They run in threads.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from virta.broker.desk import Desk
from virta.errors import NotFound, UsageError
from virta.log import Log
from virta.memory.partition import Partition as StoredPartition
from virta.metadata.internal import check_not_internal
from virta.metadata.schemas import schema_to_bytes
from virta.security.guard import denial
from virta.security.permissions import Decision
from virta.security.permissions import Verb as Right
from virta.security.principal import ANONYMOUS, LOCAL
from virta.storage.producers import producer_id
from virta.topics.append import Origin, finish_change
from virta.topics.configuration import option_names
from virta.topics.partitioner import partition_of_hash
from virta.topics.topic import Topic
from virta.topics.upserts import append_completed
from virta.types import Event, TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    log: Log
    topic: str
    topic_id: bytes
    arguments: dict[str, Any]
    body: bytes
    progress: Callable[[Any], None]
    who: str
    may_see: Callable[[str], bool]
    may: Callable[[Right, str | None], bool]
    own_report: Callable[[], Any] = lambda: ((), ())

    def opened(self) -> Topic:
        found = self.log.topic(self.topic)
        if self.topic_id and bytes.fromhex(found.id) != self.topic_id:
            raise NotFound(
                f"topic {self.topic!r} was dropped and made again: it is another topic now",
                hint="get it with log.topic() again",
            )
        return found

    def schema(self) -> pa.Schema | None:
        """The schema that came as the body."""
        if not self.body:
            return None
        try:
            return pa.ipc.read_schema(pa.py_buffer(self.body))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UsageError(f"the schema cannot be read: {error}") from error


Result = tuple[Any, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """What a name means."""

    right: Right | None  # None: whoever is connected
    act: Callable[[Call], Result]
    looks: bool = False  # for whoever may do anything with the topic
    replaces_topic: bool = False  # what is open of the topic is opened anew
    takes: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)

    def arguments(self, name: str, data: bytes) -> dict[str, Any]:
        """What a client sent as arguments, if it is what the verb takes."""
        found = parse_json(data, f"the arguments of {name}") if data else {}
        if not isinstance(found, dict):
            raise UsageError(f"the arguments of {name} are no JSON object")
        for key, value in found.items():
            if key not in self.takes:
                raise UsageError(f"{name} takes no argument {key[:60]!r}")
            if value is not None and not self.takes[key](value):
                raise UsageError(f"the argument {key} of {name} is of another kind")
        return found


def parse_json(data: bytes, what: str) -> Any:
    """What a client sent as JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{what}: this is no JSON: {str(error)[:200]}") from error


# -- kinds of arguments; null always stands for an argument that is not given -------------------


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def is_names(value: Any) -> bool:
    return is_text(value) or (isinstance(value, list) and all(map(is_text, value)))


def is_texts_by_name(value: Any) -> bool:
    return is_object(value) and all(map(is_text, value.values()))


def is_options(value: Any) -> bool:
    return is_object(value) and value.keys() <= set(option_names())


def is_heads(value: Any) -> bool:
    """By partition. Never a text, which would be the name of a file on the broker's machine."""
    return is_object(value) and all(key.isdecimal() for key in value) and all(map(is_names, value.values()))


# -- topics -------------------------------------------------------------------------------------


def _topics(call: Call) -> Result:
    """The names of all topics that the client may do anything with."""
    is_stranger = call.who == ANONYMOUS.name
    found = [
        name
        for name in call.log.topics(internal=True)
        if call.may_see(name) or (is_stranger and call.log.topic(name).config.public_write)
    ]
    if not found and is_stranger:
        # an empty list would read as if there were none
        raise denial(ANONYMOUS, Right.CONSUME, None, Decision(allowed=False, reason="no rule allows it"))
    return found, b""


def _topic(call: Call) -> Result:
    topic = call.opened()
    return record_of(topic), schema_bytes(topic)


def record_of(topic: Topic) -> dict[str, Any]:
    """A topic's record as JSON."""
    record = topic._fresh()
    return {
        "name": record.name,
        "id": record.id.hex(),
        "version": record.version,
        "schema_version": record.schema_version,
        "created_us": record.created_us,
        "config": config_of(record.config),
    }


def config_of(config: TopicConfig) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(config).items()
    }


def schema_bytes(topic: Topic) -> bytes:
    """The newest stored schema, as the message that opens a data file."""
    return schema_to_bytes(topic._schemas.newest())


def _schema(call: Call) -> Result:
    version = call.arguments.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UsageError("a schema's version is a whole number above zero")
    topic = call.opened()
    newest = topic._fresh().schema_version
    if version > newest:
        raise NotFound(f"topic {call.topic!r} has no schema of version {version}; the newest is {newest}")
    return {}, schema_to_bytes(topic._schemas.version(version))


def _create_topic(call: Call) -> Result:
    given = {name: value for name, value in call.arguments.items() if value is not None}
    known = {"keys", "kind", "partitions", "if_missing", "headers"}
    named = {name: given.pop(name) for name in known & given.keys()}
    topic = call.log.create_topic(call.topic, call.schema(), **named, **given.pop("options", {}))
    return record_of(topic), schema_bytes(topic)


def _drop_topic(call: Call) -> Result:
    call.log.drop_topic(call.topic)
    return {}, b""


def _alter(call: Call) -> Result:
    topic = call.opened()
    topic.alter(
        schema=call.schema(), renames=call.arguments.get("renames"), **(call.arguments.get("options") or {})
    )
    return record_of(topic), schema_bytes(topic)


def _lock(call: Call) -> Result:
    topic = call.opened()
    topic.lock()
    return record_of(topic), schema_bytes(topic)


def _erase(call: Call) -> Result:
    keys = None
    if call.body:
        try:
            keys = pa.ipc.open_stream(pa.py_buffer(call.body)).read_all()
            keys.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UsageError(f"the keys cannot be read: {error}") from error
    found = call.opened().erase(
        where=call.arguments.get("where"),
        keys=keys,
        dry_run=call.arguments.get("dry_run") is True,
        progress=call.progress if call.arguments.get("progress") else None,
    )
    return dataclasses.asdict(found), b""


# -- looking --------------------------------------------------------------------------------------


def _stats(call: Call) -> Result:
    if not call.topic:
        return dataclasses.asdict(call.log.stats()), b""
    topic = call.opened()
    number = call.arguments.get("partition")
    found = topic.stats() if number is None else topic.partition(number).stats()
    return dataclasses.asdict(found), b""


def _get(call: Call) -> Result:
    """The row of a key, with its place; the key came as a batch of one row."""
    topic = call.opened()
    try:
        with pa.ipc.open_stream(call.body) as reader:
            keys = reader.read_all().to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"the key cannot be read: {error}") from error
    if len(keys) != 1:
        raise UsageError(f"get() takes one key, not {len(keys)}")
    row = topic.get(keys[0])
    if row is None:
        return {"found": False}, b""
    micros = (row.timestamp - _EPOCH) // timedelta(microseconds=1)
    columns = pa.RecordBatch.from_pylist([row.to_dict()], schema=topic.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_batch(columns)
    place = {"found": True, "partition": row.partition, "offset": row.offset, "timestamp_us": micros}
    return place, sink.getvalue().to_pybytes()


def _upsert(call: Call) -> Result:
    """Complete partial rows, and append them; what was sent before is not written again."""
    check_not_internal(call.topic, "appended to")
    topic = call.opened()
    topic._check_update("upsert()")
    topic._fresh()
    origins = _origins(call.arguments.get("origins") or {})
    upserts = topic._upserts()
    given = [each for rows in _tables(call.body) for each in upserts.take(rows)]
    acks = append_completed(upserts, given, topic._parts(), origins)
    counts = Counter(
        partition_of_hash(each.key.hash, len(topic.partitions)) for each in upserts.merged(given)
    )
    parts = [
        {
            "partition": ack.partition,
            "first_offset": ack.first_offset,
            "last_offset": ack.last_offset,
            "head": ack.head,
            "durability": str(ack.durability),
            "duplicate": ack.duplicate,
        }
        for ack in acks
    ]
    return {"parts": parts, "sequences": dict(counts)}, b""


def _origins(given: Any) -> dict[int, Origin]:
    """By partition, a producer's number and the sequence of its next row."""
    try:
        return {
            int(number): Origin(producer=_whole(producer), sequence=_whole(sequence))
            for number, (producer, sequence) in given.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError("origins are {partition: [producer, sequence]}") from error


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise UsageError("a producer's number and sequence are whole numbers")
    return value


def _tables(body: bytes) -> list[pa.Table]:
    """One Arrow stream behind the other."""
    source = pa.BufferReader(body)
    found = []
    try:
        while source.tell() < len(body):
            table = pa.ipc.open_stream(source).read_all()
            table.validate(full=True)
            found.append(table)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"the rows cannot be read: {error}") from error
    return found


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _sync(call: Call) -> Result:
    if call.topic:
        call.opened().sync()
    else:
        call.log.sync()
    return {}, b""


def _verify(call: Call) -> Result:
    against = call.arguments.get("against")
    if isinstance(against, dict):
        against = {int(number): head for number, head in against.items()}
    progress = (
        (lambda step: call.progress(dataclasses.asdict(step))) if call.arguments.get("progress") else None
    )
    if call.topic:
        return report_of(call.opened().verify(against=against, progress=progress)), b""
    return {name: report_of(each) for name, each in call.log.verify(progress=progress).items()}, b""


def report_of(report: Any) -> dict[str, Any]:
    return dataclasses.asdict(report)


def _examine(call: Call) -> Result:
    """What the doctor finds in the log and on this machine, and what the broker says of itself."""
    found = dataclasses.asdict(call.log.examine())
    checked, findings = call.own_report()
    value = {
        "checked": [*checked, *found["checked"]],
        "findings": [*map(dataclasses.asdict, findings), *found["findings"]],
        "now_us": call.log._clock.now_us(),
    }
    return value, b""


def _repair(call: Call) -> Result:
    return call.log.repair(call.topic), b""


def _record_event(call: Call) -> Result:
    try:
        event = Event(**call.arguments)
    except TypeError as error:
        raise UsageError(f"this is no event: {error}") from error
    if call.who != LOCAL.name:
        # whoever it is said to have been, it was this one
        event = dataclasses.replace(event, actor=call.who)
    return call.log.record_event(event), b""


_EVENT: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("kind", "topic", "topic_id", "hash_before", "hash_after", "actor"), is_text),
    **dict.fromkeys(("version", "partition", "from_offset", "to_offset"), is_whole),
    "details": is_object,
}

VERBS: dict[str, Verb] = {
    "ping": Verb(right=None, act=lambda _: ({}, b"")),
    "topics": Verb(right=None, act=_topics),
    "topic": Verb(right=None, looks=True, act=_topic),
    "schema": Verb(right=None, looks=True, act=_schema, takes={"version": is_whole}),
    "create_topic": Verb(
        right=Right.ADMINISTER,
        act=_create_topic,
        takes={
            "keys": is_names,
            "kind": is_text,
            "partitions": is_whole,
            "if_missing": is_truth,
            "headers": is_truth,
            "options": is_options,
        },
    ),
    "drop_topic": Verb(right=Right.ADMINISTER, act=_drop_topic, replaces_topic=True),
    "alter": Verb(
        right=Right.ADMINISTER, act=_alter, takes={"options": is_options, "renames": is_texts_by_name}
    ),
    "lock": Verb(right=Right.ADMINISTER, act=_lock),
    "get": Verb(right=Right.CONSUME, act=_get),
    "upsert": Verb(right=Right.PRODUCE, act=_upsert, takes={"origins": is_object}),
    "erase": Verb(
        right=Right.ADMINISTER,
        act=_erase,
        takes={"where": is_text, "dry_run": is_truth, "progress": is_truth},
    ),
    "stats": Verb(right=Right.CONSUME, act=_stats, takes={"partition": is_whole}),
    "sync": Verb(right=Right.PRODUCE, act=_sync),
    "verify": Verb(right=Right.CONSUME, act=_verify, takes={"against": is_heads, "progress": is_truth}),
    "examine": Verb(right=Right.ADMINISTER, act=_examine),
    "record_event": Verb(right=Right.ADMINISTER, act=_record_event, takes=_EVENT),
    "repair": Verb(right=Right.ADMINISTER, act=_repair),
}


# -- for the verbs that carry the load -----------------------------------------------------------


def selection_of(topic: Topic, number: int) -> Any:
    """All rows of one partition, to be narrowed."""
    from virta.topics.read import Selection

    return Selection([topic.partition(number).stored], topic._schemas, topic._now_us)


def claim(stored: StoredPartition, name: str) -> tuple[int, int, int]:
    """Make a connection the holder of a producer's name."""
    from virta.storage.layout import NAME_LIMIT_BYTES

    if not name or len(name.encode("utf-8", "surrogatepass")) > NAME_LIMIT_BYTES:
        raise UsageError(f"a producer name has 1 to {NAME_LIMIT_BYTES} bytes")
    assert producer_id(name)
    with stored.writing() as committer:
        return committer.claim_producer(name)


def follow(desk: Desk) -> None:
    """Take in a change of the topic; one that was cut short is finished."""
    schemas = desk.topic.schemas
    before = schemas.record
    found = schemas.reload()
    if found.version == before.version:
        finish_change(desk.stored, found)
