"""From what a pipeline's file says to flows that can run. Opens nothing.

    name = "lake"
    engine = "spark"                             # or "local"
    [[flow]]
    source = { topic = "orders", log = "@prod" }
    sink = { delta = "./lake/orders" }

docs/pipelines.md has every word. Paths are meant from the folder of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from virta import contexts
from virta.errors import Denied, NotFound, UsageError
from virta.pipelines.flow import Flow
from virta.pipelines.settings import Words
from virta.pipelines.sinks.base import Sink
from virta.pipelines.sinks.delta import DeltaSink
from virta.pipelines.sinks.iceberg import IcebergSink
from virta.pipelines.sinks.parquet import ParquetSink
from virta.pipelines.sinks.topic import TopicSink
from virta.pipelines.sources.base import Source
from virta.pipelines.sources.files import FileSource
from virta.pipelines.sources.through_spark import JdbcSource, KafkaSource
from virta.pipelines.sources.topic import TopicSource
from virta.pipelines.transform import Sampling, Transform
from virta.requests import parse_size
from virta.security.masking import MaskingKey, MaskPolicy

ENGINES = ("spark", "local")
SOURCES = ("topic", "files", "jdbc", "kafka")
SINKS = ("topic", "parquet", "delta", "iceberg")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_BATCH_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """A pipeline as it was written, with what all of its flows share."""

    name: str
    base: Path
    state: Path
    engine: str
    master: str | None
    spark: Mapping[str, str]
    flows: tuple[Flow, ...]
    demotion: Mapping[str, Any] | None = None
    log: str | None = None
    batch_rows: int = _BATCH_ROWS
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What flows are told by the pipeline around them."""

    pipeline: str
    base: Path
    log: str | None
    batch_rows: int
    key: Mapping[str, Any] | None

    def address(self, written: str | None) -> str:
        """An address that means the same in every process; contexts that lead elsewhere keep their name."""
        text = written or self.log
        place = contexts.resolve(text)
        if "://" in place.address:
            return text if text is not None and text.startswith(contexts.MARK) else place.address
        if text is not None and not text.startswith(contexts.MARK):
            return str((self.base / Path(text).expanduser()).absolute())
        return str(Path(place.address).expanduser().absolute())

    def path(self, written: str) -> str:
        if "://" in written:
            return written
        return str((self.base / Path(written).expanduser()).absolute())


def specification(written: Mapping[str, Any], base: Path, log: str | None = None) -> Specification:
    """The pipeline that a file's tables say."""
    words = Words("the pipeline", written)
    name = checked_name(words.text("name"), "a pipeline")
    engine = words.text("engine", "spark")
    if engine not in ENGINES:
        raise UsageError(f"the engine of a pipeline is {' or '.join(ENGINES)}, not {engine!r}")
    state = Path(words.text("state", f".virta-{name}")).expanduser()
    log = words.text("log", log)
    batch_rows = words.take("batch_rows", int, _BATCH_ROWS)
    if batch_rows < 1:
        raise UsageError("a batch has at least one row")
    shared = Shared(pipeline=name, base=base, log=log, batch_rows=batch_rows, key=words.table("key") or None)
    master = words.text("master", None)
    spark = {str(key): str(value) for key, value in words.table("spark").items()}
    flows = tuple(flow(each, shared) for each in words.tables("flow"))
    demotion = words.table("demote") or None
    words.end()
    if not flows and demotion is None:
        raise UsageError(f"the pipeline {name} has no flows", hint="write [[flow]] or [demote]")
    names = [each.name for each in flows]
    if len(set(names)) < len(names):
        raise UsageError("two flows have the same name", hint='give them names: name = "…"')
    return Specification(
        name=name,
        base=base,
        state=base / state,
        engine=engine,
        master=master,
        spark=spark,
        flows=flows,
        demotion=demotion,
        log=log,
        batch_rows=batch_rows,
        extra={"key": shared.key},
    )


def checked_name(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for {what}", hint="letters, digits, dot, dash and underscore; at most 100"
        )
    return name


def flow(written: Any, shared: Shared) -> Flow:
    """One [[flow]]."""
    words = Words("a flow", written)
    source_words = Words("the source of a flow", words.take("source", Mapping))
    sink_words = Words("the sink of a flow", words.take("sink", Mapping))
    logs = (source_words.text("log", None), sink_words.text("log", None))
    source, name = _source(source_words, shared, logs[0])
    name = re.sub(r"[^A-Za-z0-9._-]", "-", words.text("name", name)).lstrip("-._") or "flow"
    words.where = f"the flow {name}"
    sink = _sink(sink_words, shared, logs[1])
    transform = _transform(words, shared, source, sink)
    made = Flow(
        name=name,
        identity=f"{shared.pipeline}/{name}",
        source=source,
        transform=transform,
        sink=sink,
        batch_rows=words.take("batch_rows", int, shared.batch_rows),
    )
    words.end()
    _check_direction(made, logs[0] or shared.log, logs[1] or shared.log)
    return made


