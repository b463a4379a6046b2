"""What keeps the demo's topics alive, each in a process of its own, as it would be in real life.

    python -m virta.cli.demo.feeds orders|sensors|life|billing PATH [--seconds N]

`orders`, `sensors` and `life` append; `billing` is a consumer group that reads a little
slower than orders come, so that its lag can be watched. All of them end with the demo:
when its end of their standard input is closed, or after so many seconds.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import virta
from virta.cli.demo.life import generations
from virta.exchange.templates import BUILT_IN, compile_template

if TYPE_CHECKING:
    from virta.log import Log
    from virta.topics.topic import Topic

GROUP = "billing"
ORDERS_COLUMNS = ("id:int", "user:str", "email:str", "amount:float", "country:label")
ORDERS_TEMPLATE: dict[str, Any] = {
    "id": "{{count 1}}",
    "user": "{{name}}",
    "email": "{{email}}",
    "amount": "{{float 1 200}}",
    "country": "{{country}}",
}
_ORDERS_PER_SECOND, _SENSORS_PER_SECOND, _GENERATIONS_PER_SECOND = 20, 100, 5
# Of twenty orders a second it takes fifteen: it falls behind slowly enough to watch.
_BILLED_PER_SECOND = 15
_TICK_SECONDS = 0.1


def make_topics(log: Log) -> Topic:
    """The three topics; gives the orders."""
    from virta.exchange.schema_text import schema_of_words  # Arrow is not for --help

    log.create_topic("sensors", schema_of_words(BUILT_IN["sensors"][0]))
    log.create_topic(
        "life",
        {"x": int, "y": int, "alive": bool, "generation": int},
        kind="update",
        keys=["x", "y"],
    )
    return log.create_topic("orders", schema_of_words(ORDERS_COLUMNS))


def order_maker(seed: int) -> Callable[[int], dict[str, Any]]:
    """Orders that look like orders, by their number."""
    chance, make = random.Random(seed), compile_template(ORDERS_TEMPLATE)
    return lambda number: make(chance, number)


# -- the feeds ----------------------------------------------------------------------------------


def _orders(topic: Topic, ticks: Iterator[None]) -> None:
    make = order_maker(topic.next_offset)
    for _ in ticks:
        first = topic.next_offset
        topic.append([make(first + n) for n in range(int(_ORDERS_PER_SECOND * _TICK_SECONDS))])


def _sensors(topic: Topic, ticks: Iterator[None]) -> None:
    chance = random.Random(7)
    for _ in ticks:
        now = datetime.datetime.now(datetime.UTC)
        topic.append(
            [
                {
                    "sensor": f"sensor-{chance.randint(1, 9)}",
                    "celsius": round(chance.normalvariate(20, 4), 2),
                    "humidity": round(chance.random(), 3) if chance.random() < 0.8 else None,
                    "measured": now,
                }
                for _ in range(int(_SENSORS_PER_SECOND * _TICK_SECONDS))
            ]
        )


def _life(topic: Topic, ticks: Iterator[None]) -> None:
    """A generation is one append: readers see it whole or not at all."""
    made = generations(seed=11)
    per_generation = max(1, round(1 / (_GENERATIONS_PER_SECOND * _TICK_SECONDS)))
    for tick, _ in enumerate(ticks):
        if tick % per_generation == 0:
            topic.append(next(made))


def _billing(topic: Topic, ticks: Iterator[None]) -> None:
    pause = 1 / _BILLED_PER_SECOND
    with topic.reader(group=GROUP, start="newest") as reader:
        for number, _ in enumerate(reader):
            time.sleep(pause)
            if number % _BILLED_PER_SECOND == 0:
                reader.commit()
            if next(ticks, _OVER) is _OVER:
                return


FEEDS: dict[str, tuple[str, Callable[[Any, Iterator[None]], None]]] = {
    "orders": ("orders", _orders),
    "sensors": ("sensors", _sensors),
    "life": ("life", _life),
    GROUP: ("orders", _billing),
}
_OVER = object()


def _ticks(seconds: float | None, tick: float) -> Iterator[None]:
    """Ten times a second, until the time is over or nobody holds the other end of stdin."""
    end = None if seconds is None else time.monotonic() + seconds
    due = time.monotonic()
    while end is None or time.monotonic() < end:
        yield None
        due = max(due + tick, time.monotonic() - tick)
        if _is_left(max(0.0, due - time.monotonic())):
            return


def _is_left(wait_seconds: float) -> bool:
    """Wait, and say whether the demo is gone."""
    ready, _, _ = select.select([0], [], [], wait_seconds)
    return bool(ready) and not os.read(0, 1)


def main(words: Sequence[str]) -> int:
    name, path = words[0], Path(words[1])
    seconds = float(words[2]) if len(words) > 2 else None
    topic, feed = FEEDS[name]
    tick = 0.0 if name == GROUP else _TICK_SECONDS
    with contextlib.suppress(KeyboardInterrupt), virta.open(path, create=False) as log:
        feed(log.topic(topic), _ticks(seconds, tick))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
