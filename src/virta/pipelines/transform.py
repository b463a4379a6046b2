"""What happens to rows on the way: filtered, sampled, changed by SQL or Python, masked; in this order.

Filter and sample see the original columns, SQL and a Python function too; the mask is always the
last, so that nothing can bring back what it took. Pure but for the Python function, and
picklable: it travels to Spark's workers, whole, with the key (never in Spark's settings,
which its web page shows).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import UsageError
from virta.metadata.schemas import DELETED, OFFSET, TIMESTAMP
from virta.pipelines.sources.base import PARTITION
from virta.security.masking import MaskingKey, MaskingPlan, MaskPolicy, sample
from virta.topics.filters import parse_filter
from virta.topics.tombstones import empties

PROVENANCE = (PARTITION, OFFSET, TIMESTAMP)
_TAGS = b"virta.tags"
_ABOUT_ROWS = frozenset((*PROVENANCE, DELETED))
# Partitions in the upper bits: every row of a topic has a number of its own.
_PARTITION_BITS = 48

Change = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """A share of the entities; `by` names the column that says whose a row is."""

    by: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """All that a flow does to its rows."""

    name: str  # of the topic or files, as policies know it
    where: str | None = None
    sampling: Sampling | None = None
    sql: str | None = None
    python: str | Change | None = None
    policy: MaskPolicy | None = None
    key: MaskingKey | None = None
    provenance: bool = False
    # The keys of a table that the sink keeps as one: rows that are not wanted any more are deleted there.
    keys: tuple[str, ...] = ()

    # -- before anything is read ----------------------------------------------------------------------

    def check(self, schema: pa.Schema) -> pa.Schema | None:
        """Refuse what cannot work on these columns; what comes out, where it can be known."""
        if self.where is not None:
            parse_filter(self.where).check(schema)
        if self.sampling is not None:
            if self.sampling.by not in schema.names:
                raise UsageError(
                    f'the sample of "{self.name}" goes by {self.sampling.by!r}, which is no column',
                    hint=f"the columns are {', '.join(schema.names)}",
                )
            if self.key is None:
                raise UsageError(
                    "a sample is chosen with a masking key", hint='key = { env = "VIRTA_MASKING_KEY" }'
                )
            sample(pa.array([], schema.field(self.sampling.by).type), self.sampling.share, self.key)
        if self.python is not None:
            self.function()
        if self.python is not None or self.sql is not None:
            return None
        return self.plan(schema).target if self.policy is not None else schema

    def plan(self, schema: pa.Schema) -> MaskingPlan:
        """The mask fitted to these columns; Denied where one has no rule."""
        assert self.policy is not None
        return self.policy.plan(self.name, schema, self.key)

    def function(self) -> Change | None:
        if self.python is None or callable(self.python):
            return self.python
        module, colon, name = self.python.partition(":")
        try:
            found = getattr(importlib.import_module(module), name) if colon else None
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the transformation {self.python} cannot be imported: {error}",
                hint='python = "module:function", importable where the pipeline runs',
            ) from error
        if not callable(found):
            raise UsageError(
                f"the transformation {self.python!r} is no function", hint='python = "module:function"'
            )
        return found  # type: ignore[no-any-return]

    # -- rows ---------------------------------------------------------------------------------------------

    def before(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are wanted at all."""
        wanted = _Wanted(self)
        for batch in batches:
            kept = wanted.of(batch)
            if kept.num_rows:
                yield kept

    def after(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the sink gets, of the rows that are wanted and the outcome of the SQL."""
        running = _Running(self)
        for batch in batches:
            if batch.num_rows:
                yield from running.step(batch)


class _Wanted:
    """Which rows the sink is to have.

    Of a table it is to have the newest row of each key, if that one is wanted. So a row that is
    not wanted takes the place of an older one that was: it becomes a deletion. Where the key
    alone decides, no older one was wanted either, and the row just goes.
    """

    def __init__(self, what: Transform) -> None:
        self._what = what
        self._filter = None if what.where is None else parse_filter(what.where)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._what.keys or DELETED not in batch.schema.names:
            for of in (self._passing, self._chosen):
                mask = of(batch)
                batch = batch if mask is None else batch.filter(mask)
            return batch
        deleted = batch.column(DELETED)
        stays: pa.Array = pa.repeat(pa.scalar(True), batch.num_rows)
        lives: pa.Array = pc.invert(deleted)
        for mask, by_key in (
            (self._passing(batch), self._filters_keys(batch.schema)),
            (self._chosen(batch), self._samples_keys()),
        ):
            if mask is not None and by_key:
                stays = pc.and_(stays, mask)
            elif mask is not None:
                lives = pc.and_(lives, mask)
        return _with_deletions(batch, pc.invert(lives), self._what.keys).filter(stays)

    def _passing(self, batch: pa.RecordBatch) -> pa.Array | None:
        return None if self._filter is None else pc.fill_null(self._filter.mask(batch), False)

    def _chosen(self, batch: pa.RecordBatch) -> pa.Array | None:
        sampling, key = self._what.sampling, self._what.key
        if sampling is None or key is None:
            return None
        return sample(batch.column(sampling.by), sampling.share, key)

    def _filters_keys(self, schema: pa.Schema) -> bool:
        if self._filter is None:
            return False
        try:
            self._filter.check(pa.schema([schema.field(name) for name in self._what.keys]))
        except UsageError:
            return False
        return True

    def _samples_keys(self) -> bool:
        return self._what.sampling is not None and self._what.sampling.by in self._what.keys


def _with_deletions(batch: pa.RecordBatch, deleted: pa.Array, keys: tuple[str, ...]) -> pa.RecordBatch:
    """The batch with these rows as deletions: of what they held, only their key is left."""
    if not pc.any(deleted).as_py():
        return batch
    rows = pa.array(range(batch.num_rows), pa.int64())
    places = pc.if_else(deleted, pa.scalar(batch.num_rows, pa.int64()), rows)
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name == DELETED:
            columns.append(deleted)
        elif field.name in keys or field.name in PROVENANCE:
            columns.append(column)
        else:
            nothing = pa.nulls(1, field.type) if field.nullable else empties(field.type, 1)
            columns.append(pa.concat_arrays([column, nothing]).take(places))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class _Running:
    """A transformation at work: what it has found out about the columns is kept between batches."""

    def __init__(self, transform: Transform) -> None:
        self._what = transform
        self._function = transform.function()
        self._plan: MaskingPlan | None = None

    def step(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._function is None:
            yield self._masked(batch)
            return
        for changed in _as_batches(self._function(_own(batch))):
            if changed.num_rows:
                yield self._masked(changed)

    def _masked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        own = _own(batch)
        if self._what.policy is not None:
            if self._plan is None or not self._plan.source.equals(own.schema):
                self._plan = self._what.plan(own.schema)
            own = self._plan.apply(own, _identity(batch))
        kept = [name for name in (*PROVENANCE, DELETED) if self._keeps(name) and name in batch.schema.names]
        columns = [batch.column(name) for name in kept]
        fields = [batch.schema.field(name) for name in kept]
        plain = pa.schema([*fields, *map(bare, own.schema)])
        return pa.RecordBatch.from_arrays([*columns, *own.columns], schema=plain)

    def _keeps(self, name: str) -> bool:
        return name == DELETED or self._what.provenance


def bare(field: pa.Field) -> pa.Field:
    """A column as it goes on: its number in the source is left behind, its tags are not."""
    tags = (field.metadata or {}).get(_TAGS)
    return field.remove_metadata() if tags is None else field.with_metadata({_TAGS: tags})


def _own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The user's columns."""
    names = [name for name in batch.schema.names if name not in _ABOUT_ROWS]
    return batch if len(names) == len(batch.schema) else batch.select(names)


def _identity(batch: pa.RecordBatch) -> pa.Array | None:
    """A number of each row that lasts."""
    if OFFSET not in batch.schema.names:
        return None
    offsets = batch.column(OFFSET)
    if PARTITION not in batch.schema.names:
        return offsets
    high = pc.multiply(batch.column(PARTITION).cast(pa.int64()), 1 << _PARTITION_BITS)
    return pc.add(high, offsets)


def _as_batches(given: Any) -> Iterator[pa.RecordBatch]:
    """What a function gave back: nothing, a batch, a table, anything Arrow, or several of them."""
    if given is None:
        return
    if isinstance(given, pa.RecordBatch):
        yield given
    elif isinstance(given, pa.Table):
        yield from given.combine_chunks().to_batches()
    elif hasattr(given, "__arrow_c_stream__"):
        yield from pa.table(given).combine_chunks().to_batches()
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | dict):
        for each in given:
            yield from _as_batches(each)
    else:
        raise UsageError(
            f"a transformation gives Arrow rows or None, not {type(given).__name__}",
            hint="return a pyarrow RecordBatch or Table",
        )
