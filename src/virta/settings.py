"""Settings of a process that opens a log: data only, few, each with its reason.

And the directory of a user who names no log.

Topic configuration (durability, retention, …) is not here: it belongs to the topic
and is the same for every process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    # Newest blocks kept in memory: enough for readers that are a little behind, per partition and per log.
    tail_bytes_per_partition: int = 8 * MIB
    tail_bytes_per_log: int = 64 * MIB
    # At `memory` durability rows are written after this time or amount, whichever comes first.
    dump_interval_ms: int = 20
    dump_bytes: int = 4 * MIB
    # The synced watermark moves at least this often while rows are written: it bounds what
    # has to be hashed again after a power loss.
    sync_interval_seconds: float = 1.0
    sync_bytes: int = 64 * MIB
    # Appends joined into one commit: bounds the time that the lock is held.
    commit_appends: int = 512
    commit_bytes: int = 32 * MIB
    # Bytes read ahead by one step of a scan.
    read_bytes: int = 8 * MIB
    # Write to file systems whose locks cannot be trusted.
    force_network_file_system: bool = False


def data_address() -> str:
    """The user's own data directory."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(data) / "virta")
