"""A pipeline: its flows, checked, previewed, and run once or for ever.

pipeline = Pipeline.load("pipeline.toml")
for flow in pipeline.check(): print(flow.flow, flow.columns)
report = pipeline.run()
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.errors import NotFound, UsageError
from virta.pipelines.demotion import Demotion, check_other_log, demotion
from virta.pipelines.engine import Engine, LocalEngine
from virta.pipelines.flow import Flow, FlowRun, Preview, preview
from virta.pipelines.journal import Done, Journal
from virta.pipelines.report import FlowReport, RunReport, Watch, unwatched
from virta.pipelines.sinks.topic import TopicSink
from virta.pipelines.sources.through_spark import SparkSource
from virta.pipelines.sources.topic import TopicSource
from virta.pipelines.specification import Specification, specification
from virta.pipelines.statement import FORMAT, signed
from virta.requests import format_moment
from virta.security.masking.plan import MaskedColumn
from virta.storage.files import OperatingSystemFiles, replace_file
from virta.types import Event

EVENT = "pipeline run"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCheck:
    """What a flow would do: the columns its sink gets (None: only a run can tell), and their masks."""

    flow: str
    source: str
    sink: str
    columns: pa.Schema | None
    masked: tuple[MaskedColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """How far a flow is."""

    flow: str
    source: str
    sink: str
    done: Done
    pending: bool


class Pipeline:
    """Flows that belong together."""

    def __init__(self, spec: Specification) -> None:
        self._spec = spec
        self._demotion: Demotion | None = None
        self._flows: tuple[Flow, ...] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, log: str | None = None, **changes: Any) -> Pipeline:
        """From a file. `changes` go before what it says: engine="local", master="local[2]"."""
        place = Path(path)
        try:
            written = tomllib.loads(place.read_text(encoding="utf-8"))
        except OSError as error:
            raise NotFound(f"the pipeline {place} cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{place} is not readable as TOML: {error}") from None
        return cls.of({**written, **changes}, base=place.absolute().parent, log=log)

    @classmethod
    def of(
        cls, written: Mapping[str, Any], *, base: str | os.PathLike[str] = ".", log: str | None = None
    ) -> Pipeline:
        """From the same words in Python; functions may stand where a file names them."""
        return cls(specification(written, Path(base).absolute(), log))

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def flows(self) -> tuple[Flow, ...]:
        if self._flows is None:
            self._demotion = demotion(self._spec)
            self._flows = self._spec.flows + (() if self._demotion is None else self._demotion.flows)
        return self._flows

    def _chosen(self, only: Sequence[str] | None) -> list[Flow]:
        chosen = [flow for flow in self.flows if not only or flow.name in only]
        missing = set(only or ()) - {flow.name for flow in chosen}
        if missing:
            known = ", ".join(flow.name for flow in self.flows)
            raise NotFound(f"the pipeline has no flow {sorted(missing)[0]!r}", hint=f"its flows: {known}")
        return chosen

    # -- looking -----------------------------------------------------------------------------------------

    def check(self, *, flows: Sequence[str] | None = None) -> list[FlowCheck]:
        """Everything that can be known to fail before a row is read."""
        with self._engine(self._needing_spark(flows)):
            return [_checked(flow) for flow in self._open(flows)]

    def preview(self, *, rows: int = 10, flows: Sequence[str] | None = None) -> list[Preview]:
        """A few rows of each flow as they are, and as its sink would get them; writes nothing."""
        with self._engine(self._needing_spark(flows)):
            return [preview(flow, rows) for flow in self._open(flows)]

    def show(self) -> list[FlowState]:
        """How far each flow is."""
        return [
            FlowState(
                flow=flow.name,
                source=flow.source.origin().description,
                sink=flow.sink.describe(),
                done=journal.done(),
                pending=journal.pending() is not None,
            )
            for flow in self._open(None)
            for journal in [Journal(self._state(flow))]
        ]

    def _needing_spark(self, only: Sequence[str] | None) -> list[Flow]:
        """Looking at topics and files needs no Spark."""
        return [flow for flow in self._chosen(only) if isinstance(flow.source, SparkSource)]

    def _open(self, only: Sequence[str] | None) -> Iterator[Flow]:
        """The flows one after another, each closed after its turn."""
        for flow in self._chosen(only):
            try:
                yield flow
            finally:
                flow.close()

    def _state(self, flow: Flow) -> Path:
        return self._spec.state / flow.name

    # -- running -----------------------------------------------------------------------------------------

    def run(self, *, flows: Sequence[str] | None = None, watch: Watch = unwatched) -> RunReport:
        """All that is there now, each row once; what an interrupted run left is finished first."""
        chosen = self._chosen(flows)
        with self._engine(chosen) as engine:
            return self._run(chosen, engine, watch)

    def run_forever(
        self,
        *,
        interval: float = 1.0,
        flows: Sequence[str] | None = None,
        watch: Watch = unwatched,
        stop: threading.Event | None = None,
    ) -> Iterator[RunReport]:
        """Run again and again; a report whenever rows were copied. Ends when `stop` is set."""
        chosen, stop = self._chosen(flows), stop or threading.Event()
        with self._engine(chosen) as engine:
            while not stop.is_set():
                report = self._run(chosen, engine, watch, quiet=True)
                if any(flow.batches for flow in report.flows):
                    yield report
                stop.wait(interval)

    @contextlib.contextmanager
    def _engine(self, flows: Sequence[Flow]) -> Iterator[Engine]:
        """The engine, if there is anything for it to do."""
        engine: Engine = LocalEngine()
        if self._spec.engine == "spark" and flows:
            from virta.pipelines.spark_engine import SparkEngine  # Spark is an extra, and slow to import

            engine = SparkEngine(self._spec.master, self._spec.spark)
        try:
            engine.attach(flow.source for flow in flows)
            yield engine
        finally:
            engine.close()

    def _run(self, flows: list[Flow], engine: Engine, watch: Watch, *, quiet: bool = False) -> RunReport:
        began, run = _now_us(), uuid.uuid4().hex
        for flow in flows:  # nothing is copied before everything is known to fit
            flow.check()
            if self._demotion is not None and flow in self._demotion.flows:
                check_other_log(flow)
        try:
            done = tuple(FlowRun(flow, self._state(flow), engine, watch).run() for flow in flows)
            report = RunReport(pipeline=self.name, run=run, began_us=began, ended_us=_now_us(), flows=done)
            if quiet and not any(flow.batches for flow in done):
                return report
            report = self._stated(report)
            self._note(report, flows)
            return report
        finally:
            for flow in flows:
                flow.close()

    def _stated(self, report: RunReport) -> RunReport:
        """The statement of a de-promotion, written beside its state; a run without news needs no new one."""
        demoted = self._demotion
        if demoted is None:
            return report
        names = {flow.name: flow for flow in demoted.flows}
        topics = [_told(each, names[each.flow]) for each in report.flows if each.flow in names]
        if not topics or (demoted.statement.exists() and not any(each.batches for each in report.flows)):
            return report
        key = demoted.flows[0].transform.key
        statement = {
            "format": FORMAT,
            "pipeline": report.pipeline,
            "run": report.run,
            "began": format_moment(report.began_us),
            "ended": format_moment(report.ended_us),
            "from": _who(demoted.above),
            "to": _who(demoted.below),
            "policy": demoted.policy_hash,
            "key": None if key is None else key.fingerprint,
            "topics": topics,
        }
        whole = signed(statement, signing_key=demoted.signing_key, masking_key=key)
        text = (json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode()
        kept = self._spec.state / "statements" / f"{report.ended_us}-{report.run}.json"
        for place in (kept, demoted.statement):
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(OperatingSystemFiles(), place, text)
        return RunReport(
            pipeline=report.pipeline,
            run=report.run,
            began_us=report.began_us,
            ended_us=report.ended_us,
            flows=report.flows,
            statement=str(demoted.statement),
        )

    def _note(self, report: RunReport, flows: list[Flow]) -> None:
        """A row of `__events` for each flow, in the log it wrote to, else in the one it read."""
        for flow, done in zip(flows, report.flows, strict=True):
            for log, topic in _noted_in(flow):
                record = getattr(log, "record_event", None)
                if record is not None:
                    record(Event(kind=EVENT, topic=topic, details=event_details(report, done)))


def _now_us() -> int:
    return time.time_ns() // 1000


def _who(context: Any) -> dict[str, Any]:
    return {"context": context.name, "environment": context.environment, "rank": context.rank}


def _told(done: FlowReport, flow: Flow) -> dict[str, Any]:
    """What a statement says of one topic."""
    transform = flow.transform
    sampling = transform.sampling
    return {
        "topic": flow.transform.name,
        "read": done.read,
        "rows": done.rows,
        "batch": done.newest_batch,
        "where": transform.where,
        "sample": None if sampling is None else {"by": sampling.by, "share": sampling.share},
        "columns": [
            {"column": each.path, "mask": each.method, "options": dict(each.options)} for each in done.masked
        ],
        "source": {"topic_id": done.source_details["topic_id"], "position": done.position},
        "target": done.sink_head,
    }


def _noted_in(flow: Flow) -> Iterator[tuple[Any, str]]:
    if isinstance(flow.sink, TopicSink):
        yield flow.sink.log, flow.sink.known_as
    elif isinstance(flow.source, TopicSource):
        yield flow.source.log, flow.source.known_as


def event_details(report: RunReport, done: FlowReport) -> dict[str, Any]:
    return {
        "pipeline": report.pipeline,
        "run": report.run,
        "flow": done.flow,
        "source": done.source,
        "sink": done.sink,
        "batches": done.batches,
        "read": done.read,
        "rows": done.rows,
        "finished_earlier": done.finished_earlier,
        "policy": done.policy_hash,
        "masked": {each.path: each.method for each in done.masked},
        "began": format_moment(report.began_us),
        "ended": format_moment(report.ended_us),
        "statement": report.statement,
    }


def _checked(flow: Flow) -> FlowCheck:
    columns = flow.check()
    fixed = flow.transform.policy is not None and flow.transform.sql is None and flow.transform.python is None
    return FlowCheck(
        flow=flow.name,
        source=flow.source.origin().description,
        sink=flow.sink.describe(),
        columns=columns,
        masked=flow.transform.plan(flow.source.schema()).columns if fixed else (),
    )
