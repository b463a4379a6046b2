"""The work of a batch on Spark: its splits on the workers, staged where the driver finds them.

What can be read by Virta itself (topics, files) never goes through Java: a task reads its
split, transforms it in Arrow and writes the staged file, and Spark only hands out the
tasks and sees to those that fail. Where the plan is Spark's own (SQL, tables behind JDBC,
Kafka), Spark reads, and its tasks stage what they get.

What a task is to do travels pickled inside the class of the data source, never as an option,
which Spark's web page would show: a masking key may be in it.
"""

from __future__ import annotations

import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from virta import errors
from virta.errors import NotFound, UnavailableError, UsageError, VirtaError
from virta.pipelines.engine import TABLE, Engine, stage_batches, stage_split
from virta.pipelines.journal import Staged
from virta.pipelines.sources.base import Plan, Source, Split
from virta.pipelines.sources.through_spark import SparkSource
from virta.pipelines.transform import Transform
from virta.spark.schemas import arrow_schema, exact_batch, spark_schema
from virta.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANIFEST = "manifest.json"
_SCHEMA = "place int, name string, read bigint, rows bigint, bytes bigint"


class SparkEngine(Engine):
    """Spark, local or on a cluster; started when it is first needed."""

    name = "spark"

    def __init__(self, master: str | None, conf: Mapping[str, str]) -> None:
        self._master = master
        self._conf = dict(conf)
        self._session: SparkSession | None = None

    def attach(self, sources: Iterable[Source]) -> None:
        """Sources that Spark reads get the session, which has their packages from the start."""
        own = [source for source in sources if isinstance(source, SparkSource)]
        for setting, wanted in (
            ("spark.jars.packages", [name for source in own for name in source.packages()]),
            ("spark.jars", [name for source in own for name in source.jars()]),
        ):
            known = [name for name in self._conf.get(setting, "").split(",") if name]
            joined = ",".join(dict.fromkeys([*known, *wanted]))
            if joined:
                self._conf[setting] = joined
        for source in own:
            source.spark = self.session

    @property
    def session(self) -> SparkSession:
        if self._session is None:
            try:
                self._session = session(self._master, name="virta pipeline", conf=self._conf)
            except UnavailableError as error:
                wanted = self._conf.get("spark.jars.packages")
                if wanted is None:
                    raise
                raise UnavailableError(
                    f"Spark did not start; it was to fetch the Java packages {wanted}",
                    hint="see whether that version is published, and Maven's repository within reach; "
                    'else name another (package = "group:name:version") or a file (jar = "/path/to.jar")',
                ) from error
        return self._session

    def stage(self, source: Source, transform: Transform, plan: Plan, directory: Path) -> tuple[Staged, ...]:
        try:
            if isinstance(source, SparkSource) or transform.sql is not None:
                return self._through_spark(source, transform, plan, directory)
            return self._by_tasks(source, transform, plan, directory)
        except PySparkException as error:
            raise told(error) from error

    def _by_tasks(
        self, source: Source, transform: Transform, plan: Plan, directory: Path
    ) -> tuple[Staged, ...]:
        """Each split a task; what they tell is a table of files."""
        job = _Job(source=source, transform=transform, splits=plan.splits, directory=directory)
        frame = self._registered(_staging_tasks(job), "virta_staging")
        rows = sorted(frame.collect(), key=lambda row: row["place"])
        return tuple(
            Staged(**{name: row[name] for name in ("name", "read", "rows", "bytes")}) for row in rows
        )

    def _through_spark(
        self, source: Source, transform: Transform, plan: Plan, directory: Path
    ) -> tuple[Staged, ...]:
        spark = self.session
        native = isinstance(source, SparkSource)
        frame = source.frame(plan) if isinstance(source, SparkSource) else self._rows(source, transform, plan)
        if transform.sql is not None:
            if native and (transform.where is not None or transform.sampling is not None):
                raise UsageError("with sql, rows that Spark reads are filtered and sampled in the sql itself")
            frame.createOrReplaceTempView(TABLE)
            frame = spark.sql(transform.sql)
        job = _Writing(
            transform=transform, filtered=transform.sql is not None or not native, directory=directory
        )
        made = _staging_writer(job)
        register(spark, made)
        frame.write.format(made.name()).mode("append").save()
        manifest = directory / _MANIFEST
        if not manifest.exists():
            raise UnavailableError(
                f"Spark's tasks staged their rows elsewhere than in {directory}",
                hint="the state of a pipeline is in a directory that the driver and all workers share",
            )
        return tuple(Staged(**each) for each in json.loads(manifest.read_text()))

    def _rows(self, source: Source, transform: Transform, plan: Plan) -> DataFrame:
        """The rows of a topic or of files as Spark has them, with what is known of each."""
        sample = next((batch for split in plan.splits for batch in source.read(split)), None)
        schema = source.schema() if sample is None else sample.schema
        job = _Rows(source=source, transform=transform, splits=plan.splits, schema=spark_schema(schema))
        return self._registered(_row_source(job), "virta_rows")

    def _registered(self, kind: type[DataSource], name: str) -> DataFrame:
        register(self.session, kind)
        return self.session.read.format(name).load()


