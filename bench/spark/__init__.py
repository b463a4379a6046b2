"""Topics on Spark, beside Spark's own files."""
