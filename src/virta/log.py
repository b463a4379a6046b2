"""A log in a directory: the embedded library, wired from its parts.

    with Log("./events") as log:
        orders = log.create_topic("orders", {"id": int, "user": str})

No daemon: every process that opens the directory appends and reads for itself.
Components (files, clock) are passed in, settings are data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virta.clock import Clock, SystemClock
from virta.errors import AlreadyExists, Closed, Denied, NotFound, SchemaMismatch
from virta.memory.partition import Partition as StoredPartition
from virta.memory.registry import registry
from virta.metadata.catalog import Catalog, TopicRecord
from virta.metadata.internal import INTERNAL_TOPICS, check_not_internal, is_internal
from virta.metadata.schemas import build_schema, check_keys, stored_schema, user_schema
from virta.query import ranged
from virta.query.engine import Engine, Parameters
from virta.query.result import Result
from virta.settings import Settings
from virta.steward import doctor
from virta.steward.doctor import DoctorReport
from virta.storage import state
from virta.storage.files import Files, OperatingSystemFiles
from virta.storage.filesystem import check_writable_place
from virta.topics.configuration import new_config
from virta.topics.difference import Difference, keyed
from virta.topics.events import CREATED, DELETED, EventLog
from virta.topics.groups.coordinator import GroupCoordinator
from virta.topics.groups.letters import DeadLetterBox
from virta.topics.groups.model import GroupDescription
from virta.topics.groups.offsets import Offsets
from virta.topics.groups.store import DirectoryStore
from virta.topics.schema import SchemaSource
from virta.topics.snapshot import TopicSnapshot
from virta.topics.table import AsOf
from virta.topics.topic import Topic, combined
from virta.types import Event, Kind, Stats, VerifyReport


class Log:
    """A directory that holds topics."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        settings: Settings | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self.settings = settings or Settings()
        self._files = files or OperatingSystemFiles()
        self._clock = clock or SystemClock()
        self._catalog = Catalog.open(self._files, self._clock, self.path, create=create)
        self._key = (id(files) if files is not None else 0, self._catalog.log_id, str(self.path))
        self._budget, self._dumper = registry.log_memory(self._key, self.settings)
        self._events = EventLog(self._internal_topic)
        groups = DirectoryStore(self._files, self._catalog.paths.groups)
        letters = DeadLetterBox(self.topic, self.create_topic)
        self.coordinator = GroupCoordinator(groups, Offsets(self._internal_topic), self._clock, letters)
        self._queries = Engine(self._catalog.names, self._queried)
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._held: list[tuple[Any, ...]] = []
        self._closed = False
        self._process = os.getpid()

    # -- topics -------------------------------------------------------------------------------

    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics; those that Virta keeps for itself only when asked for."""
        self._check_open()
        return [name for name in self._catalog.names() if internal or not is_internal(name)]

    def topic(self, name: str) -> Topic:
        """An existing topic; NotFound, with a suggestion, when it is not there."""
        self._check_open()
        record = self._catalog.load(name)
        with self._lock:
            known = self._topics.get(name)
            if known is None or known.id != record.id.hex():
                known = Topic(self._catalog, record, self._open_partition, self._events, self.coordinator)
                self._topics[name] = known
            return known

    def _queried(self, name: str) -> TopicSnapshot:
        """What a query reads under a name: a table of an update topic; of `name@from:to` the rows in it."""
        if name not in self._catalog.names():
            return ranged.snapshot_of(self.topic(name.rpartition("@")[0]), name, self._clock.now_us())
        topic = self.topic(name)
        return topic.table().snapshot() if topic.kind is Kind.UPDATE else topic.snapshot()

    def _internal_topic(self, name: str, *, create: bool) -> Topic:
        """A topic of Virta's own; made when its first row comes."""
        try:
            return self.topic(name)
        except NotFound:
            if not create:
                raise
        wanted = INTERNAL_TOPICS[name]
        with contextlib.suppress(AlreadyExists):
            self._create(
                name,
                wanted.schema,
                kind=wanted.kind,
                keys=wanted.keys,
                partitions=1,
                headers=False,
                options=wanted.options,
            )
        return self.topic(name)

    def record_event(self, event: Event) -> bool:
        """Note something that happened, as a row of `__events`; whether it is noted. Raises nothing."""
        return self._events.record(event)

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
    ) -> Topic:
        """Make a topic. `schema`: a dict of Python types, a pyarrow schema, or None for key and value.

        With `if_missing`, a topic that is there already is given back, if its columns agree.
        """
        self._check_open()
        check_not_internal(name, "made")
        try:
            self._create(
                name,
                schema,
                kind=kind,
                keys=keys,
                partitions=partitions,
                headers=headers,
                options=options,
            )
        except AlreadyExists:
            if not if_missing:
                raise
            found = self.topic(name)
            if schema is not None:
                _check_same(found, stored_schema(build_schema(schema, headers=headers, keys=keys)))
            return found
        return self.topic(name)

    def _create(
        self,
        name: str,
        schema: Any,
        *,
        kind: str,
        keys: Any,
        partitions: int,
        headers: bool,
        options: Mapping[str, Any],
    ) -> None:
        check_writable_place(self.path, force=self.settings.force_network_file_system)
        if schema is None and kind == Kind.UPDATE and not keys:
            keys = ("key",)
        config = new_config(kind=kind, keys=keys, partitions=partitions, options=options)
        own = build_schema(schema, headers=headers, keys=config.keys)
        stored = stored_schema(own, tombstones=config.kind is Kind.UPDATE)
        record = self._catalog.create(name, stored, config)
        self._events.record_version(record, user_schema(stored), CREATED)

    def drop_topic(self, name: str) -> None:
        """Delete a topic and all its rows."""
        check_not_internal(name, "deleted")
        topic = self.topic(name)
        record = self._catalog.load(name)
        if not record.config.topic_deletion:
            raise Denied(
                f"topic {name!r} does not allow its deletion",
                hint="allow it with alter(topic_deletion=True) first",
            )
        for number in range(record.config.partitions):
            topic.partition(number).stored.mark(state.DROPPED)
        with self._lock:
            self._topics.pop(name, None)
        stats = topic.stats()
        heads = topic.heads
        self._catalog.drop(record)
        self.record_event(
            Event(
                kind=DELETED,
                topic=name,
                topic_id=record.id.hex(),
                version=record.version,
                details={"rows": stats.rows, "bytes": stats.bytes, "heads": heads},
            )
        )

    def _open_partition(self, record: TopicRecord, number: int, schemas: SchemaSource) -> StoredPartition:
        paths = self._catalog.paths.topic(record.name).partition(number)
        key = (*self._key, record.id, number)

        def make() -> StoredPartition:
            return StoredPartition(
                self._files,
                paths,
                self._catalog.identity(record, number),
                schemas.version,
                clock=self._clock,
                settings=self.settings,
                budget=self._budget,
                dumper=self._dumper,
                segment_bytes=record.config.segment_bytes,
            )

        found = registry.partition(key, make)
        self._held.append(key)
        return found

    # -- consumer groups --------------------------------------------------------------------------

    def groups(self) -> list[GroupDescription]:
        """All consumer groups: members, positions and lag."""
        self._check_open()
        found = []
        for key in self.coordinator.list_keys():
            with contextlib.suppress(NotFound):  # dropped with its topic, or forgotten meanwhile
                topic = self.topic(key.topic)
                if topic.id == key.topic_id:
                    found.append(topic.group(key.group).describe())
        return sorted(found, key=lambda each: (each.group, each.topic))

    # -- queries --------------------------------------------------------------------------------

    def sql(self, query: str, parameters: Parameters = None, *, external_access: bool = False) -> Result:
        """Ask DuckDB about any topics by name: `log.sql("select user, sum(amount) from orders group by 1")`.

        All topics in it are fixed to their rows of this moment; the rows are read when the
        result is. Parameters stand for `?` or `$name`. Needs `pip install 'virta[sql]'`.
        With `external_access` a query may also read files and the network.
        """
        self._check_open()
        return self._queries.query(query, parameters, external_access=external_access)

    def diff(
        self,
        first: str,
        second: str,
        *,
        keys: Any = None,
        first_as_of: AsOf | None = None,
        second_as_of: AsOf | None = None,
    ) -> Difference:
        """What is different between two topics, by their keys: rows to insert, update and delete.

        An update topic is its table; of any other topic the newest row of each key counts.
        Each as it is now, or as of an offset or a time.
        """
        one, two = self.topic(first), self.topic(second)
        chosen = keyed(first, one.config.keys, keys)
        for topic in (one, two):
            check_keys(topic.schema, chosen)
        return Difference(
            (first, second),
            chosen,
            lambda: (one.by_key(chosen, as_of=first_as_of), two.by_key(chosen, as_of=second_as_of)),
        )

    # -- the whole ------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Sizes over all topics, without the internal ones."""
        parts = [self.topic(name).stats() for name in self.topics()]
        if not parts:
            return Stats(rows=0, bytes=0, blocks=0, segments=0, start_offset=0, next_offset=0)
        whole = combined(parts)
        return dataclasses.replace(whole, oldest_in_memory=None, newest_in_memory=None)

    def verify(self, *, progress: Any = None) -> dict[str, VerifyReport]:
        """Verify every topic; a report for each."""
        return {name: self.topic(name).verify(progress=progress) for name in self._catalog.names()}

    # -- the doctor -----------------------------------------------------------------------------

    def examine(self) -> DoctorReport:
        """What the doctor finds: on this machine, and in this log's files."""
        self._check_open()
        return doctor.examine(self._catalog, self._clock)

    def repair(self, name: str) -> list[str]:
        """Cure what has a cure in a topic; what was done, in words."""
        return doctor.repair(self.topic(name), self._catalog, self._clock)

    def sync(self) -> None:
        """Make all rows of the topics opened here durable on disk."""
        for topic in list(self._topics.values()):
            topic.sync()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the log was closed")
        if self._process != os.getpid():
            raise Closed("the log was opened before a fork; open it again in the child")

    def close(self) -> None:
        """Write and sync what waits, and let go of every file."""
        if self._closed:
            return
        self._closed = True
        if self._process != os.getpid():
            return
        first: BaseException | None = None
        for key in self._held:
            try:
                registry.release_partition(key)
            except Exception as error:
                first = first or error
        self._queries.close()
        self._held.clear()
        self._topics.clear()
        registry.release_log(self._key)
        if first is not None:
            raise first

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r}{', closed' if self._closed else ''})"


def _check_same(found: Topic, wanted: Any) -> None:
    here = {(field.name, str(field.type)) for field in found.schema}
    asked = {(field.name, str(field.type)) for field in user_schema(wanted)}
    if here != asked:
        odd = sorted(name for name, _ in here ^ asked)
        raise SchemaMismatch(
            f"topic {found.name!r} is there with other columns: {', '.join(dict.fromkeys(odd))} differ",
            column=odd[0],
            hint="alter() changes a topic's schema",
        )
