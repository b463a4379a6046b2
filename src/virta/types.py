"""The words of Virta as values: what calls take and give back.

Values are frozen, slotted and keyword-only. Nothing here reads a file, a clock
or the environment.
"""

from __future__ import annotations

import base64
import enum
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

HASH_SIZE = 32

# A token as text: prefix, then base64 of partition, offset, hash and a checksum. The prefix
# carries the version, and keeps a token from beginning with '-'.
TOKEN_PREFIX = "t1"
TOKEN_FIELDS = struct.Struct(f"<IQ{HASH_SIZE}s")


class Durability(enum.StrEnum):
    """What an acknowledgement promises, from weakest to strongest."""

    MEMORY = "memory"  # in this process's memory
    OS = "os"  # written: survives the process
    DISK = "disk"  # synced: survives a power loss


class Kind(enum.StrEnum):
    """What a topic's rows mean."""

    APPEND = "append"  # every row stays
    UPDATE = "update"  # the newest row of each key is the truth


class Compression(enum.StrEnum):
    """How a block's columns are stored."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@runtime_checkable
class ArrowStream(Protocol):
    """Anything that hands out Arrow data: pyarrow, pandas, Polars, DuckDB relations."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Where a reader stands: partition, next offset, and the hash before the block holding it."""

    partition: int
    offset: int
    hash: bytes

    def __str__(self) -> str:
        """Opaque text, safe in addresses and file names; `requests.parse_token` reads it back."""
        data = TOKEN_FIELDS.pack(self.partition, self.offset, self.hash)
        data += zlib.crc32(data).to_bytes(4, "little")
        return TOKEN_PREFIX + base64.urlsafe_b64encode(data).decode()


class Ack(NamedTuple):
    """What an append is told: where its rows are and how safe they are.

    For zero rows `last_offset` is `first_offset - 1`. `duplicate` says that a named
    producer had sent these rows before and nothing was written again. `acks` says who has
    them: "leader" (this log), "all" (every replica in step; a broker alone is all), or "none":
    nobody was waited for, the offsets are not known, and `durability` is what is meant to
    come. (A named tuple: one is made for every row that is appended alone.)
    """

    partition: int
    first_offset: int
    last_offset: int
    head: str
    durability: Durability
    duplicate: bool = False
    acks: str = "leader"

    @property
    def rows(self) -> int:
        return self.last_offset - self.first_offset + 1

    @property
    def parts(self) -> tuple[Ack, ...]:
        """One acknowledgement for each partition that took rows."""
        return (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configuration of a topic; a change gives a new version of the topic."""

    kind: Kind = Kind.APPEND
    keys: tuple[str, ...] = ()
    partitions: int = 1
    durability: Durability = Durability.OS
    compression: Compression = Compression.NONE
    segment_bytes: int = 256 * 1024 * 1024
    retention_age_seconds: float | None = None
    retention_bytes: int | None = None
    retention_rows: int | None = None
    join_blocks: bool = True  # the steward may make many small blocks into large ones
    compaction_ratio: float = 0.25  # of an update topic: compacted when this part of it is new
    tombstone_age_seconds: float = 86_400.0  # a deletion stays at least so long for those who follow
    row_limit_bytes: int = 10 * 1024 * 1024
    topic_deletion: bool = True
    row_deletion: bool = False
    public_write: bool = False
    locked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a topic or a log: a row of `__events`.

    `kind` says what, in words: created, altered, schema changed, locked, rows erased,
    compacted, retained, recovered, deleted, or what else a part of Virta notes. `details`
    is open: anything JSON takes. Without an `actor` it is the user of the process.
    """

    kind: str
    topic: str | None = None
    topic_id: str | None = None
    version: int | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    hash_before: str | None = None
    hash_after: str | None = None
    actor: str | None = None
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing `verify` or `doctor` found."""

    message: str
    severity: str = "damage"  # "damage", "warning" or "notice"
    topic: str | None = None
    partition: int | None = None
    file: str | None = None
    position: int | None = None
    offset: int | None = None
    cure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What was erased, or would be: `rows`, from so many segments and partitions."""

    topic: str
    rows: int
    segments: int
    partitions: int
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the chain says of rows that are not there any more, or not as they were written.

    `reason`: `age`, `bytes` or `rows` (removed by retention), `compacted`, `erased` or
    `joined` (small blocks made into large ones). Of the range the bytes that were first
    written cannot be checked any more: the receipt vouches for those that are there.
    """

    partition: int
    reason: str
    from_offset: int
    to_offset: int
    rows_removed: int
    timestamp_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify` saw. `ok` means: every byte a reader would see is what was written."""

    blocks: int
    rows: int
    bytes: int
    heads: Mapping[int, str]
    problems: tuple[Problem, ...] = ()
    # per partition: rows below this offset still verify from genesis (or the oldest kept)
    trustworthy_until: Mapping[int, int] | None = None
    # what was removed or rewritten, and why; in the order in which it was done
    receipts: tuple[Receipt, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(problem.severity == "damage" for problem in self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Sizes and positions, from manifest and chain files, never from data."""

    rows: int
    bytes: int
    blocks: int
    segments: int
    start_offset: int
    next_offset: int
    oldest_in_memory: int | None = None
    newest_in_memory: int | None = None
    memory_bytes: int = 0
    details: Mapping[str, Any] | None = None
