"""Pipelines: files, tables and topics into topics; topics into tables; masked copies for lower environments.

    Pipeline.load("pipeline.toml").run()

`specification` reads what was written, `flow` runs one source into one sink, batch by batch,
with `journal` as its memory; `sources` plan and read, `transform` changes and masks, `sinks`
take batches by number. `engine` does the work in this process, `spark_engine` on Spark.
`demotion` copies to a lower environment and `statement` signs what was done.
"""

from virta.pipelines.flow import Preview
from virta.pipelines.pipeline import FlowCheck, FlowState, Pipeline
from virta.pipelines.report import FlowReport, RunReport, Step
from virta.pipelines.statement import StatementCheck, check_statement, load_statement

__all__ = [
    "FlowCheck",
    "FlowReport",
    "FlowState",
    "Pipeline",
    "Preview",
    "RunReport",
    "StatementCheck",
    "Step",
    "check_statement",
    "load_statement",
]
