"""A filter's tree with a schema: types checked, and Arrow kernels chosen.

What the types mean:

- Whole numbers of every width and decimals compare exactly with each other; where a
  float takes part, both sides are taken as float64. A number written with a point is
  exact (`1.1` against a decimal is 1.1), one written with an exponent is a float.
- `+ - *` of whole numbers are whole and refuse to overflow; `/` is always a float,
  decimals calculate as floats; dividing by zero gives null. `%` has the sign of the left.
- Bytes compare with text by its UTF-8, so `key = 'ada'` works where keys are bytes.
- A text literal beside a timestamp, date, time, duration or UUID is read as one. A
  timestamp without a zone means UTC beside a column that has one.
- Logic has three values. Anything compared with null is null.

Knows schemas and batches; the text only to point into it.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from virta.errors import SchemaMismatch, UsageError
from virta.metadata.python_types import describe
from virta.metadata.schemas import suggest
from virta.requests import parse_duration
from virta.topics.filters import syntax
from virta.topics.filters.parser import moment_of
from virta.topics.filters.patterns import matcher, read_pattern
from virta.topics.filters.tokens import pointing, refuse

# From a batch to an array, or to a scalar where no column takes part; a literal needs no batch.
Run: TypeAlias = Callable[[Any], Any]

_BOOL, _INT, _FLOAT, _TEXT, _NULL = pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.null()
_DECIMAL_DIGITS = 76  # of decimal256, the widest there is
_INT_DIGITS = 20  # of a 64-bit number
_UNITS = ("s", "ms", "us", "ns")

# An error of Arrow's kernels while a filter runs: an overflow, mostly.
_KERNEL_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A part of a filter that knows its type and how to compute itself."""

    kind: pa.DataType
    run: Run
    node: syntax.Node

    @property
    def is_literal(self) -> bool:
        return isinstance(self.node, syntax.Literal)

    @property
    def value(self) -> syntax.Value:
        assert isinstance(self.node, syntax.Literal)
        return self.node.value

    def whole(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """The condition for each row of a batch."""
        try:
            result = self.run(batch)
        except _KERNEL_ERRORS as error:
            raise UsageError(f"the filter cannot be computed: {error}") from error
        if isinstance(result, pa.Scalar):
            return pa.repeat(result.cast(_BOOL), batch.num_rows)
        return result if result.type == _BOOL else result.cast(_BOOL)


def bind_condition(text: str, node: syntax.Node, schema: pa.Schema) -> Bound:
    """The whole of a filter, which must be true or false."""
    binder = _Binder(text, schema)
    return binder.condition(binder.bind(node), "a filter")


# -- families of types ----------------------------------------------------------------------


def _family(kind: pa.DataType) -> str:
    """Types that compare with each other have one family."""
    if isinstance(kind, pa.UuidType):
        return "UUID"
    for matches, family in _FAMILIES:
        if matches(kind):
            return family
    return "nested"


_types = pa.types
_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (_types.is_integer, "number"),
    (_types.is_floating, "number"),
    (_types.is_decimal, "number"),
    (_types.is_string, "text"),
    (_types.is_large_string, "text"),
    (_types.is_binary, "bytes"),
    (_types.is_large_binary, "bytes"),
    (_types.is_fixed_size_binary, "bytes"),
    (_types.is_boolean, "bool"),
    (lambda kind: _types.is_timestamp(kind) and kind.tz is not None, "timestamp"),
    (_types.is_timestamp, "timestamp without zone"),
    (_types.is_date, "date"),
    (_types.is_time, "time"),
    (_types.is_duration, "duration"),
    (_types.is_null, "null"),
)


