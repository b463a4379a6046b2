"""What all tests share: how hard Hypothesis tries, and one Spark.

`dev` is quick, for the inner loop; `ci` looks longer. `CI` in the environment
chooses, and `--hypothesis-profile` overrules it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import virta

# Building Arrow data and syncing files is slow at first and on busy machines, so no
# single example is held to a deadline.
settings.register_profile("dev", max_examples=30, deadline=None)
settings.register_profile(
    "ci",
    max_examples=200,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# A context that this machine's user has in use is not the tests' business.
os.environ["XDG_CONFIG_HOME"] = "/nowhere/virta-tests"
os.environ.pop("VIRTA_CONTEXT", None)

# Asserts in the shipped suite explain themselves as those in tests do; whoever collects first imports it.
pytest.register_assert_rewrite("virta.testing.conformance")

settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One for the whole run: starting it costs more than the tests do."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from virta.spark import session
    from virta.spark.java import find_java

    try:
        find_java()
    except virta.VirtaError as error:
        pytest.skip(f"no Java to run Spark on: {error}")
    # Spark starts many short processes; each would compile all that it imports
    compiling = os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    made = session(
        "local[2]",
        memory="1g",
        fast_start=True,
        conf={"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"},
    )
    if compiling is not None:
        os.environ["PYTHONDONTWRITEBYTECODE"] = compiling
    yield made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # py4j leaves its sockets to the collector
        made.stop()
