"""A Spark session that is ready for Virta: `virta.spark.session()`.

It sees to what goes wrong otherwise: a Java that is too old or missing, workers that take
another Python, logs full of Spark's own noise, more memory than a small machine has. On a
cluster only the master changes. Whatever `conf` says is taken over what is said here.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from virta.errors import UnavailableError
from virta.spark.java import Java, cached_file, find_java, launcher_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK = (4, 3)
MEMORY_LEAST, MEMORY_MOST = 512 << 20, 4 << 30
# What every query over topics gains from; may be set in a session that is running.
_QUERY_SETTINGS = {
    # a reader that takes filters fails without it
    "spark.sql.python.filterPushdown.enabled": "true",
    # larger Arrow batches than Spark's own 10,000 rows cost a third less on their way to Python
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # an idle stream asks for news ninety times a second otherwise
    "spark.sql.streaming.pollingDelay": "100",
}
# Right for tests and short commands, wrong for long jobs: they never reach the fast compiler.
_FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"

_LOG4J = """\
# Spark's own words, kept to what is wrong. What fails is raised in Python anyway.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%ex{0}
# no louder than the root, else Spark says at every start that it lowered the level
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
# Their errors reach the caller as the exception of the action, query or command that failed.
_TOLD_ELSEWHERE = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.scheduler.TaskSchedulerImpl",
    "org.apache.spark.api.python",
    "org.apache.spark.sql.execution.python",
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.util.Utils",
)


def session(
    master: str | None = None,
    *,
    name: str = "virta",
    memory: str | None = None,
    fast_start: bool = False,
    quiet: bool = True,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark session of this process, made if there is none.

    `master`: as Spark takes it, `local[*]` unless said or set in `SPARK_MASTER`. `memory`: of the
    driver ("2g"), by the machine's unless said. `fast_start` halves the time to the
    first result, and is wrong for jobs of more than a minute or two.
    """
    master = master or os.environ.get("SPARK_MASTER") or "local[*]"
    _check_pyspark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return _prepared(running, conf or {})
    java = find_java()
    _set_environment(java, master, quiet=quiet)
    settings = _settings(memory=memory, fast_start=fast_start, quiet=quiet) | dict(conf or {})
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with warnings.catch_warnings():
            # PySpark looks at pandas, which nothing here uses, and warns of new versions
            warnings.simplefilter("ignore", FutureWarning)
            return builder.getOrCreate()
    except Exception as error:
        raise UnavailableError(
            f"Spark did not start with Java {java.version} ({java.source}): {_first_line(error)}",
            hint=f"see whether `{java.home}/bin/java -version` works; quiet=False shows what Spark says",
        ) from error


def _check_pyspark() -> None:
    try:
        import pyspark
    except ImportError as error:
        raise UnavailableError("PySpark is not installed", hint="pip install 'virta[spark]'") from error
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < OLDEST_SPARK:
        raise UnavailableError(
            f"Virta needs PySpark {'.'.join(map(str, OLDEST_SPARK))} or newer; this is {pyspark.__version__}",
            hint="pip install -U 'virta[spark]'",
        )


def _prepared(running: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """A session that is there already, with what can still be set."""
    for key, value in (_QUERY_SETTINGS | dict(conf)).items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
    return running


def _set_environment(java: Java, master: str, *, quiet: bool) -> None:
    home = java.home if java.is_whole and not quiet else launcher_home(java)
    os.environ["JAVA_HOME"] = str(home)
    # else the workers take whatever `python3` the path has
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _settings(*, memory: str | None, fast_start: bool, quiet: bool) -> dict[str, str]:
    options = []
    if fast_start:
        options.append(_FAST_START)
    settings = {
        **_QUERY_SETTINGS,
        "spark.driver.memory": memory or default_memory(),
        "spark.ui.enabled": "false",
        "spark.python.daemon.module": "virta.spark.daemon",
    }
    if quiet:
        options.append(f"-Dlog4j2.configurationFile={_log4j_file().as_uri()}")
        settings["spark.ui.showConsoleProgress"] = "false"
    if options:
        settings["spark.driver.extraJavaOptions"] = " ".join(options)
    return settings


def default_memory() -> str:
    """A quarter of the machine's memory, within bounds, for the driver's Java."""
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(here // 4, MEMORY_LEAST), MEMORY_MOST) >> 20}m"


def _log4j_file() -> Path:
    text = _LOG4J + "".join(
        f"logger.quiet{number}.name = {name}\nlogger.quiet{number}.level = off\n"
        for number, name in enumerate(_TOLD_ELSEWHERE)
    )
    return cached_file("log4j2", ".properties", text)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
