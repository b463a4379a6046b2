"""A topic at a broker: the embedded topic's interface, and most of its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from virta.client.append import RemoteAppender, RemoteWriter
from virta.client.catalog import RemoteCatalog, record_from
from virta.client.changes import RemoteChanges
from virta.client.groups import RemoteCoordinator, RemoteGroup
from virta.client.partition import RemotePartition
from virta.client.selection import RemoteSelection
from virta.client.table import RemoteTable
from virta.client.upserts import upsert_at_broker
from virta.errors import UsageError
from virta.metadata.catalog import Catalog, TopicRecord
from virta.metadata.internal import check_not_internal
from virta.metadata.schemas import given_schema
from virta.topics.block import Block
from virta.topics.changes import ChangesFrom
from virta.topics.configuration import changed_config
from virta.topics.erase import keys_of
from virta.topics.events import EventLog
from virta.topics.partition import Partition
from virta.topics.read import Row, chosen, rows_of
from virta.topics.snapshot import ALL, Range
from virta.topics.spread import Spread
from virta.topics.table import AsOf
from virta.topics.topic import Topic
from virta.topics.writer import DEFAULT_BYTES, DEFAULT_LINGER_SECONDS, DEFAULT_ROWS, Writer
from virta.types import Ack, Erasure, Problem, Receipt, Stats, VerifyReport


class RemotePartitionVerbs(Partition):
    """The verbs underneath: blocks and tokens."""

    stored: RemotePartition  # type: ignore[assignment]

    def __getitem__(self, place: int | slice) -> Any:
        """`[10:20]`, `[-2:]`, with offsets, tokens or moments; `[5]` is one row."""
        return chosen(RemoteSelection([self.stored], self._schemas, self._now_us), place)  # type: ignore[list-item]

    def find(self, hash_: str) -> Block:
        """The block with this hash; the first eight digits or more are enough."""
        return self.fetch(self.stored.find(hash_))


class RemoteTopic(Topic):
    """A named stream of rows with a schema."""

    _catalog: RemoteCatalog  # type: ignore[assignment]
    _groups: RemoteCoordinator  # type: ignore[assignment]

    def __init__(
        self,
        catalog: RemoteCatalog,
        record: TopicRecord,
        open_partition: Any,
        events: EventLog,
        groups: RemoteCoordinator,
    ) -> None:
        # the one place where what stands at a broker takes the place of what lies in a directory
        # (what happens to a topic is noted by the broker)
        super().__init__(cast("Catalog", catalog), record, open_partition, events, cast("Any", groups))

    def partition(self, number: int) -> RemotePartitionVerbs:
        """The verbs underneath: blocks and tokens."""
        return RemotePartitionVerbs(super().partition(number).stored, self._schemas, self._now_us)

    @property
    def partitions(self) -> list[Partition]:
        return [self.partition(number) for number in range(len(self._stored))]

    # -- appending -----------------------------------------------------------------------------

    def _appender(self, number: int) -> RemoteAppender:
        found = self._appenders.get(number)
        if found is None:
            made = RemoteAppender(self._stored[number], self._schemas)
            found = self._appenders.setdefault(number, made)
        return cast("RemoteAppender", found)

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
        bounds: dict[str, Any] = {"max_rows": max_rows, "max_bytes": max_bytes, "linger": linger}
        if isinstance(target, Spread):
            return Writer(target, producer=producer, **bounds)
        return RemoteWriter(cast("RemoteAppender", target), producer=producer, **bounds)

    # -- reading ---------------------------------------------------------------------------------

    def _all(self) -> RemoteSelection:
        return RemoteSelection(self._stored, self._schemas, self._now_us)

    def get(self, key: Any) -> Row | None:
        """The row of a key as it is now; None where there is none. One key column: its value will do."""
        self._check_update("get()")
        batches = self._key_reader().batches(key)
        if sum(batch.num_rows for batch in batches) != 1:
            raise UsageError("get() takes one key", hint="table().where(…) finds several")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            writer.write_batch(batches[0])
        value, body = self._ask("get", body=sink.getvalue().to_pybytes())
        if not value["found"]:
            return None
        with pa.ipc.open_stream(body) as reader:
            columns = reader.read_next_batch()
        leading = [
            pa.array([value["offset"]], pa.int64()),
            pa.array([value["timestamp_us"]], pa.timestamp("us", tz="UTC")),
        ]
        whole = pa.RecordBatch.from_arrays(
            [*leading, *columns.columns], ["_offset", "_timestamp", *columns.schema.names]
        )
        return next(rows_of(whole, None, value["partition"]))

    def table(self, *, as_of: AsOf | None = None) -> RemoteTable:
        """The newest row of each key, lazily; or what it was before an offset or a time."""
        self._check_update("table()")
        whole = RemoteTable(self.name, self._stored, self._schemas, self._now_us)
        return whole if as_of is None else cast("RemoteTable", whole.as_of(as_of))

    def changes(self, from_: ChangesFrom | None = None) -> RemoteChanges:
        """What was inserted, updated (before and after) and deleted, from a place on: a stream of changes."""
        self._check_update("changes()")
        return RemoteChanges(self.name, self._stored, self._schemas, self._now_us, from_)

    def upsert(self, rows: Any) -> Ack:
        """Set some columns of the rows of some keys; their others stay. A key without a row gets one.

        The broker completes the rows. Asked again over a new connection, they are not
        written twice.
        """
        self._check_update("upsert()")
        check_not_internal(self.name, "appended to")
        self._fresh()
        given = self._upserts().take(rows)
        if not given:
            return self._appender(0).append([])
        return upsert_at_broker(
            self._ask, cast("list[RemotePartition]", self._stored), [each.batch for each in given]
        )

    def dataset(self) -> Any:
        """The rows of this moment as a `pyarrow.dataset`."""
        import pyarrow.dataset  # it brings pandas along, where that is installed

        return pyarrow.dataset.InMemoryDataset(self.to_arrow())

    def snapshot(self, limits: Range = ALL) -> Any:  # noqa: ARG002
        raise UsageError(
            "a snapshot for queries is taken where the files are", hint="log.sql() asks the broker"
        )

    # -- consumer groups ------------------------------------------------------------------------------

    def group(self, name: str) -> RemoteGroup:
        """A group from outside: where it stands, and putting it somewhere else."""
        return RemoteGroup(self, self._group_key(name), cast("Any", self._groups))

    def groups(self) -> list[str]:
        """The names of the groups on this topic."""
        return self._groups.names(self.name, self.id)

    # -- where it stands ----------------------------------------------------------------------------

    def stats(self) -> Stats:
        value, _ = self._ask("stats")
        return Stats(**value)

    def sync(self) -> None:
        """Make all rows there are durable on disk."""
        self._ask("sync")

    def verify(self, *, against: Any = None, progress: Any = None) -> VerifyReport:
        """Check every byte of it at the broker: hashes, links, order. `against`: heads noted earlier."""
        from virta.storage.verify import Progress
        from virta.topics.verify import heads_by_partition

        arguments: dict[str, Any] = {}
        if against is not None:
            # a file of heads lies on this side, so it is read here
            heads = heads_by_partition(against, len(self._stored))
            arguments["against"] = {str(number): found for number, found in heads.items()}
        told = None
        if progress is not None:
            arguments["progress"] = True

            def told(value: dict[str, Any]) -> None:
                progress(Progress(**value))

        value, _ = self._ask("verify", arguments, progress=told)
        return report_from(value)

    # -- changing --------------------------------------------------------------------------------------

    def alter(self, *, schema: Any = None, renames: Mapping[str, str] | None = None, **options: Any) -> None:
        """Change the schema or the configuration; the topic gets a new version."""
        if schema is not None:
            check_not_internal(self.name, "given other columns")
        changed_config(self._schemas.record.config, options)  # what is wrong is said without asking
        if schema is None and renames:
            raise UsageError("renames go with a schema", hint="give the whole new schema as well")
        arguments: dict[str, Any] = {"options": _plain_options(options)}
        body = b""
        if schema is not None:
            body = given_schema(schema).serialize().to_pybytes()
            if renames:
                arguments["renames"] = dict(renames)
        self._follow(*self._ask("alter", arguments, body=body, can_retry=False))

    def erase(
        self, *, where: str | None = None, keys: Any = None, dry_run: bool = False, progress: Any = None
    ) -> Erasure:
        """Erase rows for good, from every file at the broker: those for which `where` is true, or by key."""
        check_not_internal(self.name, "erased from")
        arguments: dict[str, Any] = {"where": where, "dry_run": dry_run}
        body = b""
        if keys is not None:
            batches = keys_of(keys, self._schemas.record.config.keys, self._schemas.newest())
            body = _stream_of(batches)
        told = None
        if progress is not None:
            arguments["progress"] = True

            def told(value: int) -> None:
                progress(value)

        # what was erased once is not there to be erased again, so it may be asked twice
        value, _ = self._ask("erase", arguments, body=body, progress=told)
        return Erasure(**value)

    def lock(self) -> None:
        """Take no more rows, for good."""
        check_not_internal(self.name, "locked")
        self._follow(*self._ask("lock", can_retry=False))

    def _follow(self, value: Any, _: Any) -> None:
        self._schemas.record = record_from(value)

    def _ask(self, verb: str, arguments: dict[str, Any] | None = None, **more: Any) -> tuple[Any, memoryview]:
        record = self._schemas.record
        return self._catalog.administer(verb, record.name, arguments=arguments, topic_id=record.id, **more)


def _stream_of(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them; durations become seconds."""
    from datetime import timedelta

    return {
        name: f"{value.total_seconds()}s" if isinstance(value, timedelta) else value
        for name, value in options.items()
    }


def report_from(value: dict[str, Any]) -> VerifyReport:
    """A report of `verify` as it came over the wire."""
    until = value.get("trustworthy_until")
    return VerifyReport(
        blocks=value["blocks"],
        rows=value["rows"],
        bytes=value["bytes"],
        heads={int(number): head for number, head in value["heads"].items()},
        problems=tuple(Problem(**problem) for problem in value["problems"]),
        trustworthy_until=None
        if until is None
        else {int(number): offset for number, offset in until.items()},
        receipts=tuple(Receipt(**receipt) for receipt in value["receipts"]),
    )