def _check_direction(made: Flow, source: str | None, sink: str | None) -> None:
    """Rows of a higher environment do not go down as they are."""
    if not isinstance(made.source, TopicSource) or not isinstance(made.sink, TopicSink):
        return
    above, below = contexts.resolve(source).context, contexts.resolve(sink).context
    if above is not None and below is not None and above.rank > below.rank and made.transform.policy is None:
        raise Denied(
            f"the flow {made.name} would copy rows of {above.environment} to {below.environment} unmasked",
            hint="say what becomes of each column: [[flow.mask]], or use [demote]",
        )


def _transform(words: Words, shared: Shared, source: Source, sink: Sink) -> Transform:
    rules = words.tables("mask")
    sampling = words.table("sample")
    key = key_of(words.table("key") or shared.key)
    chosen = None
    if sampling:
        told = Words("a sample", sampling)
        chosen = Sampling(by=told.text("by"), share=told.take("share", (int, float)))
        told.end()
    python = words.take("python", object, None)
    return Transform(
        name=source.known_as,
        where=words.text("where", None),
        sampling=chosen,
        sql=words.text("sql", None),
        python=python,
        policy=MaskPolicy.of(rules) if rules else None,
        key=key,
        provenance=sink.provenance,
    )


def key_of(place: Mapping[str, Any] | MaskingKey | None) -> MaskingKey | None:
    if place is None or isinstance(place, MaskingKey):
        return place
    return MaskingKey.named(place)


# -- sources and sinks ------------------------------------------------------------------------------


def _source(words: Words, shared: Shared, log: str | None) -> tuple[Source, str]:
    # Kafka's topics are called topics too
    kind = words.one_of(each for each in SOURCES if each != "topic" or "kafka" not in words)
    made: Source
    if kind == "topic":
        name = words.text("topic")
        made = TopicSource(
            log=shared.address(log),
            topic=name,
            start=_place(words, "from"),
            end=_place(words, "to"),
        )
    elif kind == "files":
        pattern = words.text("files")
        made = FileSource(
            files=shared.path(pattern),
            form=words.text("format", None),
            columns=words.columns("columns"),
            name=words.text("name", None),
        )
        name = made.known_as
    else:
        made = _jdbc(words, shared) if kind == "jdbc" else _kafka(words, shared)
        name = made.known_as
    words.end()
    return made, name


def _jdbc(words: Words, shared: Shared) -> JdbcSource:
    jar = words.text("jar", None)
    options = {str(key): _secret(str(key), value) for key, value in words.table("options").items()}
    for name in ("user", "password"):
        if name in words:
            options[name] = _secret(name, words.take(name, (str, Mapping)))
    return JdbcSource(
        url=words.text("jdbc"),
        table=words.text("table", None),
        query=words.text("query", None),
        column=words.text("column", None),
        partitions=words.take("partitions", int, 1),
        package=words.text("package", None),
        jar=None if jar is None else shared.path(jar),
        options=options,
    )


def _secret(name: str, value: Any) -> str:
    """A value, or where it is: { env = "NAME" }."""
    if not isinstance(value, Mapping):
        return str(value)
    found = os.environ.get(str(value.get("env")))
    if found is None:
        raise NotFound(f"{name} is looked for in ${value.get('env')}, which is not set")
    return found


def _kafka(words: Words, shared: Shared) -> KafkaSource:
    jar = words.text("jar", None)
    return KafkaSource(
        servers=words.text("kafka"),
        topic=words.text("topic"),
        metadata=words.take("metadata", bool, False),
        package=words.text("package", None),
        jar=None if jar is None else ",".join(shared.path(each) for each in jar.split(",")),
        options={str(key): _secret(str(key), value) for key, value in words.table("options").items()},
    )


def _place(words: Words, name: str) -> str | None:
    value = words.take(name, (str, int), None)
    return None if value is None else str(value)


def _sink(words: Words, shared: Shared, log: str | None) -> Sink:
    kind = words.one_of(SINKS)
    made: Sink
    if kind == "topic":
        made = TopicSink(
            log=shared.address(log),
            topic=words.text("topic"),
            create=words.take("create", bool, True),
            evolve=words.take("evolve", bool, True),
            keys=words.names("keys") if "keys" in words else None,
            kind=words.text("kind", None),
            partitions=words.take("partitions", int, None),
            options=words.table("options"),
        )
    else:
        common: dict[str, Any] = {
            "mode": words.text("mode", "append"),
            "keys": words.names("keys"),
            "partition_by": words.names("partition_by"),
            "provenance": words.take("provenance", bool, False),
        }
        made = _lake(kind, words, shared, common)
    words.end()
    return made


def _lake(kind: str, words: Words, shared: Shared, common: dict[str, Any]) -> Sink:
    if kind == "parquet":
        return ParquetSink(
            path=shared.path(words.text("parquet")),
            file_bytes=parse_size(words.take("file_bytes", (str, int), 128 * 1024 * 1024)),
            join_files=words.take("join_files", int, 8),
            **common,
        )
    if kind == "delta":
        options = {str(key): str(value) for key, value in words.table("storage_options").items()}
        return DeltaSink(path=shared.path(words.text("delta")), storage_options=options or None, **common)
    catalog = {str(key): str(value) for key, value in words.table("catalog").items()}
    return IcebergSink(table=words.text("iceberg"), catalog=catalog, **common)
