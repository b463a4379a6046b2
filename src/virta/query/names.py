"""Which topics a query may mean: found in its text, so that no other is opened.

It may be one too many (a column can bear a topic's name), never one too few. What a name
in the query means in the end is decided by DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from virta.errors import UsageError

_WORD = re.compile(r"\w+")
_PLAIN = re.compile(r"[^\W\d]\w*")
# Behind the name of an update topic: all of its rows, not only the newest of each key (see `ranged`).
ALL_ROWS = "@:"
# Queries about the catalog are about all topics.
_ABOUT_ALL = {"show", "information_schema", "duckdb_tables", "duckdb_views", "duckdb_columns"}


def mentioned(query: str, topics: Iterable[str]) -> list[str]:
    """The topics whose names stand in the query, in whatever case."""
    text = query.casefold()
    words = set(_WORD.findall(text))
    if words & _ABOUT_ALL:
        found = [name for name in topics if not name.startswith("__") or name.casefold() in words]
    else:
        found = [name for name in topics if _stands_in(name, text, words)]
    return _told_apart(found, query)


def _stands_in(name: str, text: str, words: set[str]) -> bool:
    folded = name.casefold()
    if _PLAIN.fullmatch(folded):
        return folded in words
    return folded in text or folded.replace('"', '""') in text


def _told_apart(names: list[str], query: str) -> list[str]:
    """SQL does not tell `Orders` from `orders`: the one that is written as it is called is meant."""
    by_folded: dict[str, list[str]] = {}
    for name in names:
        by_folded.setdefault(name.casefold(), []).append(name)
    chosen = []
    for same in by_folded.values():
        exact = [name for name in same if name in query] if len(same) > 1 else same
        if len(exact) > 1:
            listed = " and ".join(map(repr, exact))
            raise UsageError(f"SQL does not tell the topics {listed} apart", hint="query them one by one")
        chosen += exact
    return chosen
