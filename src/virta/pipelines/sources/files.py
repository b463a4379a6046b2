"""Files as a source: Parquet, Arrow, CSV and JSON; each file once, however often the flow runs.

A file is known by its path, size and time of change; one that was replaced is refused, since
its rows could be there twice. Files come in the order of their time and name.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.errors import NotFound, UsageError
from virta.exchange.files import ENDINGS, files_in, own_columns, schema_of_file
from virta.exchange.input import Source as Input
from virta.metadata.schemas import HEADERS
from virta.pipelines.sources.base import Origin, Plan, Position, Source, Split

_BATCH_ROWS = 64 * 1024
# CSV and JSON tell no types; so many rows are looked at to find them, where nobody says.
_LOOK_BYTES = 1 << 20


class FileSource(Source):
    """All files that a pattern names, or that lie in a folder."""

    def __init__(
        self,
        *,
        files: str,
        form: str | None = None,
        columns: pa.Schema | None = None,
        name: str | None = None,
    ) -> None:
        self._pattern = files
        self._form = form
        self._columns = columns
        self._fixed: pa.Schema | None = None  # for the batch that is planned, so that all workers agree
        self._name = self.known_as = name or Path(files.rstrip("/*")).stem.strip("*") or "files"

    def origin(self) -> Origin:
        return Origin(name=self._name, description=f"files {self._pattern}", details={"files": self._pattern})

    def _found(self) -> list[Path]:
        place = Path(self._pattern)
        if place.exists():
            return list(files_in([place]))
        named = sorted(glob.glob(self._pattern, recursive=True))  # noqa: PTH207 (patterns may be absolute)
        return [Path(each) for each in named if Path(each).is_file()]

    def schema(self) -> pa.Schema:
        if self._columns is not None:
            return self._columns
        if self._fixed is None:
            self._fixed = self._newest_schema()
        return self._fixed

    def _newest_schema(self) -> pa.Schema:
        found = self._found()
        if not found:
            raise NotFound(f"there are no files {self._pattern} to take the columns from")
        newest = max(found, key=_when)
        if self._kind(newest) in ("parquet", "arrow"):
            schema = own_columns(schema_of_file(newest), newest)
            return pa.schema([field for field in schema if field.name != HEADERS])
        return _guessed(newest, self._kind(newest))

    def _kind(self, path: Path) -> str:
        return self._form or ENDINGS.get(path.suffix.lower(), "jsonl")

    def plan(self, position: Position | None, most_rows: int) -> Plan | None:  # noqa: ARG002 (files are whole)
        self._fixed = None
        known: dict[str, Any] = dict((position or {}).get("files", {}))
        splits: list[Split] = []
        for path in sorted(self._found(), key=_when):
            facts = path.stat()
            mark = [facts.st_size, facts.st_mtime_ns]
            name = str(path.absolute())
            before = known.get(name)
            if before is None:
                known[name] = mark
                splits.append({"file": name, "size": facts.st_size})
            elif before != mark:
                raise UsageError(
                    f"{path} was changed after its rows were taken",
                    hint="give changed files new names; rows that are there stay there",
                )
        if not splits:
            return None
        return Plan(splits=tuple(splits), position={"files": known})

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        path = Path(split["file"])
        schema = self.schema()
        for chunk in Input(str(path), self._form).chunks(schema, _BATCH_ROWS):
            yield _fitted(chunk.rows, schema, path)


def _when(path: Path) -> tuple[int, str]:
    return (path.stat().st_mtime_ns, str(path))


def _fitted(rows: pa.RecordBatch, schema: pa.Schema, path: Path) -> pa.RecordBatch:
    """The columns of the source in their order; what a file does not have is null."""
    odd = [name for name in rows.schema.names if name not in schema.names and not name.startswith("_")]
    if odd:
        raise UsageError(
            f"{path} has columns that the newest file does not: {', '.join(odd)}",
            hint='name the columns in the pipeline: columns = { id = "int", … }',
        )
    columns = []
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(rows.num_rows, field.type))
        else:
            columns.append(rows.column(at).cast(field.type))
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([field.with_nullable(True) for field in schema])
    )


def _guessed(path: Path, form: str) -> pa.Schema:
    """Column types as the beginning of a text file suggests them."""
    if form in ("csv", "tsv"):
        import pyarrow.csv

        options = pyarrow.csv.ParseOptions(delimiter="\t" if form == "tsv" else ",")
        with pyarrow.csv.open_csv(path, parse_options=options) as reader:
            return reader.schema
    with path.open("rb") as file:
        head = file.read(_LOOK_BYTES)
    lines = head.split(b"\n")
    whole = lines[:-1] if len(head) == _LOOK_BYTES else lines
    rows = [json.loads(line) for line in whole if line.strip()]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{path} holds no lines of JSON objects", hint="name the columns in the pipeline")
    return pa.Table.from_pylist(
        [{k: v for k, v in row.items() if not k.startswith("_")} for row in rows]
    ).schema
