"""A topic: append to it, read it, ask where it stands. The interface of API.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.errors import Denied, Locked, NotFound, UsageError, VirtaError
from virta.memory.partition import Partition as StoredPartition
from virta.memory.rewrite import Rewritten, event_of
from virta.memory.waiting import wait_for_any
from virta.metadata.catalog import Catalog, TopicRecord
from virta.metadata.internal import check_not_internal
from virta.metadata.schemas import DELETED, check_keys, evolve, stored_schema, user_schema, written_schema
from virta.topics.append import Appender, finish_change
from virta.topics.changes import Changes, ChangesFrom
from virta.topics.configuration import changed_config
from virta.topics.difference import Difference, keyed, newest_of_keys
from virta.topics.erase import Eraser, erase_rows, keys_of
from virta.topics.events import ALTERED, ERASED, LOCKED, SCHEMA_CHANGED, EventLog
from virta.topics.filters import parse_filter
from virta.topics.groups.coordinator import GroupCoordinator
from virta.topics.groups.group import Group
from virta.topics.groups.model import DEFAULT_SESSION_SECONDS, GroupKey
from virta.topics.groups.outlet import Outlet
from virta.topics.groups.reader import AT_LEAST_ONCE, DEFAULT_PROCESSING_SECONDS, GroupReader
from virta.topics.groups.retry import Retry
from virta.topics.key_values import KeyReader
from virta.topics.lookup import Lookup
from virta.topics.partition import Partition
from virta.topics.read import Moment, Place, Row, Selection, between, chosen
from virta.topics.schema import SchemaSource
from virta.topics.snapshot import ALL, Range, TopicSnapshot
from virta.topics.spread import Spread
from virta.topics.table import AsOf, Table
from virta.topics.tombstones import tombstones
from virta.topics.upserts import Upserts, upsert
from virta.topics.verify import verify_topic
from virta.topics.versions import TopicVersion, VersionChange, changes_between, find_version, history
from virta.topics.writer import DEFAULT_BYTES, DEFAULT_LINGER_SECONDS, DEFAULT_ROWS, Writer
from virta.types import Ack, Erasure, Kind, Stats, Token, TopicConfig, VerifyReport

if TYPE_CHECKING:
    import pyarrow.dataset

OpenPartition = Callable[[TopicRecord, int, SchemaSource], StoredPartition]


class Topic:
    """A named stream of rows with a schema."""

    def __init__(
        self,
        catalog: Catalog,
        record: TopicRecord,
        open_partition: OpenPartition,
        events: EventLog,
        groups: GroupCoordinator,
    ) -> None:
        self._catalog = catalog
        self._events = events
        self._groups = groups
        self._schemas = SchemaSource(catalog, record)
        self._stored = [
            open_partition(record, number, self._schemas) for number in range(record.config.partitions)
        ]
        self._appenders: dict[int, Appender] = {}
        self._usual: Appender | Spread | None = None  # what takes rows when no partition is named
        self._spread = Spread(self._appender, len(self._stored))
        self._keys: tuple[pa.Schema, KeyReader] | None = None
        self._now_us = catalog.clock.now_us

    # -- what it is --------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._schemas.record.name

    @property
    def id(self) -> str:
        return self._schemas.record.id.hex()

    @property
    def version(self) -> int:
        """Rises with every change of configuration or schema."""
        return self._fresh().version

    @property
    def config(self) -> TopicConfig:
        return self._fresh().config

    @property
    def kind(self) -> Kind:
        return self._schemas.record.config.kind

    @property
    def schema(self) -> pa.Schema:
        """The user's columns."""
        self._fresh()
        return user_schema(self._schemas.newest())

    def _fresh(self) -> TopicRecord:
        """The record in force: read again when the partition says that it changed."""
        with self._stored[-1].view() as view:  # a change reaches the partitions in their order
            current = view.state.topic_version
        if current != self._schemas.record.version:
            self._schemas.reload()
        return self._schemas.record

    def partition(self, number: int) -> Partition:
        """The verbs underneath: blocks and tokens."""
        if not 0 <= number < len(self._stored):
            raise NotFound(
                f"topic {self.name!r} has no partition {number}",
                hint=f"its partitions are 0 to {len(self._stored) - 1}",
            )
        return Partition(self._stored[number], self._schemas, self._now_us)

    @property
    def partitions(self) -> list[Partition]:
        return [Partition(stored, self._schemas, self._now_us) for stored in self._stored]

    def _one(self, what: str) -> StoredPartition:
        """The only partition; with several, positions belong to each of them."""
        if len(self._stored) != 1:
            raise UsageError(
                f"{what} is a matter of one partition, and topic {self.name!r} has {len(self._stored)}",
                hint="ask topic.partition(n); next_offsets and heads have them all",
            )
        return self._stored[0]

    # -- appending -----------------------------------------------------------------------------

    def _appender(self, number: int) -> Appender:
        found = self._appenders.get(number)
        if found is None:
            found = self._appenders.setdefault(number, Appender(self._stored[number], self._schemas))
        return found

    def _target(self, partition: int | None) -> Appender | Spread:
        """What takes rows: one partition, or all of them as the partitioner says."""
        check_not_internal(self.name, "appended to")
        if partition is None:
            self._usual = self._spread if len(self._stored) > 1 else self._appender(0)
            return self._usual
        self.partition(partition)
        return self._appender(partition)

    def append(self, rows: Any, *, partition: int | None = None, if_next_offset: int | None = None) -> Ack:
        """Append a row (a dict), a list of rows, or anything that speaks Arrow.

        Durable to the topic's level when it returns. With `if_next_offset`, only if the
        next offset is that one; Conflict otherwise, and nothing is written. Rows go to
        partitions by their keys, unless one is named; `ack.parts` says to which, and it is
        atomic for each of them only.
        """
        target = self._usual if partition is None else None
        return (target or self._target(partition)).append(rows, expected_offset=if_next_offset)

    def _append_own(self, rows: Any) -> Ack:
        """Append to a topic that Virta keeps for itself."""
        return self._appender(0).append(rows)

    # -- a topic of kind update: a table by its keys -----------------------------------------------

    def _check_update(self, what: str) -> TopicRecord:
        record = self._schemas.record
        if record.config.kind is not Kind.UPDATE:
            raise UsageError(
                f"{what} is for topics of kind 'update', and {self.name!r} is of kind '{record.config.kind}'",
                hint="every row of it stays; create_topic(kind='update', keys=[…]) makes a table",
            )
        return record

    def _key_reader(self) -> KeyReader:
        schema, keys = self._schemas.newest(), self._schemas.record.config.keys
        known = self._keys
        if known is None or known[0] is not schema:
            known = self._keys = schema, KeyReader(schema, keys)
        return known[1]

    def _lookup(self, stored: StoredPartition) -> Lookup:
        found: Lookup = stored.shared("lookup", lambda: Lookup(stored, self._schemas))
        return found

    def get(self, key: Any) -> Row | None:
        """The row of a key as it is now; None where there is none. One key column: its value will do."""
        self._check_update("get()")
        wanted = self._key_reader().read(key)
        if len(self._stored) == 1:
            return self._lookup(self._stored[0]).get(wanted)
        found = [row for stored in self._stored if (row := self._lookup(stored).get(wanted)) is not None]
        return max(found, key=lambda row: row.timestamp, default=None)

    def table(self, *, as_of: AsOf | None = None) -> Table:
        """The newest row of each key, lazily; or what it was before an offset or a time."""
        self._check_update("table()")
        whole = Table(self.name, self._stored, self._schemas, self._now_us)
        return whole if as_of is None else whole.as_of(as_of)

    def by_key(self, keys: Any = None, *, as_of: AsOf | None = None) -> pa.Table:
        """The newest row of each key, of a topic of any kind and by any columns: what `diff` compares."""
        own = self._schemas.record.config.keys
        chosen = keyed(self.name, own, keys)
        check_keys(self.schema, chosen)
        if self.kind is Kind.UPDATE:
            found = self.table(as_of=as_of).to_arrow()
            return found if set(chosen) == set(own) else newest_of_keys(found, chosen)
        return newest_of_keys(self._before(as_of).to_arrow(), chosen)

    def _before(self, moment: AsOf | None) -> Selection:
        """The rows before an offset, a token or a time."""
        if moment is None:
            return self._all()
        if isinstance(moment, Mapping):
            if len(self._stored) != 1:
                raise UsageError(
                    f"offsets are a matter of one partition, and topic {self.name!r} has {len(self._stored)}",
                    hint="a moment spans all of them",
                )
            moment = moment[0]
        if isinstance(moment, int | Token):
            self._one("an offset")
            return self._between(None, moment)
        return self._all().until(moment)

    def changes(self, from_: ChangesFrom | None = None) -> Changes:
        """What was inserted, updated (before and after) and deleted, from a place on: a stream of changes."""
        self._check_update("changes()")
        return Changes(self.name, self._stored, self._schemas, self._now_us, from_)

    def diff(self, before: AsOf, after: AsOf | None = None, *, keys: Any = None) -> Difference:
        """What is different between the table as of one offset or time and as of another, or now.

        Rows are held against each other by the topic's keys, or by those that are named; where
        every row of a topic stays, the newest one of each key counts.
        """
        chosen = keyed(self.name, self._schemas.record.config.keys, keys)
        check_keys(self.schema, chosen)
        names = (self.name, self.name)
        read = (lambda: self.by_key(chosen, as_of=before), lambda: self.by_key(chosen, as_of=after))
        return Difference(names, chosen, lambda: (read[0](), read[1]()))

    def upsert(self, rows: Any) -> Ack:
        """Set some columns of the rows of some keys; their others stay. A key without a row gets one.

        Rows name their key and the columns to set: dicts, or Arrow data. No column that
        somebody else sets meanwhile is lost.
        """
        self._check_update("upsert()")
        check_not_internal(self.name, "appended to")
        self._fresh()
        return upsert(rows, self._upserts, self._parts())

    def _parts(self) -> list[tuple[Lookup, Appender]]:
        return [(self._lookup(stored), self._appender(at)) for at, stored in enumerate(self._stored)]

    def check_upsert(self, rows: Any) -> None:
        """Refuse rows whose columns or values an upsert would refuse; writes nothing."""
        self._check_update("upsert()")
        self._fresh()
        self._upserts().take(rows)

    def _upserts(self) -> Upserts:
        return Upserts(self._schemas.newest(), self._schemas.record.config.keys, self._key_reader())

    def delete(self, keys: Any) -> Ack:
        """Delete the rows of these keys: one key, a list of them, or Arrow with the key columns."""
        self._check_update("delete()")
        self._fresh()
        batches = self._key_reader().batches(keys)
        written = written_schema(self._schemas.newest())
        return self.append(pa.Table.from_batches([tombstones(batch, written) for batch in batches], written))

    # -- writers ----------------------------------------------------------------------------------

    def writer(
        self,
        *,
        producer: str | None = None,
        partition: int | None = None,
        max_rows: int = DEFAULT_ROWS,
        max_bytes: int = DEFAULT_BYTES,
        linger: float = DEFAULT_LINGER_SECONDS,
    ) -> Writer:
        """A buffered writer; with a producer name it is exactly once over crashes too."""
        target = self._target(partition)
        return Writer(target, producer=producer, max_rows=max_rows, max_bytes=max_bytes, linger=linger)

    # -- reading ---------------------------------------------------------------------------------

    def _all(self) -> Selection:
        return Selection(self._stored, self._schemas, self._now_us)

    def __getitem__(self, place: int | slice) -> Any:
        """`topic[10:20]`, `topic[-2:]`, with offsets, tokens or moments; `topic[5]` is one row."""
        return chosen(self._all(), place)

    def _between(self, start: Place, end: Place) -> Selection:
        return between(self._all(), start, end)

    def since(self, moment: Moment) -> Selection:
        return self._all().since(moment)

    def until(self, moment: Moment) -> Selection:
        return self._all().until(moment)

    def where(self, expression: str) -> Selection:
        return self._all().where(expression)

    def columns(self, *names: str) -> Selection:
        return self._all().columns(*names)

    def limit(self, rows: int) -> Selection:
        return self._all().limit(rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._all())

    def to_arrow(self) -> pa.Table:
        return self._all().to_arrow()

    def count(self) -> int:
        return self._all().count()

    def dataset(self) -> pyarrow.dataset.Dataset:
        """The rows of this moment as a `pyarrow.dataset`, for engines that push columns and filters down."""
        return self.snapshot().dataset()

    def snapshot(self, limits: Range = ALL) -> TopicSnapshot:
        """What queries read: all partitions, each up to its end as of now; or the rows in a range."""
        return TopicSnapshot(self.name, self._stored, self._newest_schema, limits)

    def _newest_schema(self) -> pa.Schema:
        self._fresh()
        return self._schemas.newest()

    def tail(self, *, stop_when_idle: float | None = None) -> Iterator[Row]:
        """What is there, then what comes."""
        return self._all().tail(stop_when_idle=stop_when_idle)

    # -- consumer groups -------------------------------------------------------------------------

    def reader(
        self,
        *,
        group: str,
        member: str | None = None,
        start: Moment = "oldest",
        delivery: str = AT_LEAST_ONCE,
        session_timeout: Any = DEFAULT_SESSION_SECONDS,
        processing_timeout: Any = DEFAULT_PROCESSING_SECONDS,
        retry: Retry | None = None,
        into: Any = None,
    ) -> GroupReader:
        """Read as a member of a group: its readers share the partitions, and it remembers how far they came.

        `member`: a name that stays over restarts, whose partitions wait for it as long as
        `session_timeout`. `start`: where a group without a position begins ("oldest",
        "newest", a moment). A body may take up to `processing_timeout`; then its partitions
        go to others. `retry`: how often and when what fails in `reader.attempt()` is tried again.
        `into`: a topic that what the body sends goes to, exactly once.
        """
        return GroupReader(
            self.partitions,
            self._group_key(group),
            self._groups,
            wait_for_any,
            now_us=self._now_us,
            member=member,
            start=start,
            delivery=delivery,
            session_timeout=session_timeout,
            processing_timeout=processing_timeout,
            retry=retry,
            outlet=None if into is None else Outlet(into, self._group_key(group)),
        )

    def _group_key(self, group: str) -> GroupKey:
        return GroupKey(group=group, topic=self.name, topic_id=self.id)

    def group(self, name: str) -> Group:
        """A group from outside: where it stands, and putting it somewhere else."""
        return Group(self, self._group_key(name), self._groups)

    def groups(self) -> list[str]:
        """The names of the groups on this topic."""
        return sorted(key.group for key in self._groups.list_keys() if key.topic_id == self.id)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._all().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._all().__arrow_c_schema__()

    # -- where it stands ----------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        return self._one("next_offset").next_offset

    @property
    def start_offset(self) -> int:
        return self._one("start_offset").start_offset

    @property
    def durable_offset(self) -> int:
        """Rows before it survive a power loss."""
        return self._one("durable_offset").durable_offset

    @property
    def head(self) -> str:
        """The hash of the newest block: it names the whole history before it."""
        return self._one("head").head.hex()

    @property
    def next_offsets(self) -> Mapping[int, int]:
        return {number: stored.next_offset for number, stored in enumerate(self._stored)}

    @property
    def heads(self) -> Mapping[int, str]:
        return {number: stored.head.hex() for number, stored in enumerate(self._stored)}

    def token(self, offset: int) -> Token:
        """Where a reader stands whose next row has this offset."""
        return self.partition(self._one("a token").identity.number).token(offset)

    def stats(self) -> Stats:
        return combined([stored.stats() for stored in self._stored])

    def sync(self) -> None:
        """Make all rows there are durable on disk."""
        for stored in self._stored:
            stored.sync()

    def verify(self, *, against: str | Mapping[int, str] | None = None, progress: Any = None) -> VerifyReport:
        """Check every byte of it: hashes, links, order, files. `against`: heads noted earlier."""
        return verify_topic(self._stored, self._schemas, against=against, progress=progress)

    # -- changing --------------------------------------------------------------------------------------

    def alter(self, *, schema: Any = None, renames: Mapping[str, str] | None = None, **options: Any) -> None:
        """Change the schema or the configuration; the topic gets a new version.

        A schema may gain columns that may be null, widen types, give up "not null", and
        rename columns (`renames`: old name to new). What would make old rows unreadable
        is refused.
        """
        record = self._fresh()
        if record.config.locked:
            raise Denied(f"topic {self.name!r} is locked")
        if schema is not None:
            check_not_internal(self.name, "given other columns")
        config = changed_config(record.config, options)
        newest = self._schemas.newest()
        wanted = None
        if schema is None and renames:
            raise UsageError("renames go with a schema", hint="give the whole new schema as well")
        if schema is not None:
            config = dataclasses.replace(
                config, keys=tuple((renames or {}).get(key, key) for key in config.keys)
            )
            evolved = evolve(user_schema(newest), schema, renames=renames)
            wanted = stored_schema(evolved, tombstones=DELETED in newest.names)
            check_keys(user_schema(wanted), config.keys)
            if wanted.equals(newest, check_metadata=True):
                wanted = None
        if wanted is None and config == record.config:
            return
        self._change(record, config, wanted)

    def _change(self, record: TopicRecord, config: TopicConfig, schema: pa.Schema | None) -> None:
        """Put a new version in force, with all partitions' locks taken in order."""
        self._events.complete(record, user_schema(self._schemas.version(record.schema_version)))
        following = dataclasses.replace(
            record,
            version=record.version + 1,
            schema_version=record.schema_version + (schema is not None),
            config=config,
        )
        held: list[Any] = []
        try:
            for stored in self._stored:
                writing = stored.writing()
                committer = writing.__enter__()
                held.append(writing)
                if committer.view.state.topic_version != record.version:
                    raise UsageError(
                        f"topic {self.name!r} was changed by somebody else meanwhile", hint="try again"
                    )
            self._catalog.replace(following, schema)
            self._schemas.record = following
        finally:
            for writing in reversed(held):
                writing.__exit__(None, None, None)
        for stored in self._stored:
            finish_change(stored, following)
        kind = LOCKED if config.locked else ALTERED if schema is None else SCHEMA_CHANGED
        self._events.record_version(
            following, user_schema(self._schemas.version(following.schema_version)), kind
        )

    def erase(
        self, *, where: str | None = None, keys: Any = None, dry_run: bool = False, progress: Any = None
    ) -> Erasure:
        """Erase rows for good, from every file: those for which `where` is true, or with these keys.

        A key is a dict with a value for each key column; several are a list of them. In an update
        topic every version of a key goes. The topic has to allow it (`row_deletion`). Rows appended
        meanwhile are not looked at; backups and other topics are not touched. `progress` is told
        how many bytes were rewritten.
        """
        return self._erase_by(Eraser, where=where, keys=keys, dry_run=dry_run, progress=progress)

    def _erase_by(
        self,
        kind: Callable[..., Eraser],
        *,
        where: str | None = None,
        keys: Any = None,
        dry_run: bool = False,
        progress: Any = None,
    ) -> Erasure:
        """As `erase`, with the work done by this kind of eraser."""
        check_not_internal(self.name, "erased from")
        record = self._fresh()
        if not record.config.row_deletion and not dry_run:
            raise Denied(
                f"topic {self.name!r} does not allow the erasure of rows",
                hint="allow it with alter(row_deletion=True) first",
            )
        if record.config.locked:
            raise Locked(f"the topic {self.name!r} is locked: it stays as it is")
        if (where is None) == (keys is None):
            raise UsageError(
                "erase() takes either a condition or keys", hint="topic.erase(where=\"user = 'ada'\")"
            )
        schema = self._schemas.newest()
        chosen = None if where is None else parse_filter(where)
        if chosen is not None:
            chosen.check(schema)
        return erase_rows(
            self.name,
            self._stored,
            record.config,
            schema,
            where=chosen,
            keys=None if keys is None else keys_of(keys, record.config.keys, schema),
            dry_run=dry_run,
            on_done=self._note_erasures,
            advance=progress or (lambda _: None),
            kind=kind,
        )

    # -- versions ----------------------------------------------------------------------------------

    def history(self) -> list[TopicVersion]:
        """Every version of the topic, oldest first: when, by whom, its columns and its configuration."""
        record = self._fresh()
        rows = self._events.rows(record.id)
        return history(rows, record, user_schema(self._schemas.version(record.schema_version)))

    def version_changes(self, before: int, after: int = -1) -> list[VersionChange]:
        """What is different between two versions: settings and columns; -1 is the newest."""
        versions = self.history()
        found = [find_version(versions, number, self.name) for number in (before, after)]
        return changes_between(found[0], found[1])

    def at_version(self, number: int) -> Selection:
        """All rows, also newer ones, with the columns that the topic had at this version.

        Columns that came later are left out, renamed ones have their old names, widened ones
        their old types; a value that does not fit them is a SchemaMismatch.
        """
        return self._all().under_schema(self.schema_version_of(number))

    def schema_version_of(self, number: int) -> int:
        """The version of the schema that a version of the topic had."""
        return find_version(self.history(), number, self.name).schema_version

    def _note_erasures(self, stored: StoredPartition, done: list[Rewritten]) -> None:
        for each in done:
            self._events.record(event_of(stored, ERASED, each, topic_version=self._schemas.record.version))

    def lock(self) -> None:
        """Take no more rows, for good."""
        check_not_internal(self.name, "locked")
        record = self._fresh()
        if record.config.locked:
            return
        self.sync()
        self._change(record, dataclasses.replace(record.config, locked=True), None)

    def __len__(self) -> int:
        return sum(stored.row_count for stored in self._stored)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        try:
            columns = len(user_schema(self._schemas.newest()))
            heads = self.heads
            head = heads[0][:8] if len(heads) == 1 else f"{len(heads)} partitions"
            return f"Topic({self.name!r}, {len(self):,} rows, {columns} columns, head {head})"
        except VirtaError as error:
            return f"Topic({self.name!r}, {error.code})"

    def _repr_html_(self) -> str:
        newest = self._between(-10, None) if len(self._stored) == 1 else self._all()
        return f"<b>{self!r}</b>{newest._repr_html_()}"


def combined(parts: list[Stats]) -> Stats:
    """The statistics of several partitions as one."""
    if len(parts) == 1:
        return parts[0]
    return Stats(
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        blocks=sum(part.blocks for part in parts),
        segments=sum(part.segments for part in parts),
        start_offset=sum(part.start_offset for part in parts),
        next_offset=sum(part.next_offset for part in parts),
        memory_bytes=sum(part.memory_bytes for part in parts),
    )
