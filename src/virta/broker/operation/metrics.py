"""Numbers of a running broker, in the text form that Prometheus reads.

A metric is a name, a kind and what it means; its values come from counters that the broker
raises, or from a function that is asked when somebody looks. Labels have few values by nature
(verbs, kinds of errors, topics up to a bound): a client can not make new ones.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]

# Seconds: from an append in memory to what an operator calls slow.
LATENCY_BUCKETS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)


class Counter:
    """Only rises. A dictionary of labels to numbers."""

    kind = "counter"

    def __init__(self) -> None:
        self._values: dict[Labels, float] = {}

    def add(self, amount: float = 1, /, **labels: str) -> None:
        key = tuple(labels.items())
        self._values[key] = self._values.get(key, 0) + amount

    def value(self, **labels: str) -> float:
        return self._values.get(tuple(labels.items()), 0)

    def samples(self) -> Iterable[tuple[str, Labels, float]]:
        values = dict(self._values) or {(): 0.0}
        return [("", labels, value) for labels, value in values.items()]


class Gauge:
    """What is so now: asked when somebody looks."""

    kind = "gauge"

    def __init__(self, ask: Callable[[], float | Iterable[Sample]], *, kind: str = "gauge") -> None:
        self._ask = ask
        self.kind = kind

    def samples(self) -> Iterable[tuple[str, Labels, float]]:
        found = self._ask()
        if isinstance(found, int | float):
            return [("", (), found)]
        return [("", labels, value) for labels, value in found]


class Histogram:
    """How long things took, in buckets."""

    kind = "histogram"

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS) -> None:
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def note(self, value: float, /, **labels: str) -> None:
        key = tuple(labels.items())
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(self._bounds) + 1)
        counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def samples(self) -> Iterable[tuple[str, Labels, float]]:
        for labels, counts in list(self._counts.items()):
            total = 0
            for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
                total += count
                text = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield "_bucket", (*labels, ("le", text)), total
            yield "_sum", labels, self._sums[labels]
            yield "_count", labels, total


Metric = Counter | Gauge | Histogram


@dataclass(slots=True)
class Registry:
    """All metrics of a broker."""

    _metrics: dict[str, tuple[Metric, str]] = field(default_factory=dict)

    def counter(self, name: str, meaning: str) -> Counter:
        counter = Counter()
        self._metrics[name] = (counter, meaning)
        return counter

    def histogram(self, name: str, meaning: str) -> Histogram:
        histogram = Histogram()
        self._metrics[name] = (histogram, meaning)
        return histogram

    def gauge(
        self, name: str, meaning: str, ask: Callable[[], float | Iterable[Sample]], *, kind: str = "gauge"
    ) -> None:
        self._metrics[name] = (Gauge(ask, kind=kind), meaning)

    def text(self) -> str:
        """Everything, in the text format 0.0.4."""
        lines = []
        for name, (metric, meaning) in self._metrics.items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {metric.kind}"]
            for ending, labels, value in metric.samples():
                lines.append(f"{name}{ending}{_labels(labels)} {_number(value)}")
        return "\n".join(lines) + "\n"


def labelled(values: Mapping[str, float], name: str) -> list[Sample]:
    """One sample per value of a label."""
    return [(((name, key),), value) for key, value in values.items()]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
