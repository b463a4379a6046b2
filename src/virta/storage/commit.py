"""Appending: what happens between taking a partition's lock and letting it go.

 1. lock; compare the state record: another generation, epoch or topic version is
    taken in first, a failed sync or a locked topic refuses;
 2. look at both file lengths: anything beyond what the chain names was left by a
    writer that died, and `recovery` sees to it;
 3. stamp each block: offset, time, salt, digest, hash;
 4. write all blocks with one call, then all headers with one call: with its header a
    block becomes visible;
 5. unlock.

A data write that fails leaves nothing visible; what it wrote is cut off again. A
chain write that fails halfway keeps the headers that are whole, since readers may
have seen them: their rows count as appended. `disk` syncs the data file after unlocking
and then moves the watermark. A roll writes the new generation into the state record
before the manifest and the new segment's watermark after it, so that the next one to
take the lock sees a roll that was cut short, and finishes it. A sync that fails stops
all appending. The object is not safe for several threads: `memory.partition` guards it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virta.clock import Clock
from virta.errors import Conflict, Fenced, Locked, NotFound, StorageFailed, VirtaError
from virta.storage import block, chain, encode, manifest, producers, recovery, room, state
from virta.storage.block import Prepared, Stamped
from virta.storage.chain import HEADER_SIZE, Header
from virta.storage.create import create_segment, user_schema
from virta.storage.files import (
    Files,
    SyncFailed,
    storage_error,
    sync_directory,
    sync_file,
    write_fully,
    write_parts,
)
from virta.storage.locks import PartitionLock
from virta.storage.manifest import Entry, Manifest
from virta.storage.producers import Producers
from virta.storage.room import Room
from virta.storage.segment import Segment, StoredBlock
from virta.storage.state import State
from virta.storage.view import View, schema_digest

# A header gives a block's length in 32 bits.
_SIZE_LIMIT = 1 << 32


class TopicChanged(Exception):
    """The topic has another version than the one the rows were prepared for."""


class RowsAlreadyThere(Exception):
    """A producer's batch overlaps what it sent before; the caller cuts off `rows` and tries again."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


# What a sync covers: segment, offset, blocks, data length, head.
Synced = tuple[Segment, int, int, int, bytes]


class Append:
    """One block on its way in, and what became of it."""

    __slots__ = (
        "block",
        "duplicate",
        "error",
        "expected_offset",
        "prepared",
        "producer",
        "producer_epoch",
        "sequence",
        "source",
        "topic_version",
    )

    def __init__(
        self,
        prepared: Prepared,
        topic_version: int,
        *,
        expected_offset: int | None = None,
        producer: int = 0,
        producer_epoch: int = 0,
        sequence: int = 0,
        source: str | None = None,
    ) -> None:
        self.prepared = prepared
        self.topic_version = topic_version
        self.expected_offset = expected_offset
        self.producer = producer
        self.producer_epoch = producer_epoch
        self.sequence = sequence
        self.source = source  # stands in the block already; a client has its broker put it there
        self.block: StoredBlock | None = None
        self.error: BaseException | None = None
        self.duplicate = False

    @property
    def done(self) -> bool:
        return self.block is not None or self.error is not None or self.duplicate


@dataclass(slots=True)
class Tip:
    """Where the next block goes. Ahead of the view while stamped blocks wait in memory."""

    offset: int
    head: bytes
    position: int
    timestamp: int


