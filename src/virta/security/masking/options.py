"""The options of a masking method: checked by name and type, none left over unread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virta.errors import UsageError


class Options:
    """What a policy says beside the method's name; each is taken once."""

    def __init__(self, method: str, given: Mapping[str, Any]) -> None:
        self._method = method
        self._given = dict(given)
        self._known: list[str] = []

    def text(self, name: str, otherwise: str) -> str:
        value = self._take(name, otherwise)
        if not isinstance(value, str):
            raise UsageError(f"{name} of the masking method {self._method!r} is a text, not {value!r}")
        return value

    def number(self, name: str, otherwise: int, *, least: int = 0, most: int = 1 << 31) -> int:
        value = self._take(name, otherwise)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise UsageError(
                f"{name} of the masking method {self._method!r} is a whole number from {least} to {most}, "
                f"not {value!r}"
            )
        return value

    def positive(self, name: str) -> float | None:
        value = self._take(name, None)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise UsageError(
                f"{name} of the masking method {self._method!r} is a number above 0, not {value!r}"
            )
        return float(value)

    def names(self, name: str) -> tuple[str, ...]:
        value = self._take(name, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
            raise UsageError(f"{name} of the masking method {self._method!r} names columns, not {value!r}")
        return tuple(found)

    def anything(self, name: str) -> Any:
        if name not in self._given:
            raise UsageError(f"the masking method {self._method!r} needs {name}")
        return self._take(name, None)

    def _take(self, name: str, otherwise: Any) -> Any:
        self._known.append(name)
        return self._given.pop(name, otherwise)

    def end(self) -> None:
        """Nothing may be left: a misspelt option would mask otherwise than was meant."""
        if self._given:
            odd = ", ".join(sorted(self._given))
            known = ", ".join(self._known) or "none"
            raise UsageError(
                f"the masking method {self._method!r} has no option {odd}", hint=f"its options: {known}"
            )
