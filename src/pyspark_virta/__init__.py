"""Where Spark finds `format("virta")` by itself: it looks into every module named `pyspark_…`."""

from virta.spark.source import DefaultSource

__all__ = ["DefaultSource"]