class Committer:
    """The writing side of one partition in one process."""

    def __init__(self, view: View, clock: Clock, *, segment_bytes: int) -> None:
        self.view = view
        self.files: Files = view.files
        self.clock = clock
        self.segment_bytes = segment_bytes
        self.lock = PartitionLock(view.files, view.paths)
        self.holding = False  # the lock stays held while stamped blocks wait in memory
        self.recovered = False
        self.is_closed = False
        self.waiting: list[tuple[Stamped, StoredBlock]] = []  # stamped, not yet written
        self.controls: list[StoredBlock] = []  # written, not yet shown to this process's readers
        self._producers: Producers | None = None
        self.tip = Tip(0, b"", 0, 0)
        self.room = Room(view.files)
        self.promised = 0  # so many of the waiting are acknowledged, in memory
        self.on_lost: Callable[[int, int, BaseException], None] | None = None  # told when they are gone
        self.failed = False  # a sync failed here, whether or not the state record could be told
        self._visible: set[int] = set()  # blocks of a failed commit that readers see all the same
        view.on_taken = self._follow_producer
        view.on_skipped = self._forget_producers

    # -- under the lock ---------------------------------------------------------------------

    def acquire(self) -> None:
        if self.holding:
            return
        self.lock.acquire()
        self.holding = True
        try:
            self._catch_up()
        except BaseException:
            self.release()
            raise

    def try_acquire(self) -> bool:
        """As `acquire`, but False where another process holds the lock now."""
        if self.holding:
            return True
        if not self.lock.try_acquire():
            return False
        self.holding = True
        try:
            self._catch_up()
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        if self.holding and not self.waiting:
            self.holding = False
            self.lock.release()

    def _catch_up(self) -> None:
        view = self.view
        view.refresh()
        self._check_usable(view.state)
        self._finish_roll()
        if (
            not self.recovered
            or not room.ends(self.files, view.active.data_descriptor, view.data_end)
            or self.files.size(view.active.chain_descriptor) != view.blocks * HEADER_SIZE
        ):
            self.recover()
        else:
            self._retake_tip()
        if view.state.flags & state.LOCKED:
            raise Locked(f"the topic {self.view.identity.topic!r} is locked: it takes no more rows")

    def _check_usable(self, current: State) -> None:
        if current.flags & state.DROPPED:
            raise NotFound(f"the topic {self.view.identity.topic!r} was dropped")
        self.check_not_failed()

    def check_not_failed(self) -> None:
        """After a failed sync no later one can be believed: what failed is clean in the cache, and gone."""
        if self.view.state.flags & state.FAILED or self.failed:
            raise StorageFailed(
                f"an earlier sync of {self.view.paths.root} failed, so it takes no more rows",
                hint="check the disk, then run `virta doctor --repair`",
            )

    def recover(self) -> None:
        """See to what a crash left. The lock is held."""
        if self.view.state.counter <= state.NEW:
            self._settle_names()
        found = recovery.recover(self.view, self.lock.descriptor)
        self._producers = None
        self.recovered = True
        self._retake_tip()
        if found.cut_bytes or found.cut_headers:
            self.write_control({"event": "recovered", **found.event()})

    def _settle_names(self) -> None:
        """The first one ever to write here: who made the topic may have died before its name would last."""
        for directory in self.view.paths.directories:
            self.settle_name(directory)

    def settle_name(self, directory: Path) -> None:
        """Make the names in a directory last. The lock is held."""
        try:
            sync_directory(self.files, directory)
        except SyncFailed:
            self.mark_failed()
            raise

    def _retake_tip(self) -> None:
        """The next block follows what the view knows."""
        tip, view = self.tip, self.view
        tip.offset = view.next_offset
        tip.head = view.head
        tip.position = view.data_end
        tip.timestamp = view.last_timestamp

    # -- stamping and writing -----------------------------------------------------------------

    def commit(self, appends: list[Append]) -> None:
        """Append all of them, or give each its error. The lock is taken and let go here."""
        self._visible.clear()
        try:
            self.acquire()
            try:
                self.stamp(appends)
                self.write_waiting()
            finally:
                self.release()
        except (VirtaError, TopicChanged) as error:
            self._fail(appends, error)
        except OSError as error:
            self._fail(appends, storage_error(error, self.view.paths.root, "appending to"))
        except BaseException as error:  # the caller was interrupted
            if self.waiting:
                self._give_up(error)
            self.release()
            self._fail(appends, error)
            raise

    def _fail(self, appends: list[Append], error: BaseException) -> None:
        for append in appends:
            if append.duplicate or append.error is not None or id(append.block) in self._visible:
                continue
            append.block = None
            append.error = error

    def commit_one(self, append: Append) -> None:
        """As `commit`, for one block: the path of rows that come one at a time.

        Nothing is done differently; what `commit` does in many steps stands here in one,
        for the case that nothing happened since the last append. Otherwise `commit` does it.
        """
        if not self.commit_one_now(append, wait=True):
            self.commit([append])

    def commit_one_now(self, append: Append, *, wait: bool = False) -> bool:
        """As `commit_one`; False where `commit` has to do it, or another process holds the lock."""
        view, files = self.view, self.files
        active = view.active
        lock = self.lock
        if self.holding or not self.recovered or self.failed or append.prepared.size >= _SIZE_LIMIT:
            return False
        try:
            if wait:
                lock.acquire()
            elif not lock.try_acquire():
                return False
            try:
                if (
                    files.pread(view.lock_descriptor, state.READ_SIZE, 0) == view.state_bytes
                    and (
                        files.seek(active.data_descriptor, 0, os.SEEK_END) == view.data_end
                        or room.ends(files, active.data_descriptor, view.data_end)
                    )
                    and files.seek(active.chain_descriptor, 0, os.SEEK_END) == view.blocks * HEADER_SIZE
                    and view.data_end < self.segment_bytes
                    and not view.state.flags
                    and view.state.generation == view.manifest.generation  # else a roll was cut short
                    and append.topic_version == view.state.topic_version
                ):
                    if not self._is_judged(append, view.next_offset):
                        self._write_one(append, active)
                    return True
            finally:
                lock.release()
        except OSError as error:
            append.error = storage_error(error, view.paths.root, "appending to")
            return True
        except (VirtaError, RowsAlreadyThere) as error:
            append.error = error
            return True
        return False

    def _is_judged(self, append: Append, next_offset: int) -> bool:
        """Whether its rows are there already; raises what its producer or its condition says against it."""
        if append.producer:
            rows = append.prepared.rows
            there = producers.judge(
                self.producers.get(append.producer),
                epoch=append.producer_epoch,
                sequence=append.sequence,
                rows=rows,
            )
            if there == rows:
                append.duplicate = True
                return True
            if there:
                raise RowsAlreadyThere(there)
        # after the producer's rows: sent again, they meet the offset that they made themselves
        if append.expected_offset is not None and append.expected_offset != next_offset:
            raise Conflict(expected=append.expected_offset, actual=next_offset)
        return False

    def _write_one(self, append: Append, active: Segment) -> None:
        view, files = self.view, self.files
        previous = view.head
        now = self.clock.now_us()
        stamped = block.stamp(
            append.prepared,
            view.next_offset,
            now if now > view.last_timestamp else view.last_timestamp,
            previous,
            view.data_end,
            active.entry.schema_version,
            view.state.epoch,
            append.producer,
            append.sequence & 0xFFFFFFFF,
            append.producer_epoch,
        )
        parts = stamped.parts
        try:
            if len(parts) > 1:
                write_parts(files, active.data_descriptor, parts, view.data_end)
            elif files.pwrite(active.data_descriptor, parts[0], view.data_end) != stamped.header.length:
                write_fully(files, active.data_descriptor, parts[0], view.data_end)
            if (
                files.pwrite(active.chain_descriptor, stamped.record, view.blocks * HEADER_SIZE)
                != HEADER_SIZE
            ):
                write_fully(files, active.chain_descriptor, stamped.record, view.blocks * HEADER_SIZE)
        except BaseException as error:
            self._give_up(error)
            if not isinstance(error, OSError) or view.head != stamped.header.hash:
                raise
            # readers see it all the same, so it is appended
        else:
            view.blocks += 1
            view.take(stamped.header)
        if view.data_end > self.room.until:
            self.room.make(view, stamped.header.length, self.segment_bytes)
        append.block = StoredBlock(stamped.header, previous, parts, active.schema)
        if append.producer:
            self.producers.follow(stamped.header)

    def stamp(self, appends: list[Append]) -> None:
        """Give each block its place; they wait to be written. The lock is held."""
        if self.tip.position >= self.segment_bytes:
            self.write_waiting()
            self.roll()
        now = self.clock.now_us()
        for append in appends:
            try:
                self._stamp_one(append, now)
            except (VirtaError, TopicChanged, RowsAlreadyThere) as error:
                append.error = error

    def _stamp_one(self, append: Append, now: int) -> None:
        tip = self.tip
        view = self.view
        version = view.state.topic_version
        if append.topic_version != version:
            raise TopicChanged
        if self._is_judged(append, tip.offset):
            return
        append.block = self._stamp_block(
            append.prepared, now, append.producer, append.sequence & 0xFFFFFFFF, append.producer_epoch
        )
        if append.producer:
            self.producers.follow(append.block.header)

    def _stamp_block(
        self, prepared: Prepared, now: int, producer: int = 0, sequence: int = 0, producer_epoch: int = 0
    ) -> StoredBlock:
        """Stamp a block at the tip; it waits to be written."""
        tip = self.tip
        active = self.view.active
        if prepared.size >= _SIZE_LIMIT:
            raise block.too_large(prepared.size)
        timestamp = now if now > tip.timestamp else tip.timestamp
        stamped = block.stamp(
            prepared,
            base_offset=tip.offset,
            timestamp=timestamp,
            previous=tip.head,
            position=tip.position,
            schema_version=active.entry.schema_version,
            epoch=self.view.state.epoch,
            producer=producer,
            sequence=sequence,
            producer_epoch=producer_epoch,
        )
        header = stamped.header
        stored = StoredBlock(header, tip.head, stamped.parts, active.schema)
        self.waiting.append((stamped, stored))
        tip.offset += header.span
        tip.head = header.hash
        tip.position += header.length
        tip.timestamp = timestamp
        return stored

    def write_waiting(self) -> None:
        """Write what was stamped: all blocks, then all headers."""
        waiting = self.waiting
        if not waiting:
            return
        view = self.view
        try:
            if len(waiting) == 1:
                stamped = waiting[0][0]
                parts, headers = stamped.parts, stamped.record
            else:
                parts = [part for stamped, _ in waiting for part in stamped.parts]
                headers = b"".join([stamped.record for stamped, _ in waiting])
            if len(parts) == 1:
                write_fully(self.files, view.active.data_descriptor, parts[0], view.data_end)
            else:
                write_parts(self.files, view.active.data_descriptor, parts, view.data_end)
            write_fully(self.files, view.active.chain_descriptor, headers, view.blocks * HEADER_SIZE)
        except BaseException as error:
            self._give_up(error)
            raise
        view.blocks += len(waiting)
        view.take(waiting[-1][0].header)
        self.waiting = []
        self.promised = 0
        if view.data_end > self.room.until:
            self.room.make(view, waiting[-1][0].header.length, self.segment_bytes)

    def trim(self) -> None:
        """Give room back, if the files end where this process knows them to end. The lock is held."""
        view, files = self.view, self.files
        if files.size(view.active.chain_descriptor) == view.blocks * HEADER_SIZE and room.ends(
            files, view.active.data_descriptor, view.data_end
        ):
            self.room.give_back(view)

    def _give_up(self, error: BaseException) -> None:
        """A write failed: keep the headers that became visible, cut off the rest."""
        view = self.view
        waiting, self.waiting = self.waiting, []
        promised, self.promised = self.promised, 0
        before = view.blocks
        self._producers = None
        self.recovered = False  # whatever cannot be undone now is recovery's work before the next append
        with contextlib.suppress(OSError, VirtaError):
            view.refresh()
            self.files.truncate(view.active.chain_descriptor, view.blocks * HEADER_SIZE)
            self.files.truncate(view.active.data_descriptor, view.data_end)
        kept = max(0, view.blocks - before)
        self._visible = {id(stored) for _, stored in waiting[:kept]}
        if kept < promised and self.on_lost is not None:
            lost = waiting[kept:promised]
            self.on_lost(lost[0][0].header.base_offset, lost[-1][0].header.end_offset, error)

    def write_control(self, event: dict[str, Any], **fields: int) -> StoredBlock:
        """Write a control block. The lock is held and nothing waits."""
        prepared = encode.prepare_control(user_schema(self.view.active.schema), event)
        stored = self._stamp_block(prepared, self.clock.now_us(), **fields)
        self.write_waiting()
        self.controls.append(stored)
        return stored

    def waiting_bytes(self) -> int:
        return sum(stamped.header.length for stamped, _ in self.waiting)

    def take_controls(self) -> list[StoredBlock]:
        """The control blocks written since the last call."""
        taken, self.controls = self.controls, []
        return taken

    # -- producers ----------------------------------------------------------------------------

    @property
    def producers(self) -> Producers:
        if self._producers is None:
            self._producers = load_producers(self.view)
            for _, stored in self.waiting:
                self._producers.follow(stored.header)
        return self._producers

    def _forget_producers(self) -> None:
        """Headers were passed over unseen: the snapshot is read again when it is needed."""
        self._producers = None

    def _follow_producer(self, header: Header) -> None:
        if self._producers is not None:
            self._producers.follow(header)

    def claim_producer(self, name: str) -> tuple[int, int, int]:
        """Make this writer the holder of a name: its id, epoch and rows sent so far."""
        number = producers.producer_id(name)
        self.acquire()
        try:
            self.write_waiting()
            known = self.producers.get(number)
            epoch = known.epoch + 1
            if epoch > producers.EPOCH_LIMIT:
                raise Fenced(
                    f"the producer name {name!r} was taken over {known.epoch} times, the most there can be",
                    hint="go on with another producer name",
                )
            stored = self.write_control(
                {"event": "producer", "name": name, "epoch": epoch, "count": known.count},
                producer=number,
                producer_epoch=epoch,
                sequence=known.count & 0xFFFFFFFF,
            )
            self.producers.follow(stored.header)
            return number, epoch, known.count
        finally:
            self.release()

    # -- durability -----------------------------------------------------------------------------

    def position(self) -> Synced:
        """What a sync started now will cover: segment, offset, blocks, data length, head."""
        view = self.view
        return view.active, view.next_offset, view.blocks, view.data_end, view.head

    def sync_data(self, segment: Segment) -> None:
        """Sync the data file. Takes no lock: appends go on meanwhile."""
        self.files.sync(segment.data_descriptor)

    def mark_synced(self, covered: Synced) -> None:
        """Move the watermark to what a finished sync covers."""
        segment, offset, blocks, length, head = covered
        self.lock_only()
        try:
            view = self.view
            view.refresh()
            self._check_usable(view.state)
            self._finish_roll()
            if view.active is segment and view.state.synced_offset <= offset:
                self.write_state(
                    synced_offset=offset,
                    synced_blocks=blocks,
                    synced_length=length,
                    synced_hash=head,
                    inode=self.files.identity_of(segment.data_descriptor)[1],
                )
        finally:
            self.release()

    def lock_only(self) -> None:
        """Take the lock without looking at what is to be recovered."""
        if not self.holding:
            self.lock.acquire()
            self.holding = True

    def mark_failed(self) -> None:
        """A sync failed: nobody may believe that what is in the page cache will last."""
        self.failed = True
        was_holding = self.holding
        with contextlib.suppress(OSError, VirtaError):  # then at least this process knows
            self.lock_only()
            try:
                self.view.refresh()
                self.write_state(flags=self.view.state.flags | state.FAILED)
            finally:
                if not was_holding:
                    self.release()

    def write_state(self, **changes: Any) -> None:
        view = self.view
        view.state = state.write(self.files, self.lock.descriptor, dataclasses.replace(view.state, **changes))

    # -- segments ----------------------------------------------------------------------------------

    def roll(self, schema_version: int | None = None) -> None:
        """Seal the active segment and begin a new one. The lock is held and nothing waits."""
        try:
            self._roll(schema_version)
        except SyncFailed:
            self.mark_failed()
            raise

    def _roll(self, schema_version: int | None) -> None:
        view = self.view
        old = view.active
        self.room.give_back(view)
        sync_file(self.files, old.data_descriptor)
        sync_file(self.files, old.chain_descriptor)
        sealed = seal_entry(view)
        version = schema_version or old.entry.schema_version
        entry = Entry(
            base=view.next_offset,
            generation=0 if view.next_offset > old.entry.base else old.entry.generation + 1,
            schema_version=version,
            previous_hash=view.head,
            schema_digest=schema_digest(view.schema_of(version)),
        )
        event = {
            "event": "segment",
            "schema_version": version,
            "schema": entry.schema_digest.hex(),
            "producers": self.producers.snapshot(self.clock.now_us()),
        }
        opening = create_segment(
            self.files,
            view.paths,
            entry,
            view.schema_of(version),
            event,
            timestamp=max(self.clock.now_us(), view.last_timestamp),
            epoch=view.state.epoch,
        )
        following = Manifest(
            generation=view.manifest.generation + 1,
            segments=(*view.manifest.segments[:-1], sealed, entry),
        )
        # the record first: a process that sees the new generation reads the manifest again, old or new
        self.write_state(generation=following.generation)
        manifest.save(self.files, view.paths.manifest, following)
        view.reload_manifest()
        self._begin_watermark()
        self._retake_tip()
        self.controls.append(opening)

    def _finish_roll(self) -> None:
        """If a writer died between the manifest and the watermark, the new names may not last yet."""
        view = self.view
        if view.state.is_of(view.active.entry):
            return
        self.settle_name(view.paths.root)
        self._begin_watermark()

    def _begin_watermark(self) -> None:
        entry = self.view.active.entry
        self.write_state(
            generation=self.view.manifest.generation,
            segment_base=entry.base,
            segment_generation=entry.generation,
            synced_offset=entry.base,
            synced_blocks=0,
            synced_length=0,
            synced_hash=entry.previous_hash,
        )

    def close(self) -> None:
        self.is_closed = True
        self.lock.close()


def seal_entry(view: View) -> Entry:
    """The manifest's entry for the active segment, now that it is complete."""
    headers = chain.as_array(view.active.read_chain(0, view.blocks * HEADER_SIZE))
    return view.active.entry._replace(
        end=view.next_offset,
        blocks=view.blocks,
        rows=int(headers["rows"].sum()),
        data_length=view.data_end,
        min_timestamp=int(headers["min_timestamp"].min()),
        max_timestamp=int(headers["max_timestamp"].max()),
        last_hash=view.head,
    )


def load_producers(view: View) -> Producers:
    """The snapshot that opens the active segment, and the headers since."""
    known = Producers()
    if view.blocks == 0:
        return known
    first = view.active.read_blocks(0, 1, max_bytes=1)[0]
    event = block.event_of(first.data) or {}
    known.load(event.get("producers", ()))
    headers = chain.as_array(view.active.read_chain(0, view.blocks * HEADER_SIZE))
    for index in headers["producer"].nonzero()[0]:
        known.follow(view.active.headers(view.blocks).header(int(index)))
    return known
