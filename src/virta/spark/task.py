"""One task of a read: what the planner sends, and what the executor does with it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from virta.spark import reading
from virta.spark.logs import topic_at
from virta.spark.options import Reading
from virta.spark.plan import Slice
from virta.spark.reading import Wanted
from virta.spark.schemas import arrow_schema
from virta.spark.telling import plainly


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, part: Slice) -> None:
        super().__init__(None)
        self.part = part


# Spark wants at least one.
NOTHING = InputPartition(None)


@plainly
def read_task(
    partition: InputPartition, wanted: Reading, schema: StructType, pushed: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, as Spark wants them."""
    if not isinstance(partition, Task):
        return iter(())
    columns = Wanted(
        columns=tuple(schema.names),
        where=wanted.where,
        pushed=pushed,
        verify=wanted.verify,
        is_table=wanted.kind == "table",
        is_blocks=wanted.kind == "blocks",
    )
    return reading.batches(topic_at(wanted.place), partition.part, columns, arrow_schema(schema))
