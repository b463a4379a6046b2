"""Reading what a pipeline's file says: each word once, of the type it has to be, none left over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from virta.errors import UsageError

_TYPES = {
    "int": pa.int64(),
    "str": pa.string(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us", "UTC"),
}
_MISSING = object()


class Words:
    """A table of settings being read."""

    def __init__(self, where: str, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise UsageError(f"{where} is a table of settings, not {given!r}")
        self.where = where
        self._given = dict(given)
        self._known: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def take(self, name: str, kind: type | tuple[type, ...], otherwise: Any = _MISSING) -> Any:
        """The value of a word; `otherwise` where it is not there."""
        self._known.add(name)
        value = self._given.pop(name, otherwise)
        if value is _MISSING:
            raise UsageError(f"{self.where} needs {name}")
        if value is otherwise:
            return value
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise UsageError(f"{name} of {self.where} cannot be {value!r}")
        return value

    def text(self, name: str, otherwise: Any = _MISSING) -> Any:
        return self.take(name, str, otherwise)

    def names(self, name: str) -> tuple[str, ...]:
        value = self.take(name, (str, list, tuple), ())
        found = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(each, str) for each in found):
            raise UsageError(f"{name} of {self.where} is a list of names, not {value!r}")
        return found

    def table(self, name: str) -> dict[str, Any]:
        return dict(self.take(name, Mapping, {}))

    def tables(self, name: str) -> list[Any]:
        value = self.take(name, (list, tuple, Mapping), [])
        return [value] if isinstance(value, Mapping) else list(value)

    def columns(self, name: str) -> pa.Schema | None:
        """Columns with their types: { id = "int", at = "timestamp[us, UTC]" }."""
        written = self.table(name)
        if not written:
            return None
        return pa.schema([pa.field(column, self._type(column, text)) for column, text in written.items()])

    def _type(self, column: str, text: Any) -> pa.DataType:
        if text in _TYPES:
            return _TYPES[text]
        try:
            return pa.type_for_alias(text)
        except (ValueError, TypeError):
            raise UsageError(
                f"column {column} of {self.where}: {text!r} is no type", hint=f"one of {', '.join(_TYPES)}"
            ) from None

    def one_of(self, names: Iterable[str]) -> str:
        """Which one of these words is there."""
        known = tuple(names)
        found = [name for name in known if name in self._given]
        if len(found) != 1:
            said = " and ".join(found) if found else "none"
            raise UsageError(f"{self.where} is one of {', '.join(known)}; it says {said}")
        return found[0]

    def end(self) -> None:
        """Nothing may be left: a misspelt word would change what happens."""
        for name in self._given:
            near = get_close_matches(name, self._known, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"its words: {', '.join(sorted(self._known))}"
            raise UsageError(f"{self.where} has no setting {name!r}", hint=hint)
