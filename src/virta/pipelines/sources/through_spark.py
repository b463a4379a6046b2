"""Sources that Spark reads: tables behind JDBC, and Kafka. Everything here asks the session for it.

    { jdbc = "jdbc:postgresql://db/shop", table = "orders", column = "id", package = "org.postgresql:…" }
    { kafka = "broker:9092", topic = "orders" }

A table is read once, or by a column that rises (a serial number, a time of change): then
each run takes what lies above what it had. Rows that appear below it later are not seen:
choose a column that rises with every change.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from virta.errors import UnavailableError, UsageError
from virta.pipelines.sources.base import Origin, Plan, Position, Source, Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Types whose range Spark can share out among connections, beside decimals.
_SHARED_OUT = frozenset({"byte", "short", "integer", "long", "float", "double", "date", "timestamp"})


class SparkSource(Source):
    """A source that only Spark can read. The engine gives it the session."""

    spark: SparkSession | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "spark": None}

    def packages(self) -> tuple[str, ...]:
        """Java packages by Maven's names, fetched when Spark starts."""
        return ()

    def jars(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def frame(self, plan: Plan) -> DataFrame:
        """The rows of a plan."""

    def session(self) -> SparkSession:
        if self.spark is None:
            raise UsageError(f"{self.origin().description} is read by Spark", hint='say engine = "spark"')
        return self.spark

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """On the driver, for previews."""
        frame = self.frame(Plan(splits=(split,), position={}))
        yield from frame.limit(1000).toArrow().to_batches()


class JdbcSource(SparkSource):
    """A table or a query."""

    def __init__(
        self,
        *,
        url: str,
        table: str | None,
        query: str | None,
        column: str | None,
        package: str | None,
        jar: str | None,
        options: Mapping[str, str],
        partitions: int = 1,
    ) -> None:
        if (table is None) == (query is None):
            raise UsageError("a JDBC source has a table or a query", hint='table = "orders"')
        if partitions < 1 or (partitions > 1 and column is None):
            raise UsageError(
                "partitions of a JDBC source share out the range of a column", hint='column = "id"'
            )
        self._partitions = partitions
        self._url = url
        self._table = table
        self._query = query
        self._column = column
        self._package = package
        self._jar = jar
        self._options = dict(options)
        self.known_as = table.rpartition(".")[2] if table is not None else "query"

    def packages(self) -> tuple[str, ...]:
        return () if self._package is None else (self._package,)

    def jars(self) -> tuple[str, ...]:
        return () if self._jar is None else (self._jar,)

    def origin(self) -> Origin:
        place = self._url.partition("?")[0].partition(";")[0]  # what follows may hold a password
        return Origin(
            name=self.known_as,
            description=f"{self._table or 'a query'} of {place}",
            details={"url": place, "table": self._table},
        )

    def _whole(self, shared_out: Mapping[str, str] | None = None) -> DataFrame:
        reader = self.session().read.format("jdbc").option("url", self._url).options(**self._options)
        reader = reader.options(**(shared_out or {}))
        what = ("dbtable", self._table or f"({self._query}) rows_of_query")
        try:
            return reader.option(*what).load()
        except Exception as error:
            raise _refused(error, self.origin().description) from error

    def schema(self) -> pa.Schema:
        from virta.spark.schemas import topic_schema

        frame = self._whole()
        if self._column is not None and self._column not in frame.columns:
            raise UsageError(
                f"{self.origin().description} has no column {self._column!r}",
                hint=f"its columns: {', '.join(frame.columns)}",
            )
        if self._partitions > 1 and self._column is not None:
            kind = frame.schema[self._column].dataType.typeName()
            if kind not in _SHARED_OUT and not kind.startswith("decimal"):
                raise UsageError(
                    f"column {self._column!r} of {self.origin().description} is a {kind}, "
                    "whose range cannot be shared out",
                    hint="choose a column of numbers or times, or leave partitions away",
                )
        return topic_schema(frame.schema)

    def plan(self, position: Position | None, most_rows: int) -> Plan | None:  # noqa: ARG002
        if self._column is None:
            return None if position is not None else Plan(splits=({},), position={"read": True})
        from pyspark.sql import functions

        low = None if position is None else position["after"]
        found = self._between(low, None).agg(
            functions.min(self._column).cast("string").alias("low"),
            functions.max(self._column).cast("string").alias("high"),
            functions.count("*").alias("rows"),
        )
        first = found.collect()[0]
        if first["high"] is None or not first["rows"]:
            return None
        split = {"after": low, "least": first["low"], "to": first["high"]}
        return Plan(splits=(split,), position={"after": first["high"]}, rows=first["rows"])

    def frame(self, plan: Plan) -> DataFrame:
        if self._column is None:
            return self._whole()
        split = plan.splits[0]
        shared_out = None
        if self._partitions > 1:
            shared_out = {
                "partitionColumn": self._column,
                "lowerBound": split["least"],
                "upperBound": split["to"],
                "numPartitions": str(self._partitions),
            }
        return self._between(split["after"], split["to"], shared_out).orderBy(self._column)

    def _between(
        self, low: str | None, high: str | None, shared_out: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Rows above `low` up to `high`; the database does the filtering."""
        from pyspark.sql import functions

        assert self._column is not None
        frame = self._whole(shared_out)
        kind = frame.schema[self._column].dataType
        column = functions.col(self._column)
        if low is not None:
            frame = frame.where(column > functions.lit(low).cast(kind))
        if high is not None:
            frame = frame.where(column <= functions.lit(high).cast(kind))
        return frame


def _refused(error: Exception, what: str) -> UnavailableError:
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    # of an error in Java the first line says only that there was one; the class stands before the colon
    said = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    line = re.sub(r"^[\w.$]+: ", "", said[0]) if said else lines[0]
    databases_own = re.search(r"WHERE 1=0\. (.+?) The error occurred during", line)
    line = databases_own[1] if databases_own is not None else line
    if "No suitable driver" in text or "ClassNotFoundException" in text:
        return UnavailableError(
            f"there is no JDBC driver for {what}",
            hint='name it: package = "org.postgresql:postgresql:42.7.4", or jar = "/path/driver.jar"',
        )
    return UnavailableError(
        f"{what} cannot be read: {line}", hint="check the address, the names and the password"
    )


class KafkaSource(SparkSource):
    """A topic of Kafka: its keys and values, and with `metadata` where they stood."""

    def __init__(
        self,
        *,
        servers: str,
        topic: str,
        metadata: bool,
        options: Mapping[str, str],
        package: str | None = None,
        jar: str | None = None,
    ) -> None:
        self._package = package
        self._jar = jar
        self._servers = servers
        self._topic = topic
        self._metadata = metadata
        self._options = dict(options)
        self.known_as = topic

    def jars(self) -> tuple[str, ...]:
        return () if self._jar is None else tuple(self._jar.split(","))

    def packages(self) -> tuple[str, ...]:
        """The connector of this very Spark, unless another one is named."""
        import pyspark

        if self._jar is not None or self._package is not None:
            return () if self._package is None else (self._package,)
        return (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",)

    def origin(self) -> Origin:
        return Origin(
            name=self._topic,
            description=f"Kafka topic {self._topic} of {self._servers}",
            details={"servers": self._servers, "topic": self._topic},
        )

    def schema(self) -> pa.Schema:
        fields = [("key", pa.binary()), ("value", pa.binary())]
        if self._metadata:
            fields += [
                ("kafka_partition", pa.int32()),
                ("kafka_offset", pa.int64()),
                ("kafka_timestamp", pa.timestamp("us", "UTC")),
            ]
        return pa.schema(fields)

    def _between(self, start: str, end: str) -> DataFrame:
        reader = self.session().read.format("kafka").option("kafka.bootstrap.servers", self._servers)
        reader = reader.option("subscribe", self._topic).options(**self._options)
        return reader.option("startingOffsets", start).option("endingOffsets", end).load()

    def plan(self, position: Position | None, most_rows: int) -> Plan | None:  # noqa: ARG002
        from pyspark.sql import functions

        known = dict((position or {}).get("offsets", {}))
        start = self._offsets(known) if known else "earliest"
        rows = (
            self._between(start, "latest")
            .groupBy("partition")
            .agg(functions.min("offset").alias("low"), functions.max("offset").alias("high"))
            .collect()
        )
        if not rows:
            return None
        low = {
            **known,
            **{str(row["partition"]): row["low"] for row in rows if str(row["partition"]) not in known},
        }
        high = {**known, **{str(row["partition"]): row["high"] + 1 for row in rows}}
        return Plan(splits=({"from": low, "to": high},), position={"offsets": high})

    def _offsets(self, offsets: Mapping[str, int]) -> str:
        return json.dumps({self._topic: dict(offsets)}, sort_keys=True)

    def frame(self, plan: Plan) -> DataFrame:
        split = plan.splits[0]
        frame = self._between(self._offsets(split["from"]), self._offsets(split["to"]))
        wanted = ["key", "value"]
        if self._metadata:
            wanted += [
                "partition as kafka_partition",
                "offset as kafka_offset",
                "timestamp as kafka_timestamp",
            ]
        return frame.selectExpr(*wanted)
