"""A topic, awaited. What only names or narrows (`orders[10:20]`, `partition(0)`) is not."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from virta.aio.changes import AsyncChanges
from virta.aio.groups import AsyncGroup, AsyncGroupReader
from virta.aio.partition import AsyncPartition
from virta.aio.reading import AsyncReading
from virta.aio.selection import AsyncSelection
from virta.aio.table import AsyncTable
from virta.aio.worker import Opening, Worker
from virta.aio.writer import AsyncWriter
from virta.topics.changes import ChangesFrom
from virta.topics.difference import Difference
from virta.topics.groups.model import DEFAULT_SESSION_SECONDS
from virta.topics.groups.reader import AT_LEAST_ONCE, DEFAULT_PROCESSING_SECONDS
from virta.topics.groups.retry import Retry
from virta.topics.read import Moment, Place, Row
from virta.topics.table import AsOf
from virta.topics.topic import Topic
from virta.topics.versions import TopicVersion, VersionChange
from virta.topics.writer import DEFAULT_BYTES, DEFAULT_LINGER_SECONDS, DEFAULT_ROWS
from virta.types import Ack, Erasure, Kind, Stats, Token, TopicConfig, VerifyReport

if TYPE_CHECKING:
    import pyarrow.dataset


class AsyncTopic:
    """A named stream of rows with a schema."""

    def __init__(self, worker: Worker, sync: Topic) -> None:
        self._worker = worker
        self._sync = sync

    # -- what it is --------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._sync.name

    @property
    def id(self) -> str:
        return self._sync.id

    @property
    def kind(self) -> Kind:
        return self._sync.kind

    @property
    def version(self) -> Awaitable[int]:
        """Rises with every change of configuration or schema."""
        return self._worker.run(lambda: self._sync.version)

    @property
    def config(self) -> Awaitable[TopicConfig]:
        return self._worker.run(lambda: self._sync.config)

    @property
    def schema(self) -> Awaitable[pa.Schema]:
        """The user's columns."""
        return self._worker.run(lambda: self._sync.schema)

    def partition(self, number: int) -> AsyncPartition:
        """The verbs underneath: blocks and tokens."""
        return AsyncPartition(self._worker, self._sync.partition(number))

    @property
    def partitions(self) -> list[AsyncPartition]:
        return [AsyncPartition(self._worker, each) for each in self._sync.partitions]

    # -- appending -----------------------------------------------------------------------------

    async def append(
        self, rows: Any, *, partition: int | None = None, if_next_offset: int | None = None
    ) -> Ack:
        """Append a row (a dict), a list of rows, or anything that speaks Arrow.

        Durable to the topic's level when it returns. With `if_next_offset`, only if the
        next offset is that one; Conflict otherwise, and nothing is written. Rows go to
        partitions by their keys, unless one is named; `ack.parts` says to which, and it is
        atomic for each of them only.
        """
        return await self._worker.run(
            self._sync.append, rows, partition=partition, if_next_offset=if_next_offset
        )

    # -- a topic of kind update: a table by its keys -----------------------------------------------

    async def get(self, key: Any) -> Row | None:
        """The row of a key as it is now; None where there is none. One key column: its value will do."""
        return await self._worker.run(self._sync.get, key)

    def table(self, *, as_of: AsOf | None = None) -> AsyncTable:
        """The newest row of each key, lazily; or what it was before an offset or a time."""
        return AsyncTable(self._worker, self._sync.table(as_of=as_of))

    async def by_key(self, keys: Any = None, *, as_of: AsOf | None = None) -> pa.Table:
        """The newest row of each key, of a topic of any kind and by any columns: what `diff` compares."""
        return await self._worker.run_apart(lambda: self._sync.by_key(keys, as_of=as_of))

    async def diff(self, before: AsOf, after: AsOf | None = None, *, keys: Any = None) -> Difference:
        """What is different between the table as of one offset or time and as of another, or now."""
        return await self._worker.run_apart(lambda: worked_out(self._sync.diff(before, after, keys=keys)))

    def changes(self, from_: ChangesFrom | None = None) -> AsyncChanges:
        """What was inserted, updated (before and after) and deleted, from a place on: a stream of changes."""
        return AsyncChanges(self._worker, self._sync.changes(from_))

    async def upsert(self, rows: Any) -> Ack:
        """Set some columns of the rows of some keys; their others stay. A key without a row gets one."""
        return await self._worker.run(self._sync.upsert, rows)

    async def check_upsert(self, rows: Any) -> None:
        """Refuse rows whose columns or values an upsert would refuse; writes nothing."""
        await self._worker.run(self._sync.check_upsert, rows)

    async def delete(self, keys: Any) -> Ack:
        """Delete the rows of these keys: one key, a list of them, or Arrow with the key columns."""
        return await self._worker.run(self._sync.delete, keys)

    # -- writers ----------------------------------------------------------------------------------

    def writer(
        self,
        *,
        producer: str | None = None,
        partition: int | None = None,
        max_rows: int = DEFAULT_ROWS,
        max_bytes: int = DEFAULT_BYTES,
        linger: float = DEFAULT_LINGER_SECONDS,
    ) -> Opening[AsyncWriter]:
        """A buffered writer; with a producer name it is exactly once over crashes too."""

        async def start() -> AsyncWriter:
            sync = await self._worker.run(
                self._sync.writer,
                producer=producer,
                partition=partition,
                max_rows=max_rows,
                max_bytes=max_bytes,
                linger=min(linger, 0),  # no thread for it: the event loop has timers
            )
            return AsyncWriter(self._worker, sync, linger)

        return Opening(start)

    # -- reading ---------------------------------------------------------------------------------

    @overload
    def __getitem__(self, place: int) -> Awaitable[Row]: ...

    @overload
    def __getitem__(self, place: slice[Place, Place, None]) -> AsyncSelection: ...

    def __getitem__(self, place: int | slice) -> Awaitable[Row] | AsyncSelection:
        """`topic[10:20]`, `topic[-2:]`, with offsets, tokens or moments; `await topic[5]` is one row."""
        if isinstance(place, slice):
            return AsyncSelection(self._worker, self._sync[place])
        return self._worker.run(self._sync.__getitem__, place)

    def _all(self) -> AsyncSelection:
        return self[:]

    def since(self, moment: Moment) -> AsyncSelection:
        return self._all().since(moment)

    def until(self, moment: Moment) -> AsyncSelection:
        return self._all().until(moment)

    def where(self, expression: str) -> AsyncSelection:
        return self._all().where(expression)

    def columns(self, *names: str) -> AsyncSelection:
        return self._all().columns(*names)

    def limit(self, rows: int) -> AsyncSelection:
        return self._all().limit(rows)

    def __aiter__(self) -> AsyncReading[Row]:
        return self._all().__aiter__()

    async def to_arrow(self) -> pa.Table:
        return await self._all().to_arrow()

    async def count(self) -> int:
        return await self._all().count()

    async def dataset(self) -> pyarrow.dataset.Dataset:
        """The rows of this moment as a `pyarrow.dataset`, for engines that push columns and filters down."""
        return await self._worker.run_apart(self._sync.dataset)

    def tail(self, *, stop_when_idle: float | None = None) -> AsyncReading[Row]:
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
    ) -> Opening[AsyncGroupReader]:
        """Read as a member of a group: its readers share the partitions, and it remembers how far they came.

        `member`: a name that stays over restarts, whose partitions wait for it as long as
        `session_timeout`. `start`: where a group without a position begins ("oldest",
        "newest", a moment). A body may take up to `processing_timeout`; then its partitions
        go to others. `retry`: how often and when what fails in `reader.attempt()` is tried again.
        `into`: a topic that what the body sends goes to, exactly once.
        """

        async def start_reading() -> AsyncGroupReader:
            sync = await self._worker.run(
                self._sync.reader,
                group=group,
                member=member,
                start=start,
                delivery=delivery,
                session_timeout=session_timeout,
                processing_timeout=processing_timeout,
                retry=retry,
                into=None if into is None else into._sync,
            )
            return AsyncGroupReader(self._worker, sync)

        return Opening(start_reading)

    def group(self, name: str) -> AsyncGroup:
        """A group from outside: where it stands, and putting it somewhere else."""
        return AsyncGroup(self._worker, self._sync.group(name))

    async def groups(self) -> list[str]:
        """The names of the groups on this topic."""
        return await self._worker.run(self._sync.groups)

    # -- where it stands ----------------------------------------------------------------------------

    @property
    def next_offset(self) -> Awaitable[int]:
        return self._worker.run(lambda: self._sync.next_offset)

    @property
    def start_offset(self) -> Awaitable[int]:
        return self._worker.run(lambda: self._sync.start_offset)

    @property
    def durable_offset(self) -> Awaitable[int]:
        """Rows before it survive a power loss."""
        return self._worker.run(lambda: self._sync.durable_offset)

    @property
    def head(self) -> Awaitable[str]:
        """The hash of the newest block: it names the whole history before it."""
        return self._worker.run(lambda: self._sync.head)

    @property
    def next_offsets(self) -> Awaitable[Mapping[int, int]]:
        return self._worker.run(lambda: self._sync.next_offsets)

    @property
    def heads(self) -> Awaitable[Mapping[int, str]]:
        return self._worker.run(lambda: self._sync.heads)

    async def token(self, offset: int) -> Token:
        """Where a reader stands whose next row has this offset."""
        return await self._worker.run(self._sync.token, offset)

    async def stats(self) -> Stats:
        return await self._worker.run(self._sync.stats)

    async def sync(self) -> None:
        """Make all rows there are durable on disk."""
        await self._worker.run(self._sync.sync)

    async def verify(
        self, *, against: str | Mapping[int, str] | None = None, progress: Any = None
    ) -> VerifyReport:
        """Check every byte of it: hashes, links, order, files. `against`: heads noted earlier."""
        if progress is not None:
            progress = self._worker.tell(progress)
        return await self._worker.run_apart(self._sync.verify, against=against, progress=progress)

    # -- changing --------------------------------------------------------------------------------------

    async def alter(
        self, *, schema: Any = None, renames: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        """Change the schema or the configuration; the topic gets a new version."""
        await self._worker.run(self._sync.alter, schema=schema, renames=renames, **options)

    async def erase(
        self, *, where: str | None = None, keys: Any = None, dry_run: bool = False, progress: Any = None
    ) -> Erasure:
        """Erase rows for good, from every file: those for which `where` is true, or with these keys."""
        return await self._worker.run(
            self._sync.erase, where=where, keys=keys, dry_run=dry_run, progress=progress
        )

    async def history(self) -> list[TopicVersion]:
        """Every version of the topic, oldest first: when, by whom, its columns and its configuration."""
        return await self._worker.run(self._sync.history)

    async def version_changes(self, before: int, after: int = -1) -> list[VersionChange]:
        """What is different between two versions: settings and columns. -1 is the newest."""
        return await self._worker.run(self._sync.version_changes, before, after)

    async def at_version(self, number: int) -> AsyncSelection:
        """All rows, also newer ones, with the columns that the topic had at this version."""
        return AsyncSelection(self._worker, await self._worker.run(self._sync.at_version, number))

    async def schema_version_of(self, number: int) -> int:
        """The version of the schema that a version of the topic had."""
        return await self._worker.run(self._sync.schema_version_of, number)

    async def lock(self) -> None:
        """Take no more rows, for good."""
        await self._worker.run(self._sync.lock)

    def __repr__(self) -> str:
        return f"AsyncTopic({self.name!r})"


def worked_out(found: Difference) -> Difference:
    """In a thread, so that nobody works it out in the event loop."""
    len(found)
    return found
