"""A folder of Parquet files as a sink, every commit of it atomic.

    <path>/current              a link to the version in force: readers read <path>/current/
    <path>/versions/<n>/        all files of a version, in Hive's folders where partitioned
    <path>/versions/<n>/_virta.json    the newest batch of each flow, and the source's position

A commit makes a new version: files of the one before are linked, not copied; new rows become
new files, small ones are joined; then the link is replaced in one step. A reader sees the
version before or the one after. The version before stays for whoever is still reading it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from virta.errors import UsageError
from virta.exchange.files import for_parquet, parquet_schema
from virta.metadata.schemas import DELETED, TIMESTAMP
from virta.pipelines.sinks.base import UPSERT, Batch, Committed, Sink, check_mode, newest_by_key
from virta.storage.files import OperatingSystemFiles, replace_file

_CURRENT, _VERSIONS, _RECORD = "current", "versions", "_virta.json"
_UNIT = re.compile(r"(year|month|day|hour)\((\w+)\)")
_FORMATS = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
# Each open file holds a row group in memory; with more partitions files are closed early, and joined later.
_OPEN_FILES = 32
_GROUP_ROWS = 128 * 1024
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class _By:
    """One level of folders: a column, or the unit of a moment."""

    name: str
    column: str
    unit: str | None

    @classmethod
    def of(cls, text: str) -> _By:
        found = _UNIT.fullmatch(text)
        if found is None:
            return cls(name=text, column=text, unit=None)
        return cls(name=found[1], column=found[2], unit=found[1])

    def labels(self, rows: pa.RecordBatch) -> pa.Array:
        """The folder of each row."""
        values = rows.column(self.column)
        if self.unit is not None:
            values = pc.strftime(values, format=_FORMATS[self.unit])
        return values.cast(pa.string()).fill_null(_NO_VALUE)


class ParquetSink(Sink):
    """A folder of Parquet files."""

    def __init__(
        self,
        *,
        path: str,
        mode: str = "append",
        keys: tuple[str, ...] = (),
        partition_by: tuple[str, ...] = (),
        provenance: bool = False,
        file_bytes: int = 128 * 1024 * 1024,
        join_files: int = 8,
    ) -> None:
        self._root = Path(path).expanduser().absolute()
        self._mode = mode
        self._keys = keys
        self._by = [_By.of(each) for each in partition_by]
        self._file_bytes = file_bytes
        self._join_files = join_files
        self._files = OperatingSystemFiles()
        self.provenance = provenance or any(each.column == TIMESTAMP for each in self._by)

    def describe(self) -> str:
        return f"Parquet folder {self._root}"

    def check(self, schema: pa.Schema | None, keys: tuple[str, ...]) -> None:
        self._keys = self._keys or keys
        check_mode(self._mode, self._keys, self.describe())
        if self._mode == UPSERT and self._by:
            raise UsageError(
                "a partitioned Parquet folder is appended to only: a row might move to another partition",
                hint="use a Delta or Iceberg table for upsert, or leave partition_by away",
            )
        for each in self._by if schema is not None else ():
            if each.column != TIMESTAMP and schema is not None and each.column not in schema.names:
                raise UsageError(f"partition_by names {each.column!r}, which is no column of the rows")
        if self._root.exists() and not self._current().exists() and any(self._root.iterdir()):
            others = [each.name for each in self._root.iterdir() if each.name != _VERSIONS]
            if others:
                raise UsageError(
                    f"{self._root} holds other files already: {others[0]}", hint="name a folder of its own"
                )

    # -- versions -----------------------------------------------------------------------------------

    def _current(self) -> Path:
        return self._root / _CURRENT

    def _version(self) -> int:
        try:
            return int(self._current().readlink().name)
        except FileNotFoundError:
            return 0

    def _place(self, version: int) -> Path:
        return self._root / _VERSIONS / f"{version:012d}"

    def _record(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self._current() / _RECORD).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {"flows": {}}

    def committed(self, flow: str) -> Committed | None:
        known = self._record()["flows"].get(flow)
        return None if known is None else Committed(**known)

    def commit(self, batch: Batch) -> None:
        found = self.committed(batch.flow)
        if batch.schema is None or (found is not None and found.number >= batch.number):
            return
        before = self._version()
        self._remove_others(before)
        place = self._place(before + 1)
        place.mkdir(parents=True)
        self._link(self._place(before), place)
        if self._mode == UPSERT:
            self._upsert(batch, place, before + 1)
        else:
            self._append(batch.rows(), batch.schema, place, before + 1)
        self._join(place, before + 1)
        record = self._record()
        record["flows"][batch.flow] = {"number": batch.number, "position": dict(batch.position)}
        replace_file(self._files, place / _RECORD, (json.dumps(record, indent=1) + "\n").encode())
        self._switch(before + 1)

    def _remove_others(self, current: int) -> None:
        """What no reader can be at: versions before the last, and one that was never put in force."""
        kept = {f"{number:012d}" for number in (current, current - 1)}
        with contextlib.suppress(FileNotFoundError):
            for each in (self._root / _VERSIONS).iterdir():
                if each.name not in kept:
                    shutil.rmtree(each)

    def _link(self, source: Path, place: Path) -> None:
        for path in sorted(source.rglob("*.parquet")):
            target = place / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)

    def _switch(self, version: int) -> None:
        """The one step that counts."""
        for folder in sorted({path.parent for path in self._place(version).rglob("*")}):
            self._files.sync_directory(folder)
        self._files.sync_directory(self._root / _VERSIONS)
        aside = self._root / f".{_CURRENT}.new"
        aside.unlink(missing_ok=True)
        aside.symlink_to(Path(_VERSIONS) / f"{version:012d}")
        aside.replace(self._current())
        self._files.sync_directory(self._root)

    # -- rows ---------------------------------------------------------------------------------------

    def _append(self, rows: Iterator[pa.RecordBatch], schema: pa.Schema, place: Path, version: int) -> None:
        inner = pa.schema([field for field in schema if field.name not in {each.name for each in self._by}])
        writing = _Writing(place, f"part-{version:012d}", inner, self._file_bytes)
        for batch in rows:
            for folder, part in self._parts(batch):
                writing.write(folder, part.select(inner.names))
        writing.finish()

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows by folder."""
        if not self._by:
            yield "", batch
            return
        labels = [each.labels(batch) for each in self._by]
        table = pa.table(
            [*labels, pa.array(range(batch.num_rows))], names=[*map(str, range(len(labels))), "row"]
        )
        groups = table.group_by([str(at) for at in range(len(labels))], use_threads=False)
        for group in groups.aggregate([("row", "list")]).to_pylist():
            names = [f"{each.name}={quote(group[str(at)], safe=' :')}" for at, each in enumerate(self._by)]
            yield "/".join(names), batch.take(pa.array(group["row_list"]))

    def _upsert(self, batch: Batch, place: Path, version: int) -> None:
        """Files that hold rows of the same keys are written again without them."""
        rows = newest_by_key(batch.table(), self._keys)
        gone = _key_set(rows, self._keys)
        for path in sorted(place.rglob("*.parquet")):
            known = _key_list(pq.ParquetFile(path).read(list(self._keys)), self._keys)
            stays = [key not in gone for key in known]
            if all(stays):
                continue
            if any(stays):
                table = pq.ParquetFile(path).read().filter(pa.array(stays))
                made = path.with_name(f"rest-{version:012d}-{path.name[-24:]}")
                _write_table(made, table)
            path.unlink()  # this version's link; the version before has its own
        if DELETED in rows.column_names:
            rows = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        self._append(iter(rows.to_batches()), rows.schema, place, version)

    def _join(self, place: Path, version: int) -> None:
        """Many small files of a folder become one."""
        for folder in sorted({path.parent for path in place.rglob("*.parquet")}):
            small = [
                path
                for path in sorted(folder.glob("*.parquet"))
                if path.stat().st_size < self._file_bytes // 2
            ]
            if len(small) < self._join_files:
                continue
            schema = pa.unify_schemas([pq.read_schema(path) for path in small], promote_options="permissive")
            made = folder / f"joined-{version:012d}.parquet"
            with _opened(made) as file, pq.ParquetWriter(file, schema) as writer:
                for path in small:
                    for group in pq.ParquetFile(path).iter_batches(_GROUP_ROWS):
                        writer.write_batch(_filled(group, schema))
            for path in small:
                path.unlink()

    def deletes(self) -> bool:
        return self._mode == UPSERT

    def head(self) -> Any:
        return {"version": self._version()}


