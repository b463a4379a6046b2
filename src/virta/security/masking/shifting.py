"""Dates that move and numbers that tremble: values that stay useful, but are not what they were."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virta.errors import UsageError
from virta.security.masking.key import MaskingKey
from virta.security.masking.keyed import KeyedHash, mapped, shares, whole_numbers
from virta.security.masking.methods import Method, Rows, null_as
from virta.security.masking.options import Options

_DAY_US = 24 * 60 * 60 * 1_000_000
_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class DateShift(Method):
    """Dates and moments by whole days, up to so many either way, and never by none.

    With `by`, each value of that column has a shift of its own, the same in every topic:
    the time between two events of one person stays. Without it, all rows share one.
    """

    name = "date_shift"
    needs_key = True
    digest: KeyedHash
    days: int
    by: tuple[str, ...]

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:
        assert key is not None
        made = cls(
            digest=KeyedHash(key, "date_shift"),
            days=options.number("days", 180, least=1, most=36_500),
            by=options.names("by"),
        )
        if len(made.by) > 1:
            raise UsageError("date_shift goes by one column")
        return made

    def columns(self) -> tuple[str, ...]:
        return self.by

    def field(self, field: pa.Field) -> pa.Field | None:
        if not (pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)):
            raise UsageError(f"date_shift is for dates and timestamps, not for {field.type}")
        return field

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:
        if self.by:
            by = rows.batch.column(self.by[0])
            shifts = mapped(by.cast(pa.string()) if pa.types.is_null(by.type) else by, self._shifts)
            shifts = shifts.fill_null(self._shifts(pa.array([""]))[0])
        else:
            shifts = pa.repeat(self._shifts(pa.array([""]))[0], len(array))
        return _moved(array, shifts)

    def _shifts(self, values: pa.Array) -> pa.Array:
        """From -days to days, without 0."""
        chosen = (whole_numbers(self.digest(values)) % np.uint64(2 * self.days)).astype(np.int64)
        return pa.array(np.where(chosen < self.days, chosen - self.days, chosen - self.days + 1))


def _moved(array: pa.Array, days: pa.Array) -> pa.Array:
    """The moments so many days later; what would leave the type's range stays at its edge."""
    if pa.types.is_date32(array.type):
        return null_as(pc.add(array.cast(pa.int32()), days.cast(pa.int32())).cast(array.type), array)
    unit_us = 1_000 if pa.types.is_date64(array.type) else _TICKS.get(array.type.unit, 0)
    per_day = _DAY_US * 1_000 if unit_us == 0 else _DAY_US // unit_us
    ticks = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(object)
    if abs(max(ticks, default=0)) < 1 << 61 and abs(min(ticks, default=0)) < 1 << 61:
        ticks = ticks.astype(np.int64)
    moved = ticks + days.to_numpy(zero_copy_only=False) * per_day
    bounds = np.iinfo(np.int64)
    clipped = np.clip(moved, bounds.min, bounds.max).astype(np.int64)
    return null_as(pa.array(clipped, pa.int64()).cast(array.type), array)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise(Method):
    """Numbers with something added: up to `amount` either way, or up to a `share` of the value.

    The noise comes from the key and the row's place (or the column `by`), so a row masked
    again has the same noise and averaging over runs tells nothing. Rows from files have no
    place that lasts; theirs is drawn anew.
    """

    name = "noise"
    needs_key = True
    digest: KeyedHash
    amount: float | None
    share: float | None
    by: tuple[str, ...]

    @classmethod
    def of(cls, options: Options, key: MaskingKey | None) -> Self:
        assert key is not None
        made = cls(
            digest=KeyedHash(key, "noise"),
            amount=options.positive("amount"),
            share=options.positive("share"),
            by=options.names("by"),
        )
        if (made.amount is None) == (made.share is None):
            raise UsageError("noise needs either an amount or a share", hint="say amount = 5 or share = 0.1")
        if len(made.by) > 1:
            raise UsageError("noise goes by one column")
        return made

    def columns(self) -> tuple[str, ...]:
        return self.by

    def field(self, field: pa.Field) -> pa.Field | None:
        type_ = field.type
        if not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
            raise UsageError(f"noise is for integers and floats, not for {type_}")
        return field

    def apply(self, array: pa.Array, rows: Rows) -> pa.Array:
        values = array.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
        reach = np.full(len(values), self.amount) if self.amount is not None else np.abs(values) * self.share
        change = (self._drawn(len(values), rows) * 2.0 - 1.0) * reach
        if pa.types.is_floating(array.type):
            return null_as(pa.array(values + change).cast(array.type), array)
        return null_as(_whole(array, np.rint(change)), array)

    def _drawn(self, count: int, rows: Rows) -> NDArray[np.float64]:
        if self.by:
            return shares(self.digest(rows.batch.column(self.by[0])))
        if rows.identity is not None:
            return shares(self.digest(rows.identity))
        drawn = np.frombuffer(os.urandom(8 * count), "<u8") >> np.uint64(11)
        return drawn.astype(np.float64) / float(1 << 53)


def _whole(array: pa.Array, change: NDArray[np.float64]) -> pa.Array:
    """Integers plus whole noise, kept within the type."""
    plain: NDArray[Any] = array.fill_null(0).to_numpy(zero_copy_only=False)
    bounds = np.iinfo(plain.dtype)
    limit = float(1 << 62)
    step = np.clip(change, -limit, limit).astype(np.int64)
    if bounds.bits < 64:
        moved = np.clip(plain.astype(np.int64) + step, bounds.min, bounds.max)
        return pa.array(moved.astype(plain.dtype), array.type)
    exact = np.clip(plain.astype(object) + step.astype(object), int(bounds.min), int(bounds.max))
    return pa.array(exact.astype(plain.dtype), array.type)
