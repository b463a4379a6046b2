"""A log at a broker: the embedded log's interface, asked over one connection.

    with virta.open("virta://127.0.0.1:7400") as log:
        orders = log.topic("orders")

Any number of threads may use it. A connection that is lost is made again; what was asked
and not answered is asked again where that changes nothing but the time.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import Any

from virta.client import queries
from virta.client.catalog import RemoteCatalog, record_from
from virta.client.groups import RemoteCoordinator
from virta.client.partition import RemotePartition
from virta.client.topic import RemoteTopic
from virta.client.wire import Wire
from virta.clock import Clock, SystemClock
from virta.errors import Closed
from virta.log import Log
from virta.metadata.catalog import TopicRecord
from virta.metadata.internal import check_not_internal, is_internal
from virta.metadata.schemas import build_schema, given_schema, schema_from_bytes
from virta.query.engine import Parameters
from virta.query.result import Result
from virta.security.address import Address, parse_address
from virta.security.credentials import Credentials
from virta.settings import Settings
from virta.steward.doctor import DoctorReport
from virta.storage.layout import check_topic_name
from virta.storage.view import Identity
from virta.topics.configuration import new_config
from virta.topics.events import EventLog
from virta.topics.groups.model import GroupDescription
from virta.topics.schema import SchemaSource
from virta.types import Event, Kind, Problem, Stats, VerifyReport

# Clocks that differ by more are not set; less is the way there and back.
_CLOCKS_APART_US = 5_000_000


class RemoteLog(Log):
    """The topics of a broker."""

    path: Address  # type: ignore[assignment]

    def __init__(
        self,
        address: str | Address,
        *,
        settings: Settings | None = None,
        credentials: Credentials | None = None,
        clock: Clock | None = None,
        wire: Wire | None = None,
    ) -> None:
        self.path = parse_address(address) if isinstance(address, str) else address
        self.settings = settings or Settings()
        self._clock = clock or SystemClock()
        self.wire = wire or Wire(self.path, credentials=credentials)
        self._closed = True
        self._process = os.getpid()
        self.wire.connect()
        self._remote = RemoteCatalog(self.wire, self._clock)
        self._groups = RemoteCoordinator(self._remote, self.topic)
        self._lock = threading.Lock()
        self._topics: dict[str, Any] = {}
        self._closed = False

    # -- topics -------------------------------------------------------------------------------

    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics; those that Virta keeps for itself only when asked for."""
        self._check_open()
        return [name for name in self._remote.names() if internal or not is_internal(name)]

    def record_event(self, event: Event) -> bool:
        """Note something that happened, as a row of `__events`; whether it is noted."""
        self._check_open()
        noted: bool = self._remote.administer("record_event", arguments=dataclasses.asdict(event))[0]
        return noted

    def topic(self, name: str) -> RemoteTopic:
        """An existing topic; NotFound, with a suggestion, when it is not there."""
        self._check_open()
        check_topic_name(name)
        return self._known(*self._remote.load_with_schema(name))

    def _known(self, record: TopicRecord, schema: Any) -> RemoteTopic:
        with self._lock:
            known: RemoteTopic | None = self._topics.get(record.name)
            if known is None or known.id != record.id.hex():
                known = self._topics[record.name] = RemoteTopic(
                    self._remote,
                    record,
                    self._open_partition,
                    EventLog(self._events_topic),
                    self._groups,
                )
            known._schemas.know(record, schema)
            return known

    def _events_topic(self, name: str, *, create: bool) -> RemoteTopic:
        """Where the broker notes what happens; here it is only read."""
        assert not create
        return self.topic(name)

    def _open_partition(self, record: TopicRecord, number: int, schemas: SchemaSource) -> Any:
        identity = Identity(
            log_id=self.wire.welcome.log_id, topic_id=record.id, topic=record.name, number=number
        )
        return RemotePartition(self.wire, self._remote, identity, schemas, self.settings)

    def create_topic(
        self,
        name: str,
        schema: Any = None,
        *,
        keys: Any = (),
        kind: str = "append",
        partitions: int = 1,
        if_missing: bool = False,
        headers: bool = False,
        **options: Any,
    ) -> RemoteTopic:
        """Make a topic. `schema`: a dict of Python types, a pyarrow schema, or None for key and value.

        With `if_missing`, a topic that is there already is given back, if its columns agree.
        """
        from virta.client.topic import _plain_options

        self._check_open()
        # what is wrong is said here, with the caller's own words
        check_not_internal(name, "made")
        check_topic_name(name)
        if schema is None and kind == Kind.UPDATE and not keys:
            keys = ("key",)
        config = new_config(kind=kind, keys=keys, partitions=partitions, options=options)
        build_schema(schema, headers=headers, keys=config.keys)
        arguments = {
            "keys": list(config.keys),
            "kind": str(config.kind),
            "partitions": partitions,
            "if_missing": if_missing,
            "headers": headers,
            "options": _plain_options(options),
        }
        body = b"" if schema is None else given_schema(schema).serialize().to_pybytes()
        value, answer = self._remote.administer(
            "create_topic", name, arguments=arguments, body=body, can_retry=if_missing
        )
        return self._known(record_from(value), schema_from_bytes(bytes(answer)))

    def drop_topic(self, name: str) -> None:
        """Delete a topic and all its rows."""
        self._check_open()
        check_not_internal(name, "deleted")
        check_topic_name(name)
        self._remote.administer("drop_topic", name, can_retry=False)
        with self._lock:
            self._topics.pop(name, None)

    # -- consumer groups --------------------------------------------------------------------------

    def groups(self) -> list[GroupDescription]:
        """All consumer groups: members, positions and lag."""
        self._check_open()
        return self._groups.describe_all()

    # -- queries --------------------------------------------------------------------------------

    def sql(self, query: str, parameters: Parameters = None, *, external_access: bool = False) -> Result:
        """Ask about any topics by name; the broker runs it. Parameters stand for `?` or `$name`."""
        self._check_open()
        return queries.query(self.wire, query, parameters, external_access=external_access)

    # -- the whole ------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Sizes over all topics."""
        self._check_open()
        return Stats(**self._remote.administer("stats")[0])

    def verify(self, *, progress: Any = None) -> dict[str, VerifyReport]:
        """Verify every topic; a report for each."""
        names = self.topics()
        return {name: self.topic(name).verify(progress=progress) for name in names}

    def examine(self) -> DoctorReport:
        """What the doctor finds at the broker: on its machine, and in the log's files."""
        self._check_open()
        began_us = self._clock.now_us()
        self._remote.administer("ping")
        took_us = self._clock.now_us() - began_us
        value, _ = self._remote.administer("examine")
        apart_us = value["now_us"] - self._clock.now_us()
        welcome = self.wire.welcome
        connected = (
            f"connection: {self.path.name} as {welcome.principal}, {welcome.broker}, protocol "
            f"{welcome.version}, round trip {took_us / 1000:.1f} ms"
        )
        findings = [Problem(**finding) for finding in value["findings"]]
        if abs(apart_us) > _CLOCKS_APART_US:
            findings.append(
                Problem(
                    severity="warning",
                    message=f"the broker's clock is {apart_us / 1e6:+.0f} seconds from the one here",
                    cure="times of rows are the broker's; let both follow a time server",
                )
            )
        return DoctorReport(checked=(connected, *value["checked"]), findings=tuple(findings))

    def repair(self, name: str) -> list[str]:
        """Cure what has a cure in a topic; what was done, in words."""
        self._check_open()
        done: list[str] = self._remote.administer("repair", name, can_retry=False)[0]
        return done

    def sync(self) -> None:
        """Make all rows of the broker's topics durable on disk."""
        self._check_open()
        self._remote.administer("sync")

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log was closed")
        if self._process != os.getpid():
            raise Closed("the log was opened before a fork; open it again in the child")

    def close(self) -> None:
        """End the connection."""
        if self._closed:
            return
        self._closed = True
        self._topics.clear()
        self.wire.close()

    def __enter__(self) -> RemoteLog:
        return self

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r}{', closed' if self._closed else ''})"
