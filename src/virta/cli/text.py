"""Text as people read it: counts, spans of time, and nothing a terminal would obey."""

from __future__ import annotations

from virta.exchange.text import visible as visible


def count(number: int, noun: str = "") -> str:
    """`1,000 rows`; the noun is given in the singular."""
    text = f"{number:,}"
    if not noun:
        return text
    return f"{text} {noun}" + ("" if number == 1 else "s")


def span(seconds: float) -> str:
    """A short length of time with three digits: "85.2 µs", "1.20 ms", "3.1 s"."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{_three(seconds / factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def rate(amount: float, seconds: float) -> str:
    """How many in a second, for the noun to follow: "1.24M"."""
    per_second = amount / seconds if seconds > 0 else 0.0
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= factor:
            return f"{_three(per_second / factor)}{unit}"
    return _three(per_second)


def _three(number: float) -> str:
    digits = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:,.{digits}f}"
