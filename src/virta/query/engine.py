"""DuckDB for one log: a database in memory that holds nothing, and a cursor per query.

Names in a query are the log's topics and nothing else: no files, no network, no Python
variables, no extensions from anywhere. Only one statement at a time, and only such as read;
DuckDB holds to that as well, in a transaction that is read-only.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from virta.errors import Closed, NotFound, UnavailableError, UsageError, VirtaError
from virta.metadata.schemas import suggest
from virta.query import names
from virta.query.ranged import ranged
from virta.query.result import Opened, Result
from virta.query.source import Failures, register
from virta.topics.snapshot import TopicSnapshot

if TYPE_CHECKING:
    import duckdb

Parameters = Sequence[Any] | Mapping[str, Any] | None

_READING = ("SELECT", "EXPLAIN", "MULTI")  # MULTI is what a PIVOT becomes
_UNKNOWN_TABLE = re.compile(r'Table with name "?(.+?)"? does not exist')
_HINTS = {"PermissionException": "external_access=True lets a query read files and the network"}


class QueryCancelled(UnavailableError):
    """The query was cancelled before its end."""

    code = "cancelled"


class Engine:
    """Runs queries over the topics of one log."""

    def __init__(
        self, topic_names: Callable[[], list[str]], snapshot_of: Callable[[str], TopicSnapshot]
    ) -> None:
        self._topic_names = topic_names
        self._snapshot_of = snapshot_of
        self._lock = threading.Lock()
        self._databases: dict[bool, duckdb.DuckDBPyConnection] = {}
        self._results: weakref.WeakSet[Result] = weakref.WeakSet()
        self._closed = False

    def query(self, query: str, parameters: Parameters, *, external_access: bool) -> Result:
        """Check the query, fix every topic in it to its rows of this moment, and bind it."""
        with self._cursor(external_access) as cursor:
            _check_reads(cursor, query)
        mentioned = names.mentioned(query, self._topic_names())
        mentioned += ranged(query, mentioned)
        snapshots = [(name, self._snapshot_of(name)) for name in mentioned]
        given = _plain(parameters)
        made = Result(query, lambda: self._open(query, given, snapshots, external_access))
        with self._lock:
            self._results.add(made)
        return made

    def _open(
        self,
        query: str,
        parameters: Any,
        snapshots: Sequence[tuple[str, TopicSnapshot]],
        external_access: bool,
    ) -> Opened:
        """A cursor of its own with the query bound in it; nothing is read yet."""
        cursor = self._cursor(external_access)
        failures = Failures()

        def failed(error: BaseException) -> NoReturn:
            raise self._explained(error, failures) from error

        try:
            for name, snapshot in snapshots:
                register(cursor, name, snapshot, failures)
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            relation = cursor.sql(query, params=parameters)
        except Exception as error:
            cursor.close()
            failed(error)
        return Opened(cursor, relation, failed)

    def _cursor(self, external_access: bool) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._closed:
                raise Closed("the log was closed")
            database = self._databases.get(external_access)
            if database is None:
                database = self._databases[external_access] = _new_database(external_access)
            return database.cursor()

    def _explained(self, error: BaseException, failures: Failures) -> BaseException:
        """What an error of DuckDB means to the caller."""
        if isinstance(failures.first, VirtaError):
            return failures.first
        if isinstance(error, VirtaError):
            return error
        kind = type(error).__name__
        if kind == "RuntimeError" and str(error) == "Query interrupted":
            return KeyboardInterrupt()  # Ctrl-C, as DuckDB says it
        if kind == "InterruptException":
            return QueryCancelled("the query was cancelled")
        if kind == "OutOfMemoryException":
            return UnavailableError(str(error), hint="select fewer columns or rows, or aggregate them")
        if not type(error).__module__.startswith(("duckdb", "_duckdb")):
            return error
        unknown = _UNKNOWN_TABLE.search(str(error))
        if unknown is not None:
            name = unknown.group(1)
            return NotFound(f"topic {name!r} not found", hint=suggest(name, self._topic_names(), "topics"))
        return UsageError(_words(error), hint=_HINTS.get(kind))

    def close(self) -> None:
        """Let go of DuckDB; queries that run are cancelled."""
        with self._lock:
            self._closed = True
            results, databases = list(self._results), list(self._databases.values())
            self._databases.clear()
        for result in results:
            result.cancel()
        for database in databases:
            # while a query is still on its way out DuckDB refuses: then the last cursor lets go of it
            with contextlib.suppress(Exception):
                database.close()


def _new_database(external_access: bool) -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ModuleNotFoundError as error:
        if error.name != "duckdb":
            raise
        raise UsageError(
            "SQL needs the package duckdb, which is not installed", hint="pip install 'virta[sql]'"
        ) from error
    database = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": external_access,
            "python_enable_replacements": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": external_access,
            # where results go that are larger than memory; made when it is needed
            "temp_directory": str(Path(tempfile.gettempdir()) / f"virta-sql-{os.getpid()}"),
        },
    )
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    database.execute("SET lock_configuration = true")
    return database


def _check_reads(cursor: duckdb.DuckDBPyConnection, query: str) -> None:
    """One statement, and one that reads."""
    try:
        statements = cursor.extract_statements(query)
    except Exception as error:
        raise UsageError(_words(error)) from error
    if not statements:
        raise UsageError("the query is empty")
    if len(statements) > 1:
        raise UsageError(f"there are {len(statements)} statements here", hint="one query at a time")
    kind = statements[0].type.name
    if kind not in _READING:
        raise UsageError(
            f"{kind} is not for queries: they only read",
            hint="SELECT, WITH, FROM, EXPLAIN, DESCRIBE, SHOW and SUMMARIZE read; topic.append() writes",
        )


def _plain(parameters: Parameters) -> Any:
    if parameters is None:
        return None
    if isinstance(parameters, Mapping):
        return dict(parameters)
    if isinstance(parameters, str | bytes):
        raise UsageError("parameters are a list or a dict", hint="log.sql(query, [value])")
    return list(parameters)


def _words(error: BaseException) -> str:
    """DuckDB's message without the kind of error before it."""
    text = str(error).strip()
    return re.sub(r"^[A-Z][A-Za-z ]+ Error: ", "", text)
