"""Where Spark finds `format("virta")` by itself: it looks into every module named `pyspark_…`.

It does so in a process that only asks for names, so what does the work is imported when
it is asked to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Virta, as Spark knows it."""

    @classmethod
    def name(cls) -> str:
        return "virta"

    def schema(self) -> StructType:
        from virta.spark import source

        return source.schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from virta.spark import source

        return source.reader_of(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from virta.spark import source

        return source.stream_reader_of(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from virta.spark import source

        return source.writer_of(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        from virta.spark import source

        return source.stream_writer_of(self.options, schema)