def _plain(array: Any) -> Any:
    """Dictionaries and extensions as the values they stand for."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _plain_kind(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.UuidType):
        return kind.storage_type
    return kind


def _constant(scalar: pa.Scalar) -> Run:
    return lambda _batch: scalar


def _nothing(kind: pa.DataType) -> Run:
    return _constant(pa.scalar(None, kind))


# -- common types -----------------------------------------------------------------------------


def _number_kind(parts: Sequence[Bound]) -> pa.DataType:
    """The type in which numbers compare; see the top of the file."""
    if any(_is_float(part) for part in parts):
        return _FLOAT
    if any(_is_decimal(part) for part in parts):
        return _decimal_kind(parts)
    lows = [_reach(part)[0] for part in parts]
    highs = [_reach(part)[1] for part in parts]
    if min(lows) >= -(2**63) and max(highs) < 2**63:
        return _INT
    return pa.uint64() if min(lows) >= 0 and max(highs) < 2**64 else _decimal_kind(parts)


def _is_float(part: Bound) -> bool:
    if part.is_literal:
        return isinstance(part.value, float)
    return bool(pa.types.is_floating(part.kind))


def _is_decimal(part: Bound) -> bool:
    if part.is_literal:
        return isinstance(part.value, decimal.Decimal)
    return bool(pa.types.is_decimal(part.kind))


def _reach(part: Bound) -> tuple[int, int]:
    """The least and greatest a whole number can be."""
    if part.is_literal:
        value = part.value
        return (value, value) if isinstance(value, int) else (0, 0)
    bits = part.kind.bit_width
    if pa.types.is_signed_integer(part.kind):
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def _decimal_kind(parts: Sequence[Bound]) -> pa.DataType:
    digits = [_digits(part) for part in parts]
    before, after = max(each[0] for each in digits), max(each[1] for each in digits)
    if before + after > _DECIMAL_DIGITS:
        raise ValueError("these numbers have too many digits to compare")
    return pa.decimal256(_DECIMAL_DIGITS, after)


def _digits(part: Bound) -> tuple[int, int]:
    """How many digits there can be before and after the point."""
    if part.is_literal:
        number = decimal.Decimal(part.value)  # type: ignore[arg-type]
        exponent = int(number.as_tuple().exponent)
        return max(0, number.adjusted() + 1), max(0, -exponent)
    if pa.types.is_decimal(part.kind):
        return part.kind.precision - part.kind.scale, part.kind.scale
    return _INT_DIGITS, 0


def _finest(parts: Sequence[Bound], least: str = "s") -> str:
    units = [least, *(str(part.kind.unit) for part in parts if hasattr(part.kind, "unit"))]
    return max(units, key=_UNITS.index)


def _text_kind(parts: Sequence[Bound]) -> pa.DataType:
    wide = any(pa.types.is_large_string(part.kind) for part in parts)
    return pa.large_string() if wide else _TEXT


def _bytes_kind(parts: Sequence[Bound]) -> pa.DataType:
    narrow = all(part.is_literal or part.kind == pa.binary() for part in parts)
    return pa.binary() if narrow else pa.large_binary()


_KINDS: dict[str, Callable[[Sequence[Bound]], pa.DataType]] = {
    "number": _number_kind,
    "text": _text_kind,
    "bytes": _bytes_kind,
    "bool": lambda _parts: _BOOL,
    "timestamp": lambda parts: pa.timestamp(_finest(parts, _least_unit(parts)), tz="UTC"),
    "timestamp without zone": lambda parts: pa.timestamp(_finest(parts, _least_unit(parts))),
    "date": lambda _parts: pa.date32(),
    "time": lambda parts: pa.time64("ns" if _finest(parts) == "ns" else "us"),
    "duration": lambda parts: pa.duration(_finest(parts, "us")),
    "UUID": lambda _parts: pa.binary(16),
    "null": lambda _parts: _NULL,
}


def _least_unit(parts: Sequence[Bound]) -> str:
    """Literals are exact to the microsecond."""
    return "us" if any(part.is_literal for part in parts) else "s"


# Families that a text literal is read as when it stands beside them.
_READ_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "timestamp": moment_of,
    "timestamp without zone": moment_of,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "duration": lambda text: datetime.timedelta(seconds=parse_duration(text)),
    "UUID": lambda text: uuid.UUID(text).bytes,
    "bytes": str.encode,
}

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class _Binder:
    """Binds one filter to one schema."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._binders: dict[type[syntax.Node], Callable[[Any], Bound]] = {
            syntax.Literal: self._literal,
            syntax.Column: self._column,
            syntax.Logic: self._logic,
            syntax.Not: self._not,
            syntax.Comparison: self._comparison,
            syntax.Between: self._between,
            syntax.Among: self._among,
            syntax.Like: self._like,
            syntax.IsNull: self._is_null,
            syntax.Arithmetic: self._arithmetic,
            syntax.Negative: self._negative,
            syntax.Call: self._call,
        }

    def bind(self, node: syntax.Node) -> Bound:
        return self._binders[type(node)](node)

    def condition(self, part: Bound, what: str) -> Bound:
        """The part, if it is true or false (or null)."""
        family = _family(part.kind)
        if family == "null":
            return Bound(kind=_BOOL, run=_nothing(_BOOL), node=part.node)
        if family != "bool":
            self._refuse(part.node, f"{what} must be true or false, but this is {self._shown(part)}")
        return part

    def _refuse(self, node: syntax.Node, why: str) -> NoReturn:
        refuse(self._text, node.position, why)

    @staticmethod
    def _shown(part: Bound) -> str:
        return describe(part.kind)

    # -- leaves -------------------------------------------------------------------------------

    def _literal(self, node: syntax.Literal) -> Bound:
        value, kind = node.value, _literal_kind(node.value)
        if isinstance(value, decimal.Decimal):
            return Bound(kind=kind, run=_constant(pa.scalar(float(value), kind)), node=node)
        return Bound(kind=kind, run=_constant(pa.scalar(value, kind)), node=node)

    def _column(self, node: syntax.Column) -> Bound:
        at = self._schema.get_field_index(node.path[0])
        if at < 0:
            raise SchemaMismatch(
                f"filter: there is no column {node.path[0]!r}{pointing(self._text, node.position)}\n",
                column=node.path[0],
                hint=suggest(node.path[0], self._schema.names),
            )
        part = Bound(
            kind=_plain_kind(self._schema.field(at).type),
            run=lambda batch: _plain(batch.column(at)),
            node=node,
        )
        return reduce(self._field, node.path[1:], part)

    def _field(self, outer: Bound, name: str) -> Bound:
        """A field of a struct, or the value a map has for a key."""
        kind, run = outer.kind, outer.run
        if pa.types.is_struct(kind) and kind.get_field_index(name) >= 0:
            inner = kind.field(name).type
            return Bound(
                kind=_plain_kind(inner),
                run=lambda batch: _plain(pc.struct_field(run(batch), name)),
                node=outer.node,
            )
        if pa.types.is_map(kind) and _family(kind.key_type) == "text":
            key = pa.scalar(name, kind.key_type)
            return Bound(
                kind=_plain_kind(kind.item_type),
                run=lambda batch: _plain(pc.map_lookup(run(batch), key, "first")),
                node=outer.node,
            )
        names = [field.name for field in kind] if pa.types.is_struct(kind) else []
        raise SchemaMismatch(
            f"filter: {describe(kind)} has no field {name!r}{pointing(self._text, outer.node.position)}\n",
            column=name,
            hint=suggest(name, names) if names else None,
        )

    # -- logic ----------------------------------------------------------------------------------

    def _logic(self, node: syntax.Logic) -> Bound:
        kernel = pc.and_kleene if node.operator == "and" else pc.or_kleene
        runs = [self.condition(self.bind(part), f"each side of {node.operator}").run for part in node.parts]

        def run(batch: pa.RecordBatch) -> Any:
            return reduce(kernel, (each(batch) for each in runs))

        return Bound(kind=_BOOL, run=run, node=node)

    def _not(self, node: syntax.Not) -> Bound:
        inner = self.condition(self.bind(node.inner), "what follows not").run
        return Bound(kind=_BOOL, run=lambda batch: pc.invert(inner(batch)), node=node)

    def _is_null(self, node: syntax.IsNull) -> Bound:
        inner = self.bind(node.inner).run
        return Bound(kind=_BOOL, run=lambda batch: pc.is_null(inner(batch)), node=node)

    # -- comparing --------------------------------------------------------------------------------

    def _comparison(self, node: syntax.Comparison) -> Bound:
        left, right = self.bind(node.left), self.bind(node.right)
        return self._compared(node.operator, left, right, node)

    def _compared(self, operator: str, left: Bound, right: Bound, node: syntax.Node) -> Bound:
        kind, runs = self._together((left, right), node)
        if kind == _NULL:
            return Bound(kind=_BOOL, run=_nothing(_BOOL), node=node)
        if kind == _BOOL and operator not in ("=", "<>"):
            self._refuse(node, f"true and false have no order, so {operator} does not compare them")
        kernel, one, other = _COMPARE[operator], *runs
        return Bound(kind=_BOOL, run=lambda batch: kernel(one(batch), other(batch)), node=node)

    def _between(self, node: syntax.Between) -> Bound:
        inner = self.bind(node.inner)
        low = self._compared(">=", inner, self.bind(node.low), node).run
        high = self._compared("<=", inner, self.bind(node.high), node).run
        return Bound(kind=_BOOL, run=lambda batch: pc.and_kleene(low(batch), high(batch)), node=node)

    def _among(self, node: syntax.Among) -> Bound:
        """Literals of one type become one set; the rest is compared one by one."""
        inner = self.bind(node.inner)
        sets: dict[pa.DataType, tuple[Run, list[pa.Scalar]]] = {}
        tests: list[Run] = []
        for option in map(self.bind, node.options):
            kind, (one, other) = self._together((inner, option), node)
            if option.is_literal and kind != _NULL and not pa.types.is_decimal(kind):
                sets.setdefault(kind, (one, []))[1].append(other(None))
            else:
                tests.append(self._compared("=", inner, option, node).run)
        tests += [_in_set(run, kind, values) for kind, (run, values) in sets.items()]

        def run(batch: pa.RecordBatch) -> Any:
            return reduce(pc.or_kleene, (test(batch) for test in tests))

        return Bound(kind=_BOOL, run=run, node=node)

    def _together(self, parts: Sequence[Bound], node: syntax.Node) -> tuple[pa.DataType, list[Run]]:
        """The type in which parts compare, and how each gets there."""
        family = self._common_family(parts, node)
        if family == "nested":
            self._refuse(node, f"{self._shown(parts[0])} can only be tested with is null")
        valued = [part for part in parts if _family(part.kind) != "null"]
        try:
            kind = _KINDS[family](valued)
        except ValueError as error:
            self._refuse(node, str(error))
        if len(valued) < len(parts) and node.__class__ is not syntax.Call:
            kind = _NULL  # compared with null, everything is null
        return kind, [self._cast(part, kind, family) for part in parts]

    def _common_family(self, parts: Sequence[Bound], node: syntax.Node) -> str:
        families = {_family(part.kind) for part in parts} - {"null"}
        if len(families) <= 1:
            return families.pop() if families else "null"
        fixed = {_family(part.kind) for part in parts if not _is_text_literal(part)} - {"null"}
        if len(fixed) == 1 and next(iter(fixed)) in _READ_FROM_TEXT:
            return fixed.pop()
        if families == {"text", "bytes"}:
            return "bytes"
        family = self._common_time(parts, fixed or families)
        if family is None:
            shown = " with ".join(dict.fromkeys(self._shown(part) for part in parts))
            hint = "; it can only be tested with is null" if "nested" in families else ""
            self._refuse(node, f"{shown} cannot be compared{hint}")
        return family

    def _common_time(self, parts: Sequence[Bound], families: set[str]) -> str | None:
        """Dates are the midnight they begin with; only literals take on a zone."""
        zoned, zoneless = "timestamp", "timestamp without zone"
        if families == {"date", zoned} or families == {"date", zoneless}:
            return zoned if zoned in families else zoneless
        if families <= {"date", zoned, zoneless}:
            readings = [part for part in parts if _family(part.kind) == zoneless]
            return zoned if all(part.is_literal for part in readings) else None
        return None

    def _cast(self, part: Bound, kind: pa.DataType, family: str) -> Run:
        if kind == _NULL or _family(part.kind) == "null":
            return _nothing(kind)
        if part.is_literal:
            return _constant(self._scalar(part, kind, family))
        run, source = part.run, part.kind
        if source == kind or isinstance(source, pa.UuidType):
            return run
        if pa.types.is_date(source) and pa.types.is_timestamp(kind) and kind.tz is not None:
            return lambda batch: run(batch).cast(pa.timestamp(kind.unit)).cast(kind)
        # whole numbers are rounded to floats here on purpose; all other casts are exact
        safe = not (pa.types.is_floating(kind) or pa.types.is_date(kind))
        return lambda batch: pc.cast(run(batch), kind, safe=safe)

    def _scalar(self, part: Bound, kind: pa.DataType, family: str) -> pa.Scalar:
        value: Any = part.value
        try:
            if isinstance(value, str) and family in _READ_FROM_TEXT:
                value = _READ_FROM_TEXT[family](value)
            return pa.scalar(_fitted(value, kind), kind)
        except (pa.ArrowException, UsageError, ValueError, OverflowError):
            self._refuse(part.node, f"{part.value!r} is no {describe(kind)}")

    # -- text ---------------------------------------------------------------------------------------

    def _like(self, node: syntax.Like) -> Bound:
        word = "ilike" if node.ignores_case else "like"
        inner, pattern = self._textual(node.inner, word), self.bind(node.pattern)
        literal = self._literal_text(pattern, f"what follows {word}")
        if literal is None:
            return Bound(kind=_BOOL, run=_nothing(_BOOL), node=node)
        if isinstance(literal, bytes):
            self._refuse(pattern.node, f"what follows {word} must be a text in quotes")
        parts = read_pattern(literal)
        if parts is None:
            self._refuse(pattern.node, "a pattern cannot end with a lone \\")
        test, run = matcher(parts, ignores_case=node.ignores_case), inner.run
        return Bound(kind=_BOOL, run=lambda batch: test(run(batch)), node=node)

    def _textual(self, node: syntax.Node, word: str) -> Bound:
        part = self.bind(node)
        if _family(part.kind) == "null":
            return Bound(kind=_TEXT, run=_nothing(_TEXT), node=node)
        if _family(part.kind) not in ("text", "bytes"):
            self._refuse(node, f"{word} needs text, but this is {self._shown(part)}")
        if pa.types.is_fixed_size_binary(part.kind):
            run = part.run
            return Bound(kind=pa.binary(), run=lambda batch: run(batch).cast(pa.binary()), node=node)
        return part

    def _literal_text(self, part: Bound, what: str) -> str | bytes | None:
        if not part.is_literal or not (part.value is None or isinstance(part.value, str | bytes)):
            self._refuse(part.node, f"{what} must be a text in quotes")
        return part.value

    # -- arithmetic -----------------------------------------------------------------------------------

    def _arithmetic(self, node: syntax.Arithmetic) -> Bound:
        left, right = self._number(node.left), self._number(node.right)
        kind = _INT if left.kind == right.kind == _INT and node.operator != "/" else _FLOAT
        if node.operator == "%" and kind != _INT:
            self._refuse(node, "% needs whole numbers")
        kernel = (_WHOLE if kind == _INT else _REAL)[node.operator]
        one, other = left.run, right.run
        if kind == _FLOAT:
            one, other = _as_float(one), _as_float(other)
        return Bound(kind=kind, run=lambda batch: kernel(one(batch), other(batch)), node=node)

    def _number(self, node: syntax.Node) -> Bound:
        """A number to calculate with: int64 or float64."""
        part = self.bind(node)
        family = _family(part.kind)
        if family not in ("number", "null"):
            self._refuse(node, f"only numbers can be calculated with, but this is {self._shown(part)}")
        run = part.run
        if family == "null":
            return Bound(kind=_INT, run=_nothing(_INT), node=node)
        if pa.types.is_integer(part.kind):
            return Bound(kind=_INT, run=lambda batch: pc.cast(run(batch), _INT), node=node)
        return Bound(kind=_FLOAT, run=_as_float(run), node=node)

    def _negative(self, node: syntax.Negative) -> Bound:
        part = self._number(node.inner)
        run = part.run
        return Bound(kind=part.kind, run=lambda batch: pc.negate_checked(run(batch)), node=node)

    # -- functions --------------------------------------------------------------------------------------

    def _call(self, node: syntax.Call) -> Bound:
        functions: dict[str, Callable[[syntax.Call], Bound]] = {
            "lower": self._case,
            "upper": self._case,
            "length": self._length,
            "abs": self._abs,
            "coalesce": self._coalesce,
            "starts_with": self._part_of_text,
            "contains": self._part_of_text,
        }
        return functions[node.function](node)

    def _case(self, node: syntax.Call) -> Bound:
        part = self._textual(node.arguments[0], node.function)
        if _family(part.kind) != "text":
            self._refuse(node, f"{node.function} needs text, and bytes have no case")
        kernel = pc.utf8_lower if node.function == "lower" else pc.utf8_upper
        run = part.run
        return Bound(kind=part.kind, run=lambda batch: kernel(run(batch)), node=node)

    def _length(self, node: syntax.Call) -> Bound:
        """Characters of a text, bytes of bytes, elements of a list."""
        part = self.bind(node.arguments[0])
        kind, run = part.kind, part.run
        kernel: Callable[[Any], Any]
        if _family(kind) == "null":
            return Bound(kind=_INT, run=_nothing(_INT), node=node)
        if _family(kind) in ("text", "bytes"):
            kernel = pc.utf8_length if _family(kind) == "text" else pc.binary_length
        elif _types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind):
            kernel = pc.list_value_length
        else:
            self._refuse(node, f"{self._shown(part)} has no length")
        return Bound(kind=_INT, run=lambda batch: kernel(run(batch)).cast(_INT), node=node)

    def _abs(self, node: syntax.Call) -> Bound:
        part = self._number(node.arguments[0])
        run = part.run
        return Bound(kind=part.kind, run=lambda batch: pc.abs_checked(run(batch)), node=node)

    def _coalesce(self, node: syntax.Call) -> Bound:
        parts = [self.bind(argument) for argument in node.arguments]
        kind, runs = self._together(parts, node)
        if kind == _NULL:
            return Bound(kind=_NULL, run=_nothing(_NULL), node=node)
        if any(isinstance(part.kind, pa.UuidType) for part in parts):
            kind = pa.uuid()
        return Bound(kind=kind, run=lambda batch: pc.coalesce(*(run(batch) for run in runs)), node=node)

    def _part_of_text(self, node: syntax.Call) -> Bound:
        part = self._textual(node.arguments[0], node.function)
        pattern = self._literal_text(self.bind(node.arguments[1]), f"the second value of {node.function}")
        if pattern is None:
            return Bound(kind=_BOOL, run=_nothing(_BOOL), node=node)
        kernel = pc.starts_with if node.function == "starts_with" else pc.match_substring
        run = part.run
        return Bound(kind=_BOOL, run=lambda batch: kernel(run(batch), pattern), node=node)


