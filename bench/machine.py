"""Where a run took place: a figure without its machine says nothing."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

LIBRARIES = (
    "virta",
    "pyarrow",
    "numpy",
    "blake3",
    "lmdb",
    "honker",
    "redis",
    "hiredis",
    "nats-py",
    "confluent-kafka",
    "uvloop",
)


def facts(directory: Path) -> dict[str, Any]:
    """Everything about this machine and tree that a reader of the figures needs."""
    file_system, device = _file_system(directory)
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(_memory_bytes() / 2**30, 1),
        "kernel": platform.release(),
        "file_system": file_system,
        "device": device,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "libraries": {name: _version(name) for name in LIBRARIES},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain")),
        "load_average_before": os.getloadavg()[0],
    }


def touch_memory(size: int) -> None:
    """Have the machine's memory backed before anything is measured, in a process of its own.

    In a virtual machine the first touch of a page costs more than writing it, and whoever
    writes first would pay for all.
    """
    code = f"import mmap; mmap.mmap(-1, {size}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)"
    subprocess.run([sys.executable, "-c", code], check=False)  # MAP_POPULATE


def headline(facts: dict[str, Any]) -> str:
    """The facts in two lines for the head of the table."""
    libraries = ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB; "
        f"Linux {facts['kernel']}, {facts['file_system']} on {facts['device']}\n"
        f"Python {facts['python']}, SQLite {facts['sqlite']}, {libraries}; "
        f"commit {(facts['git_commit'] or 'unknown')[:12]}{' (changed)' * facts['git_dirty']}; "
        f"load {facts['load_average_before']:.2f}"
    )


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _file_system(directory: Path) -> tuple[str, str]:
    """Type and device of the mount that holds `directory`: the longest mount point above it."""
    path = str(directory.resolve())
    best = ("", "unknown", "unknown")
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return best[1:]
    for line in lines:
        device, point, kind = line.split()[:3]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind, device)
    return best[1:]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    root = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def run_nanoseconds(process: int) -> int:
    """Time on a core so far, all threads together."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)
