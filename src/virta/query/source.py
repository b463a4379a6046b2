"""A snapshot as something DuckDB scans: which columns and which rows are asked of it.

DuckDB tells a source which columns a scan needs, and offers it the conditions on them. Taken
are those that compare `_offset` or `_timestamp` with a constant: the chain answers them
without reading. All others DuckDB does itself, faster than Arrow would.

This way in belongs to DuckDB 2 and is not promised for other versions; where it is missing
the snapshot is registered as a `pyarrow.dataset`, which gives the same rows more slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from virta.topics.snapshot import OFFSET, TIMESTAMP, Range, TopicSnapshot

if TYPE_CHECKING:
    import duckdb

_I64 = (-(1 << 63), (1 << 63) - 1)
_COMPARISONS = ("=", "<", "<=", ">", ">=")


class Failures:
    """What went wrong in our part of a scan; DuckDB passes on only the words of it."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def note(self, error: BaseException) -> None:
        self.first = self.first or error


def register(
    cursor: duckdb.DuckDBPyConnection, name: str, snapshot: TopicSnapshot, failures: Failures
) -> None:
    """Let statements of this cursor read the snapshot under a name."""
    hook = getattr(cursor, "_register_arrow_source", None)
    kind = _source_class() if hook is not None else None
    if hook is None or kind is None:
        cursor.register(name, snapshot.dataset())
    else:
        hook(name, kind(snapshot, failures))


@cache
def _source_class() -> Callable[[TopicSnapshot, Failures], Any] | None:
    try:
        from duckdb._sources.arrow import ArrowScanSource
    except ImportError:
        return None

    class TopicSource(ArrowScanSource):
        schema_is_stable = True

        def __init__(self, snapshot: TopicSnapshot, failures: Failures) -> None:
            super().__init__(snapshot)
            self._snapshot = snapshot
            self._failures = failures

        def __arrow_c_schema__(self) -> object:
            return self._snapshot.schema.__arrow_c_schema__()

        def rows(self) -> int | None:
            return self._snapshot.offsets

        def accepts(self, predicate: Any) -> bool:
            return range_of(predicate) is not None

        def stream(self, columns: Sequence[int] | None, filters: Sequence[Any]) -> tuple[object, bool]:
            try:
                return self._stream(columns, filters)
            except BaseException as error:
                self._failures.note(error)
                raise

        def _stream(self, columns: Sequence[int] | None, filters: Sequence[Any]) -> tuple[object, bool]:
            wanted = Range()
            for predicate in filters:
                known = range_of(predicate)
                assert known is not None, "DuckDB gives back what was accepted"
                wanted = wanted.inside(known)
            reader = self._snapshot.reader(columns, wanted, on_error=self._failures.note)
            return reader.__arrow_c_stream__(), columns is not None

    return TopicSource


def range_of(predicate: Any) -> Range | None:
    """The range that a condition means, if it means one exactly."""
    operator = getattr(predicate, "op", None)
    left, right = getattr(predicate, "left", None), getattr(predicate, "right", None)
    if operator == "AND":
        both = range_of(left), range_of(right)
        return None if both[0] is None or both[1] is None else both[0].inside(both[1])
    parts, value = getattr(left, "parts", None), getattr(right, "value", None)
    if operator not in _COMPARISONS or type(value) is not int or not _I64[0] < value < _I64[1]:
        return None
    if parts == (OFFSET,):
        return _offsets(operator, value)
    if parts == (TIMESTAMP,):
        return _times(operator, value)
    return None


def _offsets(operator: str, value: int) -> Range:
    first, end = _bounds(operator, value)
    whole = Range()
    return Range(
        start=whole.start if first is None else max(whole.start, first),
        end=whole.end if end is None else min(whole.end, end),
    )


def _times(operator: str, value: int) -> Range:
    first, end = _bounds(operator, value)
    return Range(since_us=first, until_us=end)


def _bounds(operator: str, value: int) -> tuple[int | None, int | None]:
    """The least value that fits, and the one after the greatest."""
    if operator == "=":
        return value, value + 1
    if operator in (">", ">="):
        return value + (operator == ">"), None
    return None, value + (operator == "<=")
