"""Virta as a source and a sink of Apache Spark: `pip install 'virta[spark]'`, `format("virta")`."""

from virta.spark.session import session
from virta.spark.telling import told

__all__ = ["session", "told"]
