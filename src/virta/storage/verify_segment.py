"""Verifying one segment: every block from its schema to its end. See `verify.py` for the rules.

A walk goes over the data file once, with the chain file beside it, and gathers what it
finds; it raises nothing but the operating system's errors.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from blake3 import blake3

from virta.errors import Corrupt
from virta.storage import block, chain, manifest, message, room, state, trail
from virta.storage.chain import HEADER_SIZE, Header
from virta.storage.files import Files, read_fully
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry, Manifest
from virta.storage.quick_check import QuickCheck
from virta.storage.rebuild import header_of
from virta.storage.state import State
from virta.storage.view import Identity
from virta.types import Problem

# Small enough to stay in the processor's cache between reading and hashing.
_PIECE_BYTES = 1024 * 1024
_HEADERS_PER_PIECE = 512
# Told to `progress` at most this often: a report costs less than hashing so much.
_PROGRESS_BYTES = 16 * 1024 * 1024
# What a block costs, however small, in bytes hashed meanwhile: many small ones are told of as well.
_BLOCK_COST_BYTES = 64 * 1024
# Commits are short: a lock not free for so long belongs to a writer at work.
_LOCK_SECONDS = 0.5
_KNOWN_FLAGS = chain.CONTROL | chain.DICTIONARIES | chain.REWRITTEN
# Events that explain why rows are not there, or not as they were written.
_RECEIPTS = frozenset({"retained", "rewritten"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a verification has come."""

    partition: int
    blocks: int
    bytes: int
    total_bytes: int


def repair_command(topic: str) -> str:
    return f"virta doctor --repair {shlex.quote(topic)}"


