"""Rows of a topic into files, streamed: one file, or a folder of them.

    export(topic[:], "orders.parquet")
    export(topic.since("-7d"), "orders/", form="parquet", partition_by="day")

A folder has a file per stretch of rows, `part-<first offset>.<form>` (with several partitions
`part-<partition>-<first offset>.<form>`, one partition after the other), a new one after so
many rows, or when the day (hour, month) of `_timestamp` changes: rows lie in the order of
their time, so only one file is open at any time. Partitioned files stand in
`day=2026-11-18/`, as Hive, Spark and DuckDB know it.

Each file is written aside (`….part`), synced, and appears by rename. While a folder is
not whole, `_export.json` in it says what was asked, which offsets that meant, and the next
one. The same export run again goes on there, with the same rows; a file that was finished
but not yet noted gets the same name, and replaces itself. At the end that file goes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from virta.errors import AlreadyExists, UsageError
from virta.exchange.files import ENDINGS, FORMS, for_parquet, parquet_schema
from virta.exchange.json_values import json_columns
from virta.exchange.sinks import ArrowSink, Csv, JsonLines, TextSink
from virta.metadata.schemas import OFFSET, TIMESTAMP
from virta.storage.files import OperatingSystemFiles, replace_file, storage_error
from virta.topics.read import Selection
from virta.topics.topic import Topic

STATE_FILE = "_export.json"
UNFINISHED = ".part"
# The unit of numpy's dates, and how a moment in it names its folder.
PERIODS = {"day": "D", "hour": "h", "month": "M"}
# A row group of Parquet: large enough to compress and skip well, small enough to hold.
_GROUP_ROWS = 128 * 1024
_GROUP_BYTES = 64 * 1024 * 1024

Advance = Callable[[int, int], None]  # told rows and bytes, batch by batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """What an export wrote; `rows` and `files` with those of interrupted runs before it."""

    out: Path
    rows: int
    files: int
    resumed_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """How far an export has come: what `_export.json` holds."""

    topic: str
    asked: str
    form: str
    partition_by: str | None
    rows_per_file: int | None
    starts: list[int]  # by partition, as is `ends`
    ends: list[int]
    since_us: int | None
    until_us: int | None
    next: int
    at: int = 0  # which of the partitions it is in
    rows: int = 0
    files: int = 0


def export(
    rows: Selection | Topic,
    out: str | os.PathLike[str],
    *,
    form: str | None = None,
    partition_by: str | None = None,
    rows_per_file: int | None = None,
    progress: Advance | None = None,
) -> ExportReport:
    """Write the rows to a file; with `partition_by` or `rows_per_file` to files in a folder."""
    selection = rows[:] if isinstance(rows, Topic) else rows
    place = Path(out)
    chosen = _form(form, place)
    if partition_by is not None and partition_by not in PERIODS:
        raise UsageError(f"files are partitioned by {', '.join(PERIODS)}, not by {partition_by!r}")
    if rows_per_file is not None and rows_per_file < 1:
        raise UsageError("a file holds at least one row")
    try:
        if partition_by is None and rows_per_file is None:
            return _to_file(selection, place, chosen, progress)
        return _Folder(selection, place, chosen, partition_by, rows_per_file, progress).run()
    except OSError as error:
        raise storage_error(error, place, "exporting to") from error


def _form(form: str | None, place: Path) -> str:
    chosen = form or ENDINGS.get(place.suffix.lower(), "parquet")
    if chosen not in FORMS:
        raise UsageError(f"rows are exported as {', '.join(FORMS)}, not as {chosen}")
    return chosen


# -- one file -----------------------------------------------------------------------------------


class _Part:
    """A file being written; it gets its name when it is whole."""

    def __init__(self, path: Path, form: str, schema: pa.Schema) -> None:
        self.path = path
        self._form = form
        self._aside = path.with_name(path.name + UNFINISHED)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = self._aside.open("wb")
        self._sink: ArrowSink | TextSink
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self.rows = 0
        try:
            self._begin(schema)
        except BaseException:
            self.drop()
            raise

    def _begin(self, schema: pa.Schema) -> None:
        if self._form in ("arrow", "parquet"):
            self._sink = ArrowSink(self._file, self._form)
            try:
                self._schema = parquet_schema(schema) if self._form == "parquet" else schema
                self._sink.begin(self._schema)
            except (pa.ArrowException, NotImplementedError) as error:
                raise UsageError(
                    f"{self._form} cannot hold these columns: {error}", hint="--format arrow holds them all"
                ) from None
            return
        self._sink = (
            Csv(self._file, header=True) if self._form == "csv" else JsonLines(self._file, header=False)
        )
        self._sink.begin(schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if isinstance(self._sink, TextSink):
            self._sink.write(json_columns(batch))
        elif self._form == "arrow":
            self._sink.write(batch)
        else:
            self._hold(batch)

    def _hold(self, batch: pa.RecordBatch) -> None:
        """Small batches become one row group."""
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self._held_bytes += batch.nbytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._write_held()

    def _write_held(self) -> None:
        if self._held:
            assert isinstance(self._sink, ArrowSink)
            whole = self._held[0] if len(self._held) == 1 else pa.concat_batches(self._held)
            self._held, self._held_rows, self._held_bytes = [], 0, 0
            self._sink.write(for_parquet(whole, self._schema))

    def finish(self) -> None:
        self._write_held()
        self._sink.end()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._aside.replace(self.path)
        OperatingSystemFiles().sync_directory(self.path.parent)

    def drop(self) -> None:
        if not self._file.closed:
            with contextlib.suppress(Exception):  # Arrow's writers want an end, also one that nobody sees
                self._sink.end()
            self._file.close()
        self._aside.unlink(missing_ok=True)


def _to_file(selection: Selection, out: Path, form: str, progress: Advance | None) -> ExportReport:
    if out.is_dir():
        raise UsageError(f"{out} is a folder", hint="name a file, or how to split: --rows-per-file N")
    part = _Part(out, form, selection.schema)
    try:
        for batch in selection.batches():
            part.write(batch)
            if progress is not None:
                progress(batch.num_rows, batch.nbytes)
        part.finish()
    except BaseException:
        part.drop()
        raise
    return ExportReport(out=out, rows=part.rows, files=1)


# -- a folder -----------------------------------------------------------------------------------


class _Folder:
    """Files in a folder, gone on with where an earlier run stopped."""

    def __init__(
        self,
        selection: Selection,
        out: Path,
        form: str,
        partition_by: str | None,
        rows_per_file: int | None,
        progress: Advance | None,
    ) -> None:
        self._selection = selection
        self._parts = selection.by_partition
        self._topic = self._parts[0].stored.identity.topic_id.hex()
        self._out = out
        self._form = form
        self._by = partition_by
        self._most = rows_per_file
        self._progress = progress
        self._files = OperatingSystemFiles()
        self._schema = selection.schema
        self._part: _Part | None = None
        self._period: Any = None
        self._last = -1  # offset of the newest row written
        self._state = self._load() or self._start()

    def run(self) -> ExportReport:
        before = self._state.rows
        self._out.mkdir(parents=True, exist_ok=True)
        for left in self._out.rglob(f"part-*{UNFINISHED}"):
            left.unlink()
        self._save()
        try:
            for at, selection in enumerate(self._parts):
                if at > self._state.at:
                    self._state = replace(self._state, at=at, next=self._state.starts[at])
                if at == self._state.at:
                    self._export(selection)
        except BaseException:
            if self._part is not None:
                self._part.drop()
            raise
        (self._out / STATE_FILE).unlink()
        self._files.sync_directory(self._out)
        return ExportReport(
            out=self._out, rows=self._state.rows, files=self._state.files, resumed_rows=before
        )

    def _export(self, selection: Selection) -> None:
        """What is left of one partition."""
        for batch in self._batches(selection):
            self._write(batch)
            if self._progress is not None:
                self._progress(batch.num_rows, batch.nbytes)
        self._finish_part()

    # -- what is asked, and how far it is ------------------------------------------------------

    def _start(self) -> _State:
        if self._out.exists() and (not self._out.is_dir() or any(self._out.iterdir())):
            raise AlreadyExists(f"{self._out} is not an empty folder", hint="name a new one")
        fixed = self._selection._fix()
        return _State(
            topic=self._topic,
            asked=repr(self._selection),
            form=self._form,
            partition_by=self._by,
            rows_per_file=self._most,
            starts=[each.start for each in fixed],
            ends=[each.end for each in fixed],
            since_us=fixed[0].since_us,
            until_us=fixed[0].until_us,
            next=fixed[0].start,
        )

    def _load(self) -> _State | None:
        path = self._out / STATE_FILE
        try:
            known = _State(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path} is not readable: {error}", hint="export to a new folder") from None
        mine = (self._topic, repr(self._selection), self._form, self._by, self._most)
        if mine != (known.topic, known.asked, known.form, known.partition_by, known.rows_per_file):
            raise AlreadyExists(
                f"another export to {self._out} was interrupted: {known.asked} as {known.form}",
                hint="run that one again to finish it, or name a new folder",
            )
        if known.next < self._parts[known.at].stored.start_offset:
            raise UsageError(
                f"the rows from offset {known.next} on were removed before they were exported",
                hint="export to a new folder",
            )
        return known

    def _save(self) -> None:
        text = json.dumps(asdict(self._state), indent=2) + "\n"
        replace_file(self._files, self._out / STATE_FILE, text.encode())

    def _batches(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        """What is left to write, with the two leading columns."""
        known, limits = self._state, selection._limits
        limit = None if limits.limit is None else limits.limit - known.rows
        names = None
        if limits.columns is not None:
            names = tuple(dict.fromkeys((*limits.columns, OFFSET, TIMESTAMP)))
        rest = selection._with(
            start=known.next,
            end=known.ends[known.at],
            since=_moment(known.since_us),
            until=_moment(known.until_us),
            columns=names,
            limit=limit,
        )
        return rest.batches()

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, batch: pa.RecordBatch) -> None:
        for period, stretch in self._stretches(batch):
            if period != self._period:
                self._finish_part()
                self._period = period
            while stretch.num_rows:
                part = self._part or self._open(stretch)
                room = stretch.num_rows if self._most is None else self._most - part.rows
                part.write(stretch.slice(0, room).select(self._schema.names))
                self._last = stretch.column(OFFSET)[min(room, stretch.num_rows) - 1].as_py()
                stretch = stretch.slice(room)
                if part.rows == self._most:
                    self._finish_part()

    def _stretches(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, pa.RecordBatch]]:
        """The batch in pieces of one period each."""
        if self._by is None:
            yield None, batch
            return
        moments = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy().astype("datetime64[us]")
        periods = moments.astype(f"datetime64[{PERIODS[self._by]}]")
        cuts = [0, *(np.flatnonzero(periods[1:] != periods[:-1]) + 1).tolist(), len(periods)]
        for start, stop in itertools.pairwise(cuts):
            yield periods[start], batch.slice(start, stop - start)

    def _open(self, stretch: pa.RecordBatch) -> _Part:
        first = stretch.column(OFFSET)[0].as_py()
        folder = self._out / _folder(self._by, self._period)
        number = f"{self._parts[self._state.at].stored.identity.number:04d}-" if len(self._parts) > 1 else ""
        self._part = _Part(folder / f"part-{number}{first:020d}.{self._form}", self._form, self._schema)
        return self._part

    def _finish_part(self) -> None:
        part, self._part = self._part, None
        if part is None:
            return
        try:
            part.finish()
        except BaseException:
            part.drop()
            raise
        self._state = replace(
            self._state,
            next=self._last + 1,
            rows=self._state.rows + part.rows,
            files=self._state.files + 1,
        )
        self._save()


def _folder(by: str | None, period: Any) -> str:
    if by is None:
        return ""
    text = str(period)
    return f"day={text[:10]}/hour={text[11:13]}" if by == "hour" else f"{by}={text}"


def _moment(us: int | None) -> datetime | None:
    return None if us is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
