"""Spark's own standalone cluster, from what pip installs: a master and workers on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from virta.spark.java import find_java, launcher_home

_PATIENCE_SECONDS = 120.0


@contextlib.contextmanager
def standalone(root: Path, *, workers: int = 2) -> Iterator[str]:
    """The address of a master that `workers` workers have joined."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        master = _start(root / "master.log", started, "master.Master", "--port", "0", "--webui-port", "0")
        address = _said(root / "master.log", master, rb"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            log = root / f"worker{number}.log"
            size = ("--cores", "1", "--memory", "700m", "--port", "0", "--webui-port", "0")
            place = ("--work-dir", str(root / f"work{number}"))
            worker = _start(log, started, "worker.Worker", *size, *place, address)
            _said(log, worker, rb"(Successfully registered)")
        yield address
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def environment(**more: str) -> Mapping[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(launcher_home(find_java())),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_HOST": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        **more,
    }


def _start(
    log: Path, started: list[subprocess.Popen[bytes]], which: str, *words: str
) -> subprocess.Popen[bytes]:
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(program), f"org.apache.spark.deploy.{which}", "--host", "127.0.0.1", *words]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env=environment(SPARK_DAEMON_MEMORY="256m")
        )
    started.append(process)
    return process


def _said(log: Path, process: subprocess.Popen[bytes], pattern: bytes) -> str:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(pattern, log.read_bytes())
        if found:
            return found.group(1).decode()
        time.sleep(0.1)
    raise AssertionError(f"Spark did not start: {log.read_text(errors='replace')[-2000:]}")


def run(program: str, *words: str, env: Mapping[str, str] | None = None, python: str = sys.executable) -> str:
    """What a Python program of its own process says; its errors where it fails."""
    done = subprocess.run(
        [python, "-c", program, *words],
        capture_output=True,
        text=True,
        env=environment() if env is None else env,
        timeout=_PATIENCE_SECONDS * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