# -- values and kernels -------------------------------------------------------------------------------


def _literal_kind(value: syntax.Value) -> pa.DataType:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _INT if -(2**63) <= value < 2**63 else pa.decimal256(_DECIMAL_DIGITS, 0)
    if isinstance(value, datetime.datetime):
        return pa.timestamp("us", tz=None if value.tzinfo is None else "UTC")
    return _LITERAL_KINDS[type(value)]


_LITERAL_KINDS: dict[type, pa.DataType] = {
    type(None): _NULL,
    float: _FLOAT,
    decimal.Decimal: _FLOAT,
    str: _TEXT,
    bytes: pa.binary(),
    datetime.date: pa.date32(),
}


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """A literal in the Python type that makes a scalar of this type."""
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    if pa.types.is_timestamp(kind):
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime(value.year, value.month, value.day)
        if kind.tz is not None and value.tzinfo is None:
            return value.replace(tzinfo=datetime.UTC)
        if kind.tz is None and value.tzinfo is not None:
            raise ValueError("a time with a zone beside a column without one")
    return value


def _is_text_literal(part: Bound) -> bool:
    return part.is_literal and isinstance(part.value, str)


def _as_float(run: Run) -> Run:
    return lambda batch: pc.cast(run(batch), _FLOAT, safe=False)


def _in_set(run: Run, kind: pa.DataType, values: Sequence[pa.Scalar]) -> Run:
    """`x in (…)` for literals, none of them null; null stays null."""
    members = [value.as_py() if not pa.types.is_temporal(kind) else value for value in values]
    if kind == _FLOAT and 0.0 in members:
        members += [0.0, -0.0]  # equal, but not to a hash table
    known = pa.array(members, kind)

    def test(batch: pa.RecordBatch) -> Any:
        array = run(batch)
        return pc.if_else(pc.is_null(array), pa.scalar(None, _BOOL), pc.is_in(array, value_set=known))

    return test


def _not_zero(number: Any) -> Any:
    return pc.if_else(pc.equal(number, 0), pa.scalar(None, number.type), number)


def _remainder(left: Any, right: Any) -> Any:
    """What `left / right` leaves, rounded towards zero."""
    # x % -1 is x % 1, and does not overflow for the least number
    right = pc.if_else(pc.equal(right, -1), pa.scalar(1, _INT), _not_zero(right))
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _quotient(left: Any, right: Any) -> Any:
    return pc.divide(left, _not_zero(right))


_WHOLE: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "%": _remainder,
}
_REAL: dict[str, Callable[[Any, Any], Any]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": _quotient,
}
