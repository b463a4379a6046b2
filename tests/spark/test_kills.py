"""Copies whose processes are killed: a short slice of `./run faults --only spark`."""

from __future__ import annotations

import pytest

from virta.testing.faults import spark_copies
from virta.testing.faults.report import Report

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", spark_copies.KINDS)
def test_what_is_killed_leaves_each_row_once(kind: str) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    report = Report("spark", 3)
    spark_copies.one_round(report, kind, 3, 0, master="local[2]", lives=2)
    assert report.ok, "\n".join(report.lines())