def register(spark: SparkSession, kind: type[DataSource]) -> None:
    """Let the session know a data source that was made for one job."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a job replaces the one before it, as it should
        spark.dataSource.register(kind)


# -- tasks that read for themselves ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    source: Source
    transform: Transform
    splits: tuple[Split, ...]
    directory: Path


@dataclass
class _Place(InputPartition):
    """One split."""

    place: int


def _staging_tasks(job: _Job) -> type[DataSource]:
    """A data source for this job alone. Made here, it is pickled with all it holds."""

    class Staging(DataSource):
        @classmethod
        def name(cls) -> str:
            return "virta_staging"

        def schema(self) -> str:
            return _SCHEMA

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return _TaskReader(job)

    return Staging


class _TaskReader(DataSourceReader):
    def __init__(self, job: _Job) -> None:
        self._job = job

    def partitions(self) -> Sequence[InputPartition]:
        return [_Place(place) for place in range(len(self._job.splits))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, _Place)
        job = self._job
        check_directory(job.directory)
        staged = stage_split(job.source, job.transform, job.splits[partition.place], job.directory)
        yield (partition.place, staged.name, staged.read, staged.rows, staged.bytes)


def check_directory(directory: Path) -> None:
    """A directory that only the driver sees is the commonest mistake on a cluster."""
    if not directory.is_dir():
        raise NotFound(
            f"the state of the pipeline is not there on this worker: {directory}",
            hint='name a directory that driver and workers share: state = "/shared/…"',
        )


# -- rows for Spark's own SQL ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    source: Source
    transform: Transform
    splits: tuple[Split, ...]
    schema: StructType


def _row_source(job: _Rows) -> type[DataSource]:
    class Rows(DataSource):
        @classmethod
        def name(cls) -> str:
            return "virta_rows"

        def schema(self) -> StructType:
            return job.schema

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return _RowReader(job)

    return Rows


class _RowReader(DataSourceReader):
    def __init__(self, job: _Rows) -> None:
        self._job = job

    def partitions(self) -> Sequence[InputPartition]:
        return [_Place(place) for place in range(len(self._job.splits))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Place)
        job = self._job
        wanted = arrow_schema(job.schema)
        for batch in job.transform.before(job.source.read(job.splits[partition.place])):
            columns = [batch.column(name) for name in wanted.names]
            yield exact_batch(columns, wanted)


# -- tasks that stage what Spark gives them ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    transform: Transform
    filtered: bool  # whether the rows went through `before` already
    directory: Path


@dataclass
class _Message(WriterCommitMessage):
    staged: Staged


def _staging_writer(job: _Writing) -> type[DataSource]:
    class Written(DataSource):
        @classmethod
        def name(cls) -> str:
            return "virta_staged"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002
            return _StageWriter(job)

    return Written


class _StageWriter(DataSourceArrowWriter):
    def __init__(self, job: _Writing) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        check_directory(self._job.directory)
        job = self._job
        return _Message(stage_batches(iterator, job.transform, job.directory, filtered=job.filtered))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In a process of its own beside the driver: the files of the tasks, in their order."""
        staged = [each.staged for each in messages if isinstance(each, _Message)]
        text = json.dumps([_plain(each) for each in staged])
        aside = self._job.directory / f"{_MANIFEST}.part"
        aside.write_text(text)
        aside.replace(self._job.directory / _MANIFEST)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Files that no manifest names count for nothing."""


def _plain(staged: Staged) -> dict[str, Any]:
    return {name: getattr(staged, name) for name in ("name", "read", "rows", "bytes")}


# -- what went wrong -----------------------------------------------------------------------------------

_OURS = re.compile(r"virta\.errors\.(\w+): (.+)")


def told(error: PySparkException) -> VirtaError:
    """A worker's error as the one it was; Spark's own by its first line."""
    text = str(error)
    found = _OURS.findall(text)
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, UsageError)
        return _made(kind, message)
    lines = [line.strip() for line in itertools.islice(text.splitlines(), 200) if line.strip()]
    python = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b.*: ", line)]
    return UnavailableError(f"Spark could not do it: {(python[-1:] or lines[:1] or ['?'])[0]}")


def _made(kind: Any, message: str) -> VirtaError:
    """The hint stands in brackets at the end of what a worker's error says."""
    text, hint = message, None
    at = message.rfind(" (")
    if at > 0 and message.endswith(")"):
        text, hint = message[:at], message[at + 2 : -1]
    try:
        return kind(text, hint=hint)  # type: ignore[no-any-return]
    except TypeError:
        return UsageError(text, hint=hint)
