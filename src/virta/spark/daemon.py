"""The process that Spark's tasks in Python are forked from, with what they all need imported once.

Spark forks a worker for every task that runs at once; each would import pyarrow, Virta and
half of PySpark by itself, which takes longer than a small batch does. Named in
`spark.python.daemon.module` by `virta.spark.session`.

A process that forks should have a single thread, so numpy's mathematics and pyarrow's
allocator are told to start none of their own.
"""

from __future__ import annotations

import importlib
import os
import sys

_WANTED = ("pyarrow", "pyarrow.compute", "pyspark.worker", "pyspark_virta", "virta.spark.source")


def prepare() -> None:
    """Import what workers need. A failure is theirs to tell, with the job it belongs to."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in _WANTED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            sys.stderr.write(f"virta: workers start slowly, {name} cannot be imported: {error}\n")


if __name__ == "__main__":
    from pyspark.daemon import manager

    prepare()
    manager()
