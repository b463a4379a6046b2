"""Directories for campaigns: in memory where that is possible, gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    place = tempfile.mkdtemp(prefix=f"{name}-", dir=_MEMORY if _MEMORY.is_dir() else None)
    try:
        yield Path(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