class _Writing:
    """Files being written, one for each folder."""

    def __init__(self, place: Path, stem: str, schema: pa.Schema, file_bytes: int) -> None:
        self._place = place
        self._stem = stem
        self._schema = parquet_schema(schema)
        self._file_bytes = file_bytes
        self._open: OrderedDict[str, tuple[Any, pq.ParquetWriter]] = OrderedDict()
        self._made = 0

    def write(self, folder: str, rows: pa.RecordBatch) -> None:
        if folder not in self._open:
            while len(self._open) >= _OPEN_FILES:
                self._close(next(iter(self._open)))
            path = self._place / folder / f"{self._stem}-{self._made:06d}.parquet"
            self._made += 1
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("wb")
            self._open[folder] = (file, pq.ParquetWriter(file, self._schema))
        self._open.move_to_end(folder)
        file, writer = self._open[folder]
        writer.write_batch(for_parquet(rows, self._schema))
        if file.tell() >= self._file_bytes:
            self._close(folder)

    def _close(self, folder: str) -> None:
        file, writer = self._open.pop(folder)
        writer.close()
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def finish(self) -> None:
        for folder in list(self._open):
            self._close(folder)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write_table(path: Path, table: pa.Table) -> None:
    with _opened(path) as file:
        pq.write_table(table, file)


def _filled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _key_list(table: pa.Table, keys: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(key).to_pylist() for key in keys), strict=True))


def _key_set(table: pa.Table, keys: tuple[str, ...]) -> set[tuple[Any, ...]]:
    return set(_key_list(table, keys))
