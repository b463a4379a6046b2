"""Conway's Game of Life: which cells are alive, and what changes from one generation to the next.

The board is a ring in both directions. It knows nothing of logs: a generation is the set
of its living cells, and what becomes rows is only what changed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

Cell: TypeAlias = tuple[int, int]
Cells: TypeAlias = frozenset[Cell]

WIDTH, HEIGHT = 64, 36
# Far fewer than this and the board is asleep: something new is thrown in.
_SLEEPY_CHANGES = 24
_SHARE_ALIVE = 0.22
_GLIDER: tuple[Cell, ...] = ((1, 0), (2, 1), (0, 2), (1, 2), (2, 2))


def random_cells(chance: random.Random) -> Cells:
    """A board to begin with."""
    return frozenset((x, y) for x in range(WIDTH) for y in range(HEIGHT) if chance.random() < _SHARE_ALIVE)


def next_generation(alive: Cells) -> Cells:
    """A cell lives with three living neighbours, or with two if it lived before."""
    neighbours: Counter[Cell] = Counter(
        ((x + dx) % WIDTH, (y + dy) % HEIGHT)
        for x, y in alive
        for dx in (-1, 0, 1)
        for dy in (-1, 0, 1)
        if dx or dy
    )
    return frozenset(
        cell for cell, count in neighbours.items() if count == 3 or (count == 2 and cell in alive)
    )


def with_gliders(alive: Cells, chance: random.Random) -> Cells:
    """Some gliders somewhere, so that a board never falls asleep."""
    found = set(alive)
    for _ in range(4):
        left, top = chance.randrange(WIDTH), chance.randrange(HEIGHT)
        found |= {((left + x) % WIDTH, (top + y) % HEIGHT) for x, y in _GLIDER}
    return frozenset(found)


def generations(seed: int) -> Iterator[list[dict[str, Any]]]:
    """The rows of one generation after the other: cells that were born or died."""
    chance = random.Random(seed)
    before: Cells = frozenset()
    alive = random_cells(chance)
    number = 0
    while True:
        changed = before ^ alive
        yield [{"x": x, "y": y, "alive": (x, y) in alive, "generation": number} for x, y in sorted(changed)]
        before, alive = alive, next_generation(alive)
        if len(before ^ alive) < _SLEEPY_CHANGES:
            alive = with_gliders(alive, chance)
        number += 1


def drawn(alive: Cells, left: int = 0, top: int = 0, columns: int = WIDTH, lines: int = HEIGHT) -> list[str]:
    """A board for a terminal: two cells above one another in one sign."""
    signs = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}
    return [
        "".join(signs[(x, y) in alive, (x, y + 1) in alive] for x in range(left, left + columns)).rstrip()
        for y in range(top, top + lines, 2)
    ]
