"""Arrow data from elsewhere, brought into a topic's columns without changing a value.

A column is taken if every value of it can be stored unchanged, whatever its layout:
`fits` decides by type which pairs are worth trying, Arrow's safe casts then refuse
single values that would change (2**40 in an int32 column). A value that is refused is
looked for again one by one, with the rules for Python values, to name its row.

Knows one column at a time; `rows` matches columns by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from virta.metadata.python_types import describe

_types = pa.types


# -- which types go into which ------------------------------------------------------------


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of `source` may be stored as `target`, each unchanged or refused."""
    if source.equals(target) or _types.is_null(source):
        return True
    if _types.is_dictionary(source):
        return fits(source.value_type, target)
    if _types.is_dictionary(target):
        return fits(source, target.value_type)
    if isinstance(source, pa.BaseExtensionType):
        return fits(source.storage_type, target)
    if isinstance(target, pa.BaseExtensionType):
        return fits(source, target.storage_type)
    return any(pair(source, target) for pair in _PAIRS)


def _numbers(source: pa.DataType, target: pa.DataType) -> bool:
    if _types.is_integer(source):
        # Arrow does not check whole numbers that go into float16
        whole = _types.is_integer(target) or _types.is_decimal(target)
        return bool(whole or _types.is_float32(target) or _types.is_float64(target))
    if _types.is_floating(source):
        return bool(_types.is_floating(target)) and source.bit_width <= target.bit_width
    return bool(_types.is_decimal(source) and _types.is_decimal(target))


def _texts(source: pa.DataType, target: pa.DataType) -> bool:
    """Text is also bytes, its UTF-8; bytes are not also text."""
    if _is_text(source):
        return _is_text(target) or _is_bytes(target)
    if _is_bytes(source) or _types.is_fixed_size_binary(source):
        return _is_bytes(target) or bool(_types.is_fixed_size_binary(target))
    return False


def _is_text(kind: pa.DataType) -> bool:
    return bool(_types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_types.is_binary(kind) or _types.is_large_binary(kind) or _types.is_binary_view(kind))


def _times(source: pa.DataType, target: pa.DataType) -> bool:
    if _types.is_timestamp(source) and _types.is_timestamp(target):
        # with a zone it is a moment, without it is a reading of a clock
        return (source.tz is None) == (target.tz is None)
    same: tuple[Callable[[Any], bool], ...] = (
        _types.is_date,
        _types.is_time,
        _types.is_duration,
    )
    return any(kind(source) and kind(target) for kind in same)


def _lists(source: pa.DataType, target: pa.DataType) -> bool:
    if not (_is_list(source) and _is_list(target)):
        return False
    return fits(source.value_type, target.value_type)


def _is_list(kind: pa.DataType) -> bool:
    """Not list views: casting them to lists gives wrong values in pyarrow 26."""
    return bool(_types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind))


def _maps(source: pa.DataType, target: pa.DataType) -> bool:
    if not (_types.is_map(source) and _types.is_map(target)):
        return False
    return fits(source.key_type, target.key_type) and fits(source.item_type, target.item_type)


def _structs(source: pa.DataType, target: pa.DataType) -> bool:
    """Fields go by name; what may be null may be absent, what is unknown is refused."""
    if not (_types.is_struct(source) and _types.is_struct(target)):
        return False
    given = {field.name: field for field in source}
    if len(given) != source.num_fields or not given.keys() <= {field.name for field in target}:
        return False
    return all(
        fits(given[field.name].type, field.type) if field.name in given else field.nullable
        for field in target
    )


_PAIRS = (_numbers, _texts, _times, _lists, _maps, _structs)


def why_not(source: pa.DataType, target: pa.DataType) -> str | None:
    """A hint for the mismatches people meet."""
    if _types.is_timestamp(source) and _types.is_timestamp(target):
        has, wants = ("no", "a") if source.tz is None else ("a", "no")
        return f"the values have {has} time zone and the column has {wants} time zone"
    if _is_bytes(source) and _is_text(target):
        return "decode the bytes first"
    if _types.is_floating(source):
        return "round or cast them first, if that is meant"
    if _types.is_run_end_encoded(source) or _types.is_list_view(source):
        return f"cast them to {describe(target)} first"
    return None


# -- doing it -----------------------------------------------------------------------------


def cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The array as `target`, or an ArrowException when a value would change."""
    if array.type.equals(target):
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return cast(array.storage, target)
    if isinstance(target, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(target, cast(array, target.storage_type))
    if _types.is_dictionary(array.type) and not _types.is_dictionary(target):
        return cast(array.dictionary_decode(), target)
    return array.cast(target)


def has_strict_inside(kind: pa.DataType) -> bool:
    """Whether something nested in this type is not null; Arrow itself does not enforce it."""
    return any(not field.nullable or has_strict_inside(field.type) for field in _inner_fields(kind))


def _inner_fields(kind: pa.DataType) -> Sequence[pa.Field]:
    if _types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if _types.is_struct(kind):
        return list(kind)
    return [kind.value_field] if _types.is_nested(kind) else []


def holds_null(array: pa.Array, *, nullable: bool) -> bool:
    """Whether there is a null, here or anywhere inside, where the type allows none."""
    nulls = count_nulls(array)
    if nulls and not nullable:
        return True
    if not has_strict_inside(array.type):
        return False
    if array.null_count:
        array = array.drop_null()
    return any(
        holds_null(inner, nullable=field.nullable)
        for field, inner in zip(_inner_fields(array.type), _inner_arrays(array), strict=True)
    )


def count_nulls(array: pa.Array) -> int:
    """Nulls as a reader sees them: a dictionary may hold one among its values."""
    if _types.is_dictionary(array.type) and array.dictionary.null_count:
        return int(pc.sum(array.is_null()).as_py() or 0)
    return int(array.null_count)


def _inner_arrays(array: Any) -> list[pa.Array]:
    """What is inside an array without nulls, and no more than its own slice of it."""
    if _types.is_struct(array.type):
        return [array.field(at) for at in range(array.type.num_fields)]
    if _types.is_map(array.type):
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return [array.keys.slice(start, end - start), array.items.slice(start, end - start)]
    return [array.flatten()]


__all__ = ["cast", "count_nulls", "fits", "has_strict_inside", "holds_null", "why_not"]