RESTORE = "restore the file from a backup; what was written cannot be made again from anything else"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the next block belongs."""

    offset: int
    head: bytes
    timestamp: int = -(1 << 63)
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenReceipt:
    """A control block that explains a change, in the order of the chain."""

    event: dict[str, Any]
    timestamp: int

    @property
    def kind(self) -> str:
        return str(self.event.get("event"))

    @property
    def reason(self) -> str:
        return str(self.event.get("reason"))

    def number(self, name: str) -> int:
        value = self.event.get(name)
        return value if isinstance(value, int) else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRewrite:
    """A segment in which blocks stand for others: a receipt must name it."""

    entry: Entry
    seal: str
    rows: int


@dataclass(slots=True)
class Found:
    """What has been seen so far: of a segment, then of the partition."""

    blocks: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    trusted: int | None = None  # the first offset that does not verify
    receipts: list[SeenReceipt] = field(default_factory=list)
    rewrites: list[SeenRewrite] = field(default_factory=list)

    def distrust(self, offset: int) -> None:
        self.trusted = offset if self.trusted is None else min(self.trusted, offset)

    def add(self, other: Found) -> None:
        self.blocks += other.blocks
        self.rows += other.rows
        self.bytes += other.bytes
        self.problems += other.problems
        self.receipts += other.receipts
        self.rewrites += other.rewrites
        if other.trusted is not None:
            self.distrust(other.trusted)


def file_key(entry: Entry) -> tuple[int, int]:
    return entry.base, entry.generation


class Context:
    """The partition that is verified, as all its segments need it."""

    def __init__(
        self,
        files: Files,
        paths: PartitionPaths,
        identity: Identity,
        schema_of: Callable[[int], pa.Schema],
        wanted: set[bytes],
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.files = files
        self.paths = paths
        self.identity = identity
        self.schema_of = schema_of
        self.wanted = wanted  # heads that are still to be found
        self.boot_id = files.boot_id()
        self.total_bytes = 0
        self._progress = progress
        self._bytes = 0
        self._blocks = 0
        self._untold = 0

    def count(self, size: int) -> None:
        """One more block is done; let whoever waits know now and then."""
        self._blocks += 1
        self._bytes += size
        self._untold += max(size, _BLOCK_COST_BYTES)
        if self._progress is not None and self._untold >= _PROGRESS_BYTES:
            self._untold = 0
            self._progress(
                Progress(
                    partition=self.identity.number,
                    blocks=self._blocks,
                    bytes=self._bytes,
                    total_bytes=max(self._bytes, self.total_bytes),
                )
            )

    def problem(self, text: str, severity: str = "damage", **place: Any) -> Problem:
        return Problem(
            message=text,
            severity=severity,
            topic=self.identity.topic,
            partition=self.identity.number,
            **place,
        )

    def state(self) -> State | None:
        descriptor = self.files.open(self.paths.lock)
        try:
            return state.parse(self.files.pread(descriptor, state.READ_SIZE, 0))
        finally:
            self.files.close(descriptor)

    def manifest(self) -> Manifest:
        return manifest.load(self.files, self.paths.manifest)

    def quietly(self, look: Callable[[], None]) -> bool:
        """Look at something while no writer is at work; False when one does not pause."""
        descriptor = self.files.open(self.paths.lock)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while not self.files.lock(descriptor, exclusive=False, wait=False):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.001)
            look()
            return True
        finally:
            self.files.close(descriptor)


# -- the walk ----------------------------------------------------------------------------------


class _Window:
    """The data file, read in pieces; a block lies in one of them context."""

    def __init__(self, files: Files, descriptor: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self._start = 0
        self._data = memoryview(b"")

    def read(self, at: int, length: int) -> memoryview:
        skip = at - self._start
        if skip < 0 or skip + length > len(self._data):
            wanted = max(length, _PIECE_BYTES)
            self._data = memoryview(read_fully(self._files, self._descriptor, wanted, at))
            self._start, skip = at, 0
        return self._data[skip : skip + length]


class SegmentWalk:
    """One pass over a segment, from its schema to its last block."""

    def __init__(self, context: Context, entry: Entry, place: Place, known: State) -> None:
        self.context = context
        self.files = context.files
        self.entry = entry
        self.place = place
        self.found = Found()
        self.data_path = context.paths.data(*file_key(entry))
        self.chain_path = context.paths.chain(*file_key(entry))
        self.end = 0  # in the data file: where the next block belongs
        self.synced_blocks = 0
        if entry.is_active and known.is_of(entry):
            self.synced_blocks = known.synced_blocks
        self.known = known
        self.quick = QuickCheck()
        self.seal = blake3()
        self.rewritten = 0
        self.bad_headers = 0
        self.first_bad_header: tuple[int, int] = (0, 0)  # index and offset
        self.min_timestamp, self.max_timestamp = (1 << 63) - 1, -(1 << 63)
        self._data_size = 0
        self._chain_size = 0
        self._piece = b""
        self._piece_at = 0

    # -- saying what is wrong -------------------------------------------------------------------

    def damage(self, text: str, *, position: int, trusted: bool = False) -> None:
        """Something is wrong in the data file; rows from here on do not verify, unless `trusted`."""
        if not trusted:
            self.found.distrust(self.place.offset)
        self.found.problems.append(
            self.context.problem(
                text,
                file=str(self.data_path),
                position=position,
                offset=self.place.offset,
                cure=RESTORE,
            )
        )

    def _leftover(self, text: str, position: int) -> None:
        self.found.problems.append(
            self.context.problem(
                f"leftover of a crash; the next append recovers it: {text}",
                "notice",
                file=str(self.data_path),
                position=position,
                offset=self.place.offset,
            )
        )

    def _note_bad_header(self, index: int) -> None:
        if not self.bad_headers:
            self.first_bad_header = index, self.place.offset
        self.bad_headers += 1

    # -- the pass -------------------------------------------------------------------------------

    def run(self) -> None:
        data = chain_ = -1
        try:
            try:
                data = self.files.open(self.data_path)
            except FileNotFoundError:
                self.damage("the data file is missing", position=0)
                return
            try:
                chain_ = self.files.open(self.chain_path)
            except FileNotFoundError:
                self._report_missing_chain()
            self._run(data, chain_)
        except OSError as error:
            self.damage(f"cannot be read: {error.strerror or error}", position=self.end)
        finally:
            for descriptor in (data, chain_):
                if descriptor >= 0:
                    self.files.close(descriptor)

    def _run(self, data: int, chain_: int) -> None:
        # the chain first: what it names is in the data file already
        self._chain_size = self.files.size(chain_) if chain_ >= 0 else 0
        self._data_size = self.files.size(data)
        self.window = _Window(self.files, data)
        self._look_at_schema()
        stopped = not self._look_at_blocks(chain_)
        if self.bad_headers and chain_ >= 0:
            self._report_bad_chain()
        if self.rewritten:
            self.found.rewrites.append(
                SeenRewrite(entry=self.entry, seal=self.seal.hexdigest(), rows=self.found.rows)
            )
        if not stopped:
            if self.entry.is_active:
                self._look_behind_active(data, chain_)
            else:
                self._look_at_end()

    def _look_at_schema(self) -> None:
        """Rule 2: the schema message at the front, the manifest's digest and the topic's schema agree."""
        expected: bytes | None = None
        try:
            expected = block.schema_message(self.context.schema_of(self.entry.schema_version))
        except Exception as error:  # whatever keeps a schema from being read is the finding
            self.damage(f"schema version {self.entry.schema_version} cannot be read: {error}", position=0)
        front = self._front_message()
        self.end = len(front) if front else len(expected or b"")
        if blake3(front).digest() != self.entry.schema_digest:
            self.damage(
                "the data file does not open with the schema that the manifest names",
                position=0,
                trusted=True,
            )
            self.end = len(expected) if expected else self.end
        if expected is not None and blake3(expected).digest() != self.entry.schema_digest:
            self.damage(
                f"schema version {self.entry.schema_version} of the topic is not the one in the manifest",
                position=0,
            )

    def _front_message(self) -> bytes:
        try:
            size = message.metadata_size(bytes(self.window.read(0, message.PREFIX_SIZE)))
            front = bytes(self.window.read(0, size))
            head = message.parse_head(front)
        except Corrupt:
            return b""
        return front if head.kind == message.SCHEMA_MESSAGE and not head.body_length else b""

    def _look_at_blocks(self, chain_: int) -> bool:
        """Rules 3 and 4, block by block; whether the segment could be followed to its end."""
        index = 0
        while self._is_expected(index, chain_):
            record = self._record(chain_, index)
            header = self._follow(record)
            error = "the header does not follow from the one before" if record else "the header is missing"
            if header is not None:
                try:
                    self._accept(header, index)
                    index += 1
                    continue
                except Corrupt as wrong:
                    error = wrong.message
            if not self._look_twice(index, header, error):
                return False
            index += 1
        return True

    def _is_expected(self, index: int, chain_: int) -> bool:
        if not self.entry.is_active:
            return index < self.entry.blocks
        if chain_ < 0:
            return self.end < self._data_size and any(self.window.read(self.end, 8))
        return index < max(self._chain_size // HEADER_SIZE, self.synced_blocks)

    def _record(self, chain_: int, index: int) -> bytes:
        """A header as it stands in the chain file; empty where there is none."""
        if chain_ < 0 or (index + 1) * HEADER_SIZE > self._chain_size:
            return b""
        at = index * HEADER_SIZE - self._piece_at
        if at + HEADER_SIZE > len(self._piece):
            self._piece_at = index * HEADER_SIZE
            self._piece = read_fully(self.files, chain_, _HEADERS_PER_PIECE * HEADER_SIZE, self._piece_at)
            at = 0
        return self._piece[at : at + HEADER_SIZE]

    def _follow(self, record: bytes) -> Header | None:
        """The header, if it follows from the one before and lies where it must."""
        if len(record) != HEADER_SIZE:
            return None
        if not chain.follows(record, self.place.head):
            return None
        header = chain.unpack_header(record)
        return header if header.position == self.end else None

    def _accept(self, header: Header, index: int) -> None:
        """Check a header's block and go on behind it. Corrupt when the bytes are not its block's."""
        if header.end_position > self._data_size:
            raise Corrupt("the data file ends before the block does")
        data = self.window.read(header.position, header.length)
        wrong = self._judge(header)
        if not self.quick.holds(data, header):
            block.check_against(data, header)
            try:
                block.check_leading(data, header)
                self.quick.learn(data)
            except Corrupt as error:
                wrong = error.message
        if header.is_rewritten:
            wrong = self._judge_trail(data, header) or wrong
        if wrong:
            self.damage(wrong, position=header.position)
        if header.is_control or index == 0:
            self._look_at_event(data, header, index)
        self._step(header, index)
        self.found.rows += header.rows
        self.found.blocks += 1
        self.found.bytes += header.length
        self.context.count(header.length)

    def _judge(self, header: Header) -> str | None:
        """Rule 4, and that the fields make sense together."""
        place = self.place
        if header.base_offset != place.offset:
            return f"the block begins at offset {header.base_offset}, but {place.offset} is next"
        if header.min_timestamp < place.timestamp or header.max_timestamp < header.min_timestamp:
            return "the block's time is before the one of the block before"
        if header.epoch < place.epoch:
            return f"the block's epoch {header.epoch} is before epoch {place.epoch} of the block before"
        if header.schema_version != self.entry.schema_version:
            return f"the block has schema version {header.schema_version}, its segment another one"
        if header.is_rewritten and self.entry.is_active:
            return "a rewritten block lies in the segment that is appended to"
        if header.flags & ~_KNOWN_FLAGS or (header.reserved and not header.is_rewritten):
            return "the block has flags that this version does not know"
        if header.rows > header.span or (header.is_control and header.span):
            return f"the block has {header.rows} rows for {header.span} offsets"
        return None

    def _judge_trail(self, data: Any, header: Header) -> str | None:
        """A rewritten block's link: from the hash before it, over the blocks it stands for, to its hash."""
        self.rewritten += 1
        old = trail.of_block(data, header.base_offset)
        hashes = trail.hashes(old, self.place.head)
        if hashes[-1] != header.hash:
            return "the blocks that the rewritten block stands for do not lead to its hash"
        self.context.wanted.difference_update(hashes)
        if int(old["span"].sum()) != header.span or int(old["rows"].sum()) < header.rows:
            return "the rewritten block covers other offsets, or has more rows, than the blocks it stands for"
        return None

    def _step(self, header: Header, index: int) -> None:
        """Go on behind a block."""
        self.seal.update(header.to_bytes())
        self.place = Place(
            offset=header.end_offset,
            head=header.hash,
            timestamp=max(self.place.timestamp, header.max_timestamp),
            epoch=max(self.place.epoch, header.epoch),
        )
        self.end = header.position + header.length
        self.min_timestamp = min(self.min_timestamp, header.min_timestamp)
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        self.context.wanted.discard(header.hash)
        if index + 1 == self.synced_blocks and header.hash != self.known.synced_hash:
            self.damage(
                "the history up to here has another hash than the one that was synced: it was rewritten",
                position=header.position,
            )
            self.found.distrust(self.entry.base)

    # -- where header and block do not agree ------------------------------------------------------

    def _look_twice(self, index: int, header: Header | None, error: str) -> bool:
        """Find out which of the two is damaged; whether it goes on behind them."""
        try:
            made = self._made_from_data()
        except Corrupt as wrong:
            return self._skip_block(index, header, error if header is not None else wrong.message)
        if header is not None and made.hash != header.hash:
            self.damage("another block lies here than the one the chain names", position=header.position)
            self._step(header, index)
            return True
        self._note_bad_header(index)
        self._accept(made, index)
        return True

    def _made_from_data(self) -> Header:
        length = block.measure(self.window.read, self.end, self._data_size)
        header = header_of(self.window.read(self.end, length), self.place.head, self.end)
        chain.check_follows(header, next_offset=self.place.offset, position=self.end)
        return header

    def _skip_block(self, index: int, header: Header | None, error: str) -> bool:
        if self._may_be_torn(index):
            self._leftover(error, self.end)
            return False
        if header is not None and header.end_position <= self._data_size:
            self.damage(error, position=self.end)
            self._step(header, index)
            return True
        missing = max(self.entry.blocks, self._chain_size // HEADER_SIZE, self.synced_blocks) - index
        if self.end >= self._data_size:
            error = f"the data file ends here, and {missing} blocks are missing"
        elif missing > 1:
            error += f"; the {missing} blocks from here on cannot be checked"
        self.damage(error, position=min(self.end, self._data_size))
        return False

    def _may_be_torn(self, index: int) -> bool:
        """Whether a crash may have left this: above the watermark, and not merely in the page cache."""
        if not self.entry.is_active or index < self.synced_blocks:
            return False
        return not self._chain_size or not self.known.is_checked_in(self.context.boot_id)

    def _report_missing_chain(self) -> None:
        self.found.problems.append(
            self.context.problem(
                "the chain file is missing; the next opening makes it again from the data file",
                "warning",
                file=str(self.chain_path),
                offset=self.entry.base,
                cure=repair_command(self.context.identity.topic),
            )
        )

    def _report_bad_chain(self) -> None:
        index, offset = self.first_bad_header
        headers = "a header does" if self.bad_headers == 1 else f"{self.bad_headers} headers do"
        self.found.problems.append(
            self.context.problem(
                f"the chain file is damaged: {headers} not match the data, which is whole",
                file=str(self.chain_path),
                position=index * HEADER_SIZE,
                offset=offset,
                cure=repair_command(self.context.identity.topic),
            )
        )

    # -- control blocks -----------------------------------------------------------------------------

    def _look_at_event(self, data: Any, header: Header, index: int) -> None:
        try:
            event = block.event_of(data) or {}
        except Corrupt as error:
            self.damage(error.message, position=header.position)
            return
        kind = event.get("event")
        if index == 0:
            wrong = self._judge_opening(event)
            if wrong:
                self.damage(wrong, position=header.position)
        if kind in _RECEIPTS:
            self.found.receipts.append(SeenReceipt(event=event, timestamp=header.max_timestamp))

    def _judge_opening(self, event: dict[str, Any]) -> str | None:
        """The opening block binds the schema, and at the very front the identity, to the chain."""
        identity = self.context.identity
        at_front = self.entry.base == 0 and self.place.head == identity.genesis()
        if event.get("event") != ("created" if at_front else "segment"):
            return "the control block that opens a segment is missing"
        if event.get("schema") != self.entry.schema_digest.hex():
            return "the control block that opens the segment names another schema than the manifest"
        if at_front and (event.get("log"), event.get("topic"), event.get("partition")) != (
            identity.log_id.hex(),
            identity.topic_id.hex(),
            identity.number,
        ):
            return "the control block that opens the partition names another log, topic or partition"
        return None

    # -- the end --------------------------------------------------------------------------------------

    def _look_at_end(self) -> None:
        """Rule 5 for a sealed segment: it ends as the manifest says."""
        entry = self.entry
        if self.place.head != entry.last_hash:
            if self.bad_headers:
                self.found.distrust(self.first_bad_header[1])
            self.damage("the segment does not end in the hash that the manifest names", position=self.end)
            self.found.distrust(entry.base)
            return
        if self._data_size != self.end:
            self.damage("bytes are left over after the last block", position=self.end, trusted=True)
        if self._chain_size > entry.blocks * HEADER_SIZE:
            self.found.problems.append(
                self.context.problem(
                    "the chain file is damaged: bytes are left over after the last header",
                    file=str(self.chain_path),
                    position=entry.blocks * HEADER_SIZE,
                    cure=repair_command(self.context.identity.topic),
                )
            )
        if self.found.trusted is None:
            self._compare_with_manifest()

    def _compare_with_manifest(self) -> None:
        entry = self.entry
        for what, here, there in (
            ("end", self.place.offset, entry.end),
            ("data length", self.end, entry.data_length),
            ("number of rows", self.found.rows, entry.rows),
            ("least timestamp", self.min_timestamp, entry.min_timestamp),
            ("greatest timestamp", self.max_timestamp, entry.max_timestamp),
        ):
            if here != there:
                self.found.problems.append(
                    self.context.problem(
                        f"the manifest gives the segment from offset {entry.base} {there} as its {what}, "
                        f"but it is {here}",
                        file=str(self.context.paths.manifest),
                        offset=entry.base,
                        cure=repair_command(self.context.identity.topic),
                    )
                )

    def _look_behind_active(self, data: int, chain_: int) -> None:
        """What lies behind the last header of the active segment, if no writer is at work there."""
        if chain_ < 0:
            return

        def look() -> None:
            size = self.files.size(chain_)
            if size // HEADER_SIZE != self._chain_size // HEADER_SIZE or self._is_sealed_now():
                return  # others have appended since
            rest = room.bytes_behind(self.files, data, self.end)
            if rest:
                self._leftover(f"{rest} bytes lie behind the last block", self.end)
            elif size % HEADER_SIZE:
                self._leftover("the chain file ends in a part of a header", self.end)

        self.context.quietly(look)

    def _is_sealed_now(self) -> bool:
        active = self.context.manifest().active
        return file_key(active) != file_key(self.entry)
