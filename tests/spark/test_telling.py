"""What Spark raises, as one line with what helps."""

from __future__ import annotations

import pytest

import virta
from virta.spark.telling import told

CASES = [
    (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.12, x",
        "the workers run Python 3.10 and the driver 3.12",
    ),
    (
        'java.io.IOException: Cannot run program "/opt/py/bin/python": error=2',
        "the workers cannot start Python: there is no /opt/py/bin/python",
    ),
    ("ModuleNotFoundError: No module named 'virta'", "the Python of the workers has no virta"),
    ("Job aborted: java.lang.OutOfMemoryError: Java heap space\n\tat a.b.C", "Spark ran out of memory"),
    (
        "SparkException: x\n\tat org.apache.Foo\nValueError: bad value",
        "Spark could not do it: ValueError: bad value",
    ),
]


@pytest.mark.parametrize("text, said", CASES, ids=[said for _, said in CASES])
def test_known_mishaps(text: str, said: str) -> None:
    error = told(RuntimeError(text))
    assert isinstance(error, virta.UnavailableError)
    assert error.message == said


def test_our_own_errors_are_what_they_were() -> None:
    error = told(
        RuntimeError(
            "[X] failed: virta.errors.NotFound: topic 'a' (b) is gone (make it (again)) SQLSTATE: 38000"
        )
    )
    assert isinstance(error, virta.NotFound)
    assert (error.message, error.hint) == ("topic 'a' (b) is gone", "make it (again)")


def test_a_filters_error_keeps_its_place() -> None:
    said = "filter: there is no column 'x'\n  x > 1\n  ^\n (the columns are: id)"
    error = told(
        RuntimeError(f"failed: virta.errors.SchemaMismatch: {said}\n SQLSTATE: 38000 SQLSTATE: XXKST")
    )
    assert error.message == "filter: there is no column 'x'\n  x > 1\n  ^"
    assert error.hint == "the columns are: id"
