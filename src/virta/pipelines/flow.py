"""One flow: from a source, through a transformation, into a sink, batch by batch, each exactly once.

The order of things is the journal's: plan, stage, record, commit, done. Whatever happens in
between, the next run finishes the batch that was recorded, and goes on after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from virta.errors import Conflict, NotFound, UsageError
from virta.pipelines.engine import Engine, queried
from virta.pipelines.journal import Done, Journal, Record
from virta.pipelines.report import FlowReport, Step, Watch
from virta.pipelines.sinks.base import Batch, Sink
from virta.pipelines.sinks.topic import TopicSink
from virta.pipelines.sources.base import Source, Split
from virta.pipelines.transform import Transform, bare


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One source into one sink. `identity` is what the sink knows it by: pipeline and flow."""

    name: str
    identity: str
    source: Source
    transform: Transform
    sink: Sink
    batch_rows: int = 1_000_000

    def check(self) -> pa.Schema | None:
        """Refuse what cannot work, before anything is read; the columns of the sink where they are known."""
        origin = self.source.origin()
        if isinstance(self.sink, TopicSink):
            self.sink.like(origin)
        outcome = self.transform.check(self.source.schema())
        self.sink.check(outcome, origin.keys)
        return outcome

    def fitted(self) -> Transform:
        """The transformation, knowing whether the sink keeps a table as the source does."""
        origin = self.source.origin()
        if origin.kind != "update" or self.transform.sql is not None or not self.sink.deletes():
            return self.transform
        return dataclasses.replace(self.transform, keys=origin.keys)

    def close(self) -> None:
        self.source.close()
        self.sink.close()


class FlowRun:
    """A flow being run."""

    def __init__(self, flow: Flow, state: Path, engine: Engine, watch: Watch) -> None:
        self._flow = flow
        self._journal = Journal(state)
        self._engine = engine
        self._watch = watch

    def run(self) -> FlowReport:
        """All that is there now."""
        flow = self._flow
        with self._journal:
            outcome = flow.check()
            if outcome is not None:
                flow.sink.prepare(pa.schema([bare(field) for field in outcome]))
            flow.source.pin()
            begun = self._reconciled()
            pending = self._journal.pending()
            if pending is not None:
                self._commit(pending)
            while self._one():
                pass
            return self._report(begun, self._journal.done(), finished_earlier=pending is not None)

    def _reconciled(self) -> Done:
        """What is done, by the journal and by the sink. The sink's own record is the truth."""
        done, there = self._journal.done(), self._flow.sink.committed(self._flow.identity)
        if done.number == 0 and self._journal.pending() is None:
            self._check_not_begun()
        expected = int(done.sink.get("number", 0))
        found = 0 if there is None else there.number
        if there is not None and found > done.number and self._journal.pending() is None:
            if there.position is None:
                raise Conflict(expected=done.number, actual=found, what="the newest batch")
            done = dataclasses.replace(done, number=found, position=there.position, sink={"number": found})
            self._journal.finish(done)
        elif "number" in done.sink and found < expected:
            raise UsageError(
                f"{self._flow.sink.describe()} has {found} batches of {self._flow.identity}, "
                f"but {expected} were put there",
                hint=f"to fill it anew, remove {self._journal.root}",
            )
        return done

    def _check_not_begun(self) -> None:
        """Without its state a flow would put all its rows behind those it has put there already."""
        held = self._flow.sink.holds(self._flow.identity)
        if held:
            raise UsageError(
                f"{self._flow.sink.describe()} has {held} rows of {self._flow.identity}, "
                f"and {self._journal.root} says nothing of them",
                hint="bring the state back; or, to copy everything once more, name the flow otherwise",
            )

    def _one(self) -> bool:
        """A batch, if there is anything new."""
        flow, done = self._flow, self._journal.done()
        plan = flow.source.plan(done.position, flow.batch_rows)
        if plan is None:
            return False
        number = done.number + 1
        flow.check()  # the columns may have changed: a new one without a rule stops here
        self._watch(Step(flow=flow.name, what="planned", batch=number, rows=plan.rows or 0))
        place = self._journal.begin(number)
        staged = self._engine.stage(flow.source, flow.fitted(), plan, place)
        self._watch(Step(flow=flow.name, what="staged", batch=number))
        record = Record(
            number=number,
            directory=place.name,
            staged=staged,
            position=plan.position,
            sink=flow.sink.begin(flow.identity),
        )
        self._commit(self._journal.record(record))
        return True

    def _commit(self, record: Record) -> None:
        flow, journal = self._flow, self._journal
        self._watch(Step(flow=flow.name, what="recorded", batch=record.number, rows=record.rows))
        schema = journal.schema(record)
        flow.sink.commit(
            Batch(
                flow=flow.identity,
                number=record.number,
                position=record.position,
                schema=schema,
                rows=lambda: journal.batches(record),
                count=record.rows,
                sink=record.sink,
            )
        )
        self._watch(Step(flow=flow.name, what="committed", batch=record.number, rows=record.rows))
        done = journal.done()
        knows = flow.sink.committed(flow.identity) is not None
        journal.finish(
            Done(
                number=record.number,
                position=record.position,
                read=done.read + record.read,
                rows=done.rows + record.rows,
                sink={"number": record.number} if knows and schema is not None else done.sink,
            )
        )
        self._watch(Step(flow=flow.name, what="done", batch=record.number, rows=record.rows))

    def _report(self, before: Done, after: Done, *, finished_earlier: bool) -> FlowReport:
        flow, transform = self._flow, self._flow.transform
        masked = transform.policy is not None and transform.sql is None and transform.python is None
        origin = flow.source.origin()
        return FlowReport(
            flow=flow.name,
            source=origin.description,
            sink=flow.sink.describe(),
            batches=after.number - before.number,
            read=after.read - before.read,
            rows=after.rows - before.rows,
            newest_batch=after.number,
            finished_earlier=finished_earlier,
            position=after.position,
            source_details=origin.details,
            sink_head=flow.sink.head(),
            masked=transform.plan(flow.source.schema()).columns if masked else (),
            policy_hash=None if transform.policy is None else transform.policy.hash(),
            key_fingerprint=None if transform.key is None else transform.key.fingerprint,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A few rows as they are, and as the sink would get them."""

    flow: str
    before: pa.Table
    after: pa.Table


def preview(flow: Flow, rows: int) -> Preview:
    """The first rows of the source, before and after; nothing is written anywhere."""
    flow.check()
    plan = flow.source.plan(None, 64 * 1024)
    if plan is None:
        raise NotFound(f"{flow.source.origin().description} holds no rows to show")
    wanted = _some(flow, plan.splits, rows)
    transform = dataclasses.replace(flow.fitted(), provenance=False)
    if transform.sql is not None:
        after = list(transform.after(queried(transform, wanted)))
    else:
        after = list(transform.after(transform.before(wanted)))
    return Preview(flow=flow.name, before=_shown(wanted), after=_shown(after))


def _some(flow: Flow, splits: Iterable[Split], rows: int) -> list[pa.RecordBatch]:
    """The first rows that the flow wants."""
    found: list[pa.RecordBatch] = []
    for split in splits:
        for batch in flow.fitted().before(flow.source.read(split)):
            found.append(batch.slice(0, rows))
            rows -= found[-1].num_rows
            if rows <= 0:
                return found
    return found


def _shown(batches: list[pa.RecordBatch]) -> pa.Table:
    if not batches:
        return pa.table({})
    return pa.Table.from_batches(batches)
