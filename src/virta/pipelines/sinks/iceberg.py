"""An Iceberg table as a sink, through the package `pyiceberg`.

The number of the newest batch and the source's position are a property of the table,
set in the same transaction that adds the rows (snapshots may be expired, properties stay).
They stand in the snapshot's summary too, where people look.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import UnavailableError, UsageError
from virta.metadata.schemas import DELETED
from virta.pipelines.sinks.base import UPSERT, Batch, Committed, Sink, check_mode, newest_by_key
from virta.pipelines.sinks.lake import as_lake, check_partition_by, lake_schema

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction

_PROPERTY = "virta.flow."


class IcebergSink(Sink):
    """A table of a catalog: `sink = { iceberg = "lake.orders", catalog = { type = "sql", uri = … } }`."""

    def __init__(
        self,
        *,
        table: str,
        catalog: Mapping[str, str],
        mode: str = "append",
        keys: tuple[str, ...] = (),
        partition_by: tuple[str, ...] = (),
        provenance: bool = False,
    ) -> None:
        if "." not in table:
            raise UsageError(
                f"an Iceberg table is NAMESPACE.TABLE, not {table!r}", hint='iceberg = "lake.orders"'
            )
        self._name = table
        self._settings = dict(catalog)
        self._mode = mode
        self._keys = keys
        self._partition_by = partition_by
        self.provenance = provenance
        self._catalog: Any = None

    def describe(self) -> str:
        return f"Iceberg table {self._name}"

    def check(self, schema: pa.Schema | None, keys: tuple[str, ...]) -> None:
        self._keys = self._keys or keys
        check_mode(self._mode, self._keys, self.describe())
        if schema is not None:
            lake_schema(schema)
            check_partition_by(self._partition_by, schema, self.describe(), provenance=self.provenance)
        self._opened()

    def _opened(self) -> Any:
        if self._catalog is None:
            try:
                from pyiceberg.catalog import load_catalog
            except ImportError as error:
                raise UnavailableError(
                    "Iceberg tables need the package pyiceberg", hint="pip install 'virta[iceberg]'"
                ) from error
            self._catalog = load_catalog(self._settings.pop("name", "default"), **self._settings)
        return self._catalog

    def _table(self) -> Table | None:
        catalog = self._opened()
        return catalog.load_table(self._name) if catalog.table_exists(self._name) else None

    def committed(self, flow: str) -> Committed | None:
        table = self._table()
        noted = None if table is None else table.properties.get(_PROPERTY + flow)
        if noted is None:
            return None
        return Committed(**json.loads(noted))

    def commit(self, batch: Batch) -> None:
        if batch.schema is None:
            return
        found = self.committed(batch.flow)
        if found is not None and found.number >= batch.number:
            return
        schema = lake_schema(batch.schema)
        kept = pa.schema([field for field in schema if self._mode != UPSERT or field.name != DELETED])
        table = self._prepared(kept)
        noted = json.dumps({"number": batch.number, "position": batch.position}, sort_keys=True)
        summary = {"virta.flow": batch.flow, "virta.batch": str(batch.number)}
        rows = pa.Table.from_batches(as_lake(batch.rows(), schema), schema=schema)
        with warnings.catch_warnings():
            # it warns of a delete that matches nothing, which an upsert of new keys is
            warnings.simplefilter("ignore")
            with table.transaction() as transaction:
                if self._mode == UPSERT:
                    self._merge(transaction, newest_by_key(rows, self._keys), summary)
                else:
                    transaction.append(_in_order(rows, table), snapshot_properties=summary)
                transaction.set_properties({_PROPERTY + batch.flow: noted})

    def _prepared(self, schema: pa.Schema) -> Table:
        """The table, made or widened so that the rows fit."""
        catalog = self._opened()
        table = self._table()
        if table is None:
            catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            plain = pa.schema([field.with_nullable(True) for field in schema])
            with (
                catalog.create_table_transaction(self._name, schema=plain) as made,
                made.update_spec() as spec,
            ):
                for name in self._partition_by:
                    spec.add_identity(name)
            found = self._table()
            assert found is not None
            return found
        known = {field.name for field in table.schema().fields}
        if any(field.name not in known for field in schema):
            with table.update_schema() as update:
                update.union_by_name(pa.schema([field.with_nullable(True) for field in schema]))
            table = table.refresh()
        return table

    def _merge(self, transaction: Transaction, rows: pa.Table, summary: dict[str, str]) -> None:
        """Rows by key: what is there under a key goes, what does not delete is added."""
        transaction.delete(_any_of(rows.select(list(self._keys))), snapshot_properties=summary)
        if DELETED in rows.column_names:
            rows = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        if rows.num_rows:
            names = [field.name for field in transaction.table_metadata.schema().fields]
            transaction.append(
                _filled(rows, names, transaction.table_metadata.schema()), snapshot_properties=summary
            )

    def deletes(self) -> bool:
        return self._mode == UPSERT

    def head(self) -> Any:
        table = self._table()
        snapshot = None if table is None else table.current_snapshot()
        return None if snapshot is None else {"snapshot": snapshot.snapshot_id}


def _any_of(keys: pa.Table) -> Any:
    """The filter that matches any of these keys."""
    from pyiceberg import expressions

    and_, or_, equal, one_of = (
        getattr(expressions, name) for name in ("And", "Or", "EqualTo", "In")
    )  # its types know only keywords, its readers only places

    if keys.num_columns == 1:
        return one_of(keys.column_names[0], set(keys.column(0).to_pylist()))
    rows = [_balanced([equal(name, value) for name, value in row.items()], and_) for row in keys.to_pylist()]
    return _balanced(rows, or_)


def _balanced(parts: list[Any], join: Any) -> Any:
    """Joined two by two: thousands in a row would be deeper than Python recurses."""
    while len(parts) > 1:
        pairs = [join(*parts[at : at + 2]) for at in range(0, len(parts) - 1, 2)]
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


def _in_order(rows: pa.Table, table: Table) -> pa.Table:
    return _filled(rows, [field.name for field in table.schema().fields], table.schema())


def _filled(rows: pa.Table, names: list[str], schema: Any) -> pa.Table:
    """The table's columns in its order; what the rows do not have is null."""
    wanted = schema.as_arrow()
    columns = []
    for name in names:
        field = wanted.field(name)
        columns.append(
            rows.column(name) if name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        )
    return pa.table(columns, names=names)
