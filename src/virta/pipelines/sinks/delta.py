"""A Delta table as a sink, through the package `deltalake`: no Spark, no Java.

Each commit carries an application transaction (the flow's name and the batch's number) and
the source's position. The format keeps the newest number but takes the same one twice, so
it is looked at first; the journal's lock keeps a second runner away in between.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.errors import SchemaMismatch, UnavailableError
from virta.metadata.schemas import DELETED
from virta.pipelines.sinks.base import UPSERT, Batch, Committed, Sink, check_mode, newest_by_key
from virta.pipelines.sinks.lake import as_lake, check_partition_by, lake_schema

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_POSITION = "virta.position"
# Our own newest commit is looked for among so many: others may write to the table too.
_LOOK_BACK = 100


class DeltaSink(Sink):
    """A Delta table at a path or address."""

    def __init__(
        self,
        *,
        path: str,
        mode: str = "append",
        keys: tuple[str, ...] = (),
        partition_by: tuple[str, ...] = (),
        provenance: bool = False,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self._path = path
        self._mode = mode
        self._keys = keys
        self._partition_by = list(partition_by)
        self.provenance = provenance
        self._storage = storage_options

    def describe(self) -> str:
        return f"Delta table {self._path}"

    def check(self, schema: pa.Schema | None, keys: tuple[str, ...]) -> None:
        _import()
        self._keys = self._keys or keys
        check_mode(self._mode, self._keys, self.describe())
        if schema is not None:
            lake_schema(schema)
            check_partition_by(self._partition_by, schema, self.describe(), provenance=self.provenance)

    def _table(self) -> DeltaTable | None:
        deltalake = _import()
        if not deltalake.DeltaTable.is_deltatable(self._path, self._storage):
            return None
        return deltalake.DeltaTable(self._path, storage_options=self._storage)  # type: ignore[no-any-return]

    def committed(self, flow: str) -> Committed | None:
        table = self._table()
        number = None if table is None else table.transaction_version(flow)
        if table is None or number is None:
            return None
        for commit in table.history(_LOOK_BACK):
            known = commit.get(_POSITION)
            if known is not None:
                noted = json.loads(known)
                if noted["flow"] == flow and noted["number"] == number:
                    return Committed(number=number, position=noted["position"])
        return Committed(number=number)

    def commit(self, batch: Batch) -> None:
        if batch.schema is None:
            return
        found = self.committed(batch.flow)
        if found is not None and found.number >= batch.number:
            return
        schema = lake_schema(batch.schema)
        kept = pa.schema([field for field in schema if self._mode != UPSERT or field.name != DELETED])
        table = self._prepared(kept)
        noted = self._noted(batch)
        if self._mode == UPSERT:
            self._merge(table, batch, schema, noted)
            return
        rows = pa.RecordBatchReader.from_batches(schema, as_lake(batch.rows(), schema))
        _import().write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=noted)

    def _prepared(self, schema: pa.Schema) -> DeltaTable:
        """The table, made or widened so that the rows fit."""
        deltalake = _import()
        table = self._table()
        if table is None:
            return deltalake.DeltaTable.create(  # type: ignore[no-any-return]
                self._path,
                deltalake.Schema.from_arrow(pa.schema([field.with_nullable(True) for field in schema])),
                partition_by=self._partition_by or None,
                storage_options=self._storage,
            )
        known = {field.name: field for field in table.schema().fields}
        wanted = deltalake.Schema.from_arrow(schema).fields
        for field in wanted:
            if field.name in known and known[field.name].type != field.type:
                raise SchemaMismatch(
                    f"column {field.name!r} of {self.describe()} is {known[field.name].type}, "
                    f"and the rows have {field.type}",
                    column=field.name,
                    hint="bring it to the old type in a transformation, or begin a new table",
                )
        missing = [
            deltalake.Field(field.name, field.type, nullable=True)
            for field in wanted
            if field.name not in known
        ]
        if missing:
            table.alter.add_columns(missing)
            table = self._table()
            assert table is not None
        return table

    def _noted(self, batch: Batch) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        noted = {"flow": batch.flow, "number": batch.number, "position": batch.position}
        return CommitProperties(
            custom_metadata={_POSITION: json.dumps(noted, sort_keys=True)},
            app_transactions=[Transaction(batch.flow, batch.number)],
        )

    def _merge(self, table: DeltaTable, batch: Batch, schema: pa.Schema, noted: CommitProperties) -> None:
        """Rows by key: deleted, replaced or added, in one commit."""
        whole = pa.Table.from_batches(as_lake(batch.rows(), schema), schema=schema)
        rows = newest_by_key(whole, self._keys)
        names = [name for name in rows.column_names if name != DELETED]
        on = " and ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in self._keys)
        values = {_quoted(name): f"source.{_quoted(name)}" for name in names}
        merge = table.merge(
            rows, predicate=on, source_alias="source", target_alias="target", commit_properties=noted
        )
        there: str | None = None
        if DELETED in rows.column_names:
            merge = merge.when_matched_delete(f"source.{_quoted(DELETED)}")
            there = f"not source.{_quoted(DELETED)}"
        merge.when_matched_update(values, predicate=there).when_not_matched_insert(
            values, predicate=there
        ).execute()

    def deletes(self) -> bool:
        return self._mode == UPSERT

    def head(self) -> Any:
        table = self._table()
        return None if table is None else {"version": table.version()}


def _quoted(name: str) -> str:
    return f"`{name}`"


def _import() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise UnavailableError(
            "Delta tables need the package deltalake", hint="pip install 'virta[delta]'"
        ) from error
    return deltalake
