"""A partition in one process: every handle, reader and writer of this process shares one object.

Appends queue here; the thread that gets the commit lock commits for all who wait. The
writing side and the reading side look at the files through views of their own, so a
writer that waits for another process never holds up a reader. What this process wrote
goes into the tail buffer, from which readers near the end are served.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from virta.clock import Clock
from virta.errors import Closed, Corrupt, HistoryChanged, NotFound, StorageFailed, VirtaError
from virta.memory.dumper import Dumper
from virta.memory.sources import newest_source
from virta.memory.syncing import Syncing
from virta.memory.tail import Budget, TailBuffer
from virta.memory.turns import Turns
from virta.memory.waiting import wait_for_files
from virta.memory.wake import Watch, process_wakeups
from virta.settings import Settings
from virta.storage import statistics
from virta.storage.commit import Append, Committer
from virta.storage.files import Files, storage_error
from virta.storage.filesystem import check_writable_place
from virta.storage.layout import PartitionPaths
from virta.storage.segment import StoredBlock
from virta.storage.view import Identity, Stretch, View
from virta.types import Durability, Stats, Token

# A scan begins with little, since a look-up wants one row, and reads four times as much at each step.
_FIRST_READ_BYTES = 64 * 1024


class Partition:
    def __init__(
        self,
        files: Files,
        paths: PartitionPaths,
        identity: Identity,
        schema_of: Callable[[int], pa.Schema],
        *,
        clock: Clock,
        settings: Settings,
        budget: Budget,
        dumper: Dumper,
        segment_bytes: int,
    ) -> None:
        self.files = files
        self.paths = paths
        self.identity = identity
        self.settings = settings
        self.segment_bytes = segment_bytes
        self._schema_of = schema_of
        self._clock = clock
        self._dumper = dumper
        self.tail = TailBuffer(settings.tail_bytes_per_partition, budget)
        self.watch = Watch(paths.root)
        # reading side
        self._reading = _ReadingLock(self.paths.root)
        self._view = self._open_view(write=False)
        self._path_checked = 0.0
        # writing side
        self._queue: deque[list[Append]] = deque()
        self._committing = threading.Lock()
        self._committer: Committer | None = None
        self._syncing = self._begin_syncing()
        self._turns = Turns(self._settle, self.sync)
        self._failure: VirtaError | None = None
        self._closed: str | None = None
        self._shared: dict[str, Any] = {}
        self._recover_after_boot()

    def _begin_syncing(self) -> Syncing:
        return Syncing(
            self.paths.root,
            self.settings,
            committing=self._committing,
            committer=self.committer,
            dump=self._dump,
            expect=lambda: self._dumper.expect(self),
            hurry=self._dumper.hurry,
        )

    def _recover_after_boot(self) -> None:
        """Rows acknowledged at `disk` may be missing in the chain file, which is not synced.

        So the first one to open after a boot brings them back, reader or writer. Where that
        cannot be done (a medium that is read-only, damage), what verifies can still be read.
        """
        if self._view.state.is_checked_in(self.files.boot_id()):
            return
        with contextlib.suppress(VirtaError, OSError), self.writing():
            pass
        with contextlib.suppress(VirtaError):
            self.refresh()

    def _open_view(self, *, write: bool) -> View:
        try:
            return View(self.files, self.paths, self.identity, self._schema_of, write=write)
        except FileNotFoundError as error:
            raise NotFound(f"{error.filename} is missing: this is not a whole partition") from error
        except OSError as error:
            raise storage_error(error, self.paths.root, "opening") from error

    # -- appending ------------------------------------------------------------------------------

    def append(self, appends: list[Append], durability: Durability) -> None:
        """Append these blocks together at this durability; raises what went wrong with the first."""
        if self._closed is not None:
            raise Closed(self._closed)
        self._queue.append(appends)
        if durability is Durability.DISK:
            self._turns.append(appends)
        else:
            self._settle(appends, durability)
        for append in appends:
            if append.error is not None:
                raise append.error

    def _settle(self, appends: list[Append], durability: Durability = Durability.DISK) -> None:
        """Commit what is queued until these blocks have their place or their error."""
        last = appends[-1]
        with self._committing:
            while not last.done:
                self._commit_queued(durability)

    def append_alone(self, decide: Callable[[], list[Append]], durability: Durability) -> None:
        """Append what `decide` says, which may look at the partition: until then nobody else appends."""
        with self.writing() as committer:
            appends = decide()
            committer.commit(appends)
            self.tail.offer([append.block for append in appends if append.block is not None])
        for append in appends:
            if append.error is not None:
                raise append.error
            self._syncing.note(append.prepared.size)
        if durability is Durability.DISK:
            self.sync(None if appends[-1].block is None else appends[-1].block.header.end_offset)

    def append_one(self, append: Append, durability: Durability) -> None:
        """As `append`, for one block without conditions; the shortest way when nobody else is at it."""
        if durability is Durability.DISK:
            return self._append_one_to_disk(append)
        if durability is Durability.MEMORY or not self._commit_at_once(append):
            return self.append([append], durability)
        if append.block is None:
            assert append.error is not None
            raise append.error
        return None

    def _append_one_to_disk(self, append: Append) -> None:
        turns = self._turns
        if not turns.begin_alone():
            return self.append([append], Durability.DISK)
        try:
            if not self._commit_at_once(append):
                if self._closed is not None:
                    raise Closed(self._closed)
                self._queue.append([append])
                self._settle([append])
            stored = append.block
            if stored is None:
                assert append.error is not None
                raise append.error
            self.sync(stored.header.end_offset)
        finally:
            turns.end()
        return None

    def _commit_at_once(self, append: Append, *, wait: bool = True) -> bool:
        """Commit one block if nobody else is at it and nothing has to be found out first.

        Without `wait` another process that holds the partition counts as somebody at it.
        """
        committing = self._committing
        if self._queue or not committing.acquire(blocking=False):
            return False
        try:
            committer = self._committer
            if committer is None or self._failure is not None:
                return False
            if wait:
                committer.commit_one(append)
            elif not committer.commit_one_now(append):
                return False
            if committer.controls:
                self.tail.offer(committer.take_controls())
            stored = append.block
            if stored is not None:
                self.tail.offer_one(stored)
                self._syncing.note(append.prepared.size)
        finally:
            committing.release()
        return True

    def claim(self, name: str) -> tuple[int, int, int]:
        """Become the holder of a producer's name: its number, epoch, and rows sent so far."""
        with self.writing() as committer:
            return committer.claim_producer(name)

    def newest_source(self, producer: int) -> str | None:
        """The newest position that a producer's blocks tell of their source."""
        return newest_source(self, producer)

    def append_now(self, appends: list[Append], durability: Durability) -> bool:
        """As `append` without its sync, unless it would have to wait: then False, and nothing happened.

        For event loops. What became of each append stands in it; nothing is raised for them.
        """
        if self._closed is not None:
            return False
        if len(appends) == 1 and durability is Durability.OS and self._commit_at_once(appends[0], wait=False):
            return True
        if self._queue or not self._committing.acquire(blocking=False):
            return False
        try:
            committer = self._committer
            if committer is None or self._failure is not None:
                return False
            try:
                if not committer.try_acquire():
                    return False
            except (VirtaError, OSError):
                return False  # `append` meets it again, and says it to each
            self._queue.append(appends)
            while not appends[-1].done:
                self._commit_queued(durability)
            return True
        finally:
            self._committing.release()

    def _commit_queued(self, durability: Durability) -> None:
        """Commit what has gathered, this thread's append among it."""
        queue = self._queue
        appends = queue.popleft()
        size = sum(append.prepared.size for append in appends)
        if queue:
            appends = list(appends)
            while queue and len(appends) < self.settings.commit_appends and size < self.settings.commit_bytes:
                more = queue.popleft()
                appends += more
                size += sum(append.prepared.size for append in more)
        if self._failure is not None:
            for append in appends:
                append.error = self._failure
            return
        try:
            committer = self._committer or self.committer()
            if durability is Durability.MEMORY:
                self._commit_to_memory(committer, appends)
                return
            committer.commit(appends)
        except OSError as error:
            failure = storage_error(error, self.paths.root, "appending to")
            for append in appends:
                if not append.done:
                    append.error = failure
            return
        except BaseException as error:
            for append in appends:
                if not append.done:
                    append.error = error
            raise
        blocks = [append.block for append in appends if append.block is not None]
        if committer.controls:
            self.tail.offer(committer.take_controls())
        if blocks:
            self.tail.offer(blocks)
            self._syncing.note(size)

    def _commit_to_memory(self, committer: Committer, appends: list[Append]) -> None:
        """Stamp and show the rows; the dumper writes them. The lock is kept until it has."""
        committer.acquire()
        try:
            committer.stamp(appends)
        finally:
            if not committer.waiting:
                committer.release()
        if committer.controls:
            self.tail.offer(committer.take_controls())
        blocks = [append.block for append in appends if append.block is not None]
        if not blocks:
            return
        committer.promised = len(committer.waiting)
        self.tail.offer(blocks, on_disk=False)
        process_wakeups().ring(self.watch)
        if committer.waiting_bytes() >= self.settings.dump_bytes:
            self._dump(committer)
        else:
            self._dumper.expect(self)

    def committer(self) -> Committer:
        """The writing side, opened at the first append. The commit lock is held."""
        if self._committer is None:
            check_writable_place(self.paths.root, force=self.settings.force_network_file_system)
            view = self._open_view(write=True)
            try:
                self._committer = Committer(view, self._clock, segment_bytes=self.segment_bytes)
            except OSError as error:
                view.close()
                raise storage_error(error, self.paths.root, "opening") from error
            except BaseException:
                view.close()
                raise
            self._committer.on_lost = self._rows_lost
        return self._committer

    def writing(self) -> _Writing:
        """The committer with this process's commit lock held: for rolls, claims and state changes."""
        return _Writing(self)

    def mark(self, flags: int) -> None:
        """Set flags in the state record, also where nothing may be appended any more."""
        with self._committing:
            self._check_open()
            committer = self.committer()
            if committer.waiting:
                self._dump(committer)
            try:
                committer.lock_only()
                try:
                    committer.view.refresh()
                    committer.write_state(flags=committer.view.state.flags | flags)
                finally:
                    committer.release()
            except OSError as error:
                raise storage_error(error, self.paths.root, "writing to") from error

    # -- dumping and syncing -------------------------------------------------------------------------

    def dump(self) -> None:
        """Write what waits in memory."""
        with self._committing:
            if self._committer is not None and self._committer.waiting:
                self._dump(self._committer)

    def _dump(self, committer: Committer) -> None:
        size = committer.waiting_bytes()
        try:
            try:
                committer.write_waiting()
            finally:
                committer.release()
        except OSError as error:
            failure = self._failure or storage_error(error, self.paths.root, "writing rows from memory to")
            raise failure from error
        self.tail.dumped()
        self._syncing.note(size)

    def _rows_lost(self, first: int, end: int, error: BaseException) -> None:
        """Rows that were acknowledged in memory could not be written, whoever tried to."""
        reason = error
        if isinstance(error, OSError):
            reason = storage_error(error, self.paths.root, "writing rows from memory to")
        self._failure = StorageFailed(
            f"rows {first} to {end - 1} were acknowledged in memory and are lost: {reason}",
            hint="the partition takes no more rows in this process; open the log again to go on",
        )
        self.tail.clear()

    def sync(self, offset: int | None = None) -> None:
        """Make rows durable on disk: up to the offset, or all there are."""
        self._syncing.sync(offset)

    def background(self, now: float) -> float | None:
        """The dumper's turn: write what waits in memory, sync what is due; seconds until there is more."""
        if self._committer is not None and self._committer.waiting:
            self.dump()
        return self._syncing.background(now)

    @contextlib.contextmanager
    def _as_storage_error(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error(error, self.paths.root, doing) from error

    # -- reading ---------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Look for what is new in the files."""
        with self._reading:
            return self._refresh()

    def _refresh(self) -> bool:
        self._check_open()
        cuts, rewrites = self._view.cuts, self._view.rewrites
        try:
            changed = self._view.refresh()
        except OSError as error:
            raise storage_error(error, self.paths.root, "reading") from error
        if self._view.cuts != cuts:
            self.tail.clear()
        elif self._view.rewrites != rewrites:
            self.tail.forget_before(self._view.manifest.active.base)  # rows may have been erased
        return changed

    def _check_open(self) -> None:
        if self._closed is not None:
            raise Closed(self._closed)

    def _is_in_place(self) -> bool:
        return self.files.identity(self.paths.lock) == self.files.identity_of(self._view.lock_descriptor)

    def check_present(self) -> None:
        """That the directory is still the one that was opened."""
        if not self._is_in_place():
            raise NotFound(
                f"{self.paths.root} was removed or replaced while it was open",
                hint="close the log and open it again",
            )

    def read(
        self, offset: int, *, max_bytes: int, end: int | None = None, verify: bool = True
    ) -> list[StoredBlock]:
        """Blocks from the one that holds the offset on, control blocks among them; none at the end.

        With `end`, none that begin behind it are read from disk.
        """
        blocks = self.tail.read(offset, max_bytes=max_bytes)
        if blocks:
            return blocks
        with self._reading:
            if offset >= self._view.next_offset:
                self._refresh()
            if offset >= self._view.next_offset:
                return []
            if offset < self._view.start_offset:
                raise self._view.removed(offset)
            newest = self._view.next_offset
            stretch = self._view.plan(offset, newest if end is None else max(end, offset + 1), most=1)[0]
            generation = self._view.manifest.generation
        blocks = self.read_stretch(stretch, max_bytes=max_bytes, verify=verify)
        if blocks[-1].header.end_offset == newest and self._view.manifest.generation == generation:
            self.tail.offer(blocks)
        return blocks

    def scan(
        self,
        start: int,
        end: int,
        *,
        max_bytes: int,
        verify: bool = True,
        narrow: Callable[[Stretch], list[Stretch]] | None = None,
    ) -> Iterator[list[StoredBlock]]:
        """The blocks that hold the rows from `start` up to `end`; `narrow` may leave some out."""
        offset = start
        size = min(max_bytes, _FIRST_READ_BYTES)
        while offset < end:
            stretch = None if narrow is None else self._stretch(offset, end)
            if stretch is None or narrow is None:
                blocks = self.read(offset, max_bytes=size, end=end, verify=verify)
                if not blocks:
                    return
                yield blocks
                offset = blocks[-1].header.end_offset
                size = min(max_bytes, 4 * size)
                continue
            for piece in narrow(stretch):
                at = piece.start
                while at < piece.stop:
                    part = dataclasses.replace(piece, start=at)
                    blocks = self.read_stretch(part, max_bytes=max_bytes, verify=verify)
                    yield blocks
                    at += len(blocks)
            offset = stretch.segment.headers(stretch.stop).header(stretch.stop - 1).end_offset

    def _stretch(self, offset: int, end: int) -> Stretch | None:
        """The first stretch of blocks on disk from the offset on; None where none are on disk yet."""
        with self._reading:
            if offset < self._view.start_offset:
                raise self._view.removed(offset)
            found = self._view.plan(offset, end, most=1)
            return found[0] if found else None

    def narrowed(
        self, stretch: Stretch, columns: frozenset[str], may_match: statistics.MayMatch
    ) -> list[Stretch]:
        """The stretch without blocks whose statistics say that no row of them can match."""
        return statistics.narrow(self.files, self.paths, stretch, columns, may_match)

    def read_stretch(self, stretch: Stretch, *, max_bytes: int, verify: bool = True) -> list[StoredBlock]:
        """Execute a piece of a plan; holds nothing up."""
        try:
            return stretch.segment.read_blocks(
                stretch.start, stretch.stop, max_bytes=max_bytes, verify=verify
            )
        except OSError as error:
            raise storage_error(error, stretch.segment.data_path, "reading") from error
        except Corrupt as error:
            with self._reading:
                cuts = self._view.cuts
                self._refresh()
                if self._view.cuts != cuts:
                    raise HistoryChanged(
                        "rows that were being read were cut by a recovery",
                        oldest=self.token_at(self._view.start_offset, locked=True),
                        topic=self.identity.topic,
                        partition=self.identity.number,
                        file=str(stretch.segment.data_path),
                    ) from error
                mended = self._view.mended(error)
            if mended is not None:
                return mended.read_blocks(stretch.start, stretch.stop, max_bytes=max_bytes, verify=verify)
            error.topic = self.identity.topic
            error.partition = self.identity.number
            raise

    def plan(self, start: int, end: int) -> list[Stretch]:
        """Where the rows from `start` up to `end` lie on disk."""
        with self._reading:
            self._refresh()
            return self._view.plan(start, end)

    def check_token(self, token: Token) -> None:
        if self._is_in_tail(token):
            return
        with self._reading:
            self._refresh()
            self._view.check_token(token)

    def _is_in_tail(self, token: Token) -> bool:
        newest = self.tail.newest()
        if newest is not None and newest.header.end_offset == token.offset:
            return newest.header.hash == token.hash
        found = self.tail.read(token.offset, max_bytes=1)
        return bool(found) and found[0].previous == token.hash

    def token_at(self, offset: int, *, locked: bool = False) -> Token:
        """The token of the row at this offset, or of the next one to come."""
        newest = self.tail.newest()
        if newest is not None and newest.header.end_offset == offset:
            hash_ = newest.header.hash
        elif (found := self.tail.read(offset, max_bytes=1)) and not found[0].header.is_rewritten:
            hash_ = found[0].previous
        elif locked:
            hash_ = self._view.hash_before(offset)
        else:
            with self._reading:
                hash_ = self._view.hash_before(offset)
        return Token(partition=self.identity.number, offset=offset, hash=hash_)

    def wait(self, offset: int, timeout: float | None) -> bool:
        """Wait until there is a row at the offset; False when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return process_wakeups().wait(self.watch, lambda: self.has_row(offset), deadline)

    def has_row(self, offset: int) -> bool:
        """Whether there is a row at the offset; if not, the next one to come will wake whoever waits."""
        if self.tail.end_offset > offset:
            return True
        wakeups = process_wakeups()
        with self._reading:
            self._check_open()
            active = self._view.active
            wakeups.arm(self.watch, active.chain_path)
            self._refresh()
            if self._view.next_offset > offset:
                self._take_newest()
                return True
            if self._view.active is not active:
                wakeups.arm(self.watch, self._view.active.chain_path)
            if self._view.next_offset < offset and self.tail.end_offset < offset:
                raise HistoryChanged(
                    f"the log ends at offset {self._view.next_offset}, before {offset}, waited for",
                    oldest=self.token_at(self._view.start_offset, locked=True),
                    topic=self.identity.topic,
                    partition=self.identity.number,
                )
            self._check_present_sometimes()
        return False

    def when_there(self, offset: int, answer: Callable[[BaseException | None], None]) -> Callable[[], None]:
        """Have somebody told once a row is at the offset, or what went wrong; gives how to stop that."""
        from virta.memory.waiters import process_waiters  # which looks at partitions itself

        waiters = process_waiters()
        waiter = waiters.add(self, offset, answer)
        return lambda: waiters.remove(waiter)

    @staticmethod
    def wait_with_others(places: Sequence[tuple[Partition, int]], timeout: float | None) -> bool:
        """Wait until one of several partitions, all of one kind, has a row at its offset."""
        return wait_for_files(places, timeout)

    def _take_newest(self) -> None:
        """Put the blocks that were waited for into the tail buffer, where their reader finds them."""
        try:
            blocks = self._view.newest_blocks()
        except (OSError, Corrupt):
            return  # whoever reads them is told
        if blocks:
            self.tail.offer(blocks)

    def mark_of_now(self) -> tuple[int, ...]:
        """Changes with everything that readers can see here: to know by one look that nothing happened."""
        with self._reading:
            self._refresh()
            view = self._view
            return view.manifest.generation, view.blocks, view.cuts, view.next_offset, self.tail.end_offset

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """What all handles of this partition in this process have in common, made by the first of them."""
        found = self._shared.get(name)
        return found if found is not None else self._shared.setdefault(name, make())

    @property
    def happenings(self) -> int:
        """Changes when something happens to the partition: told by notifications, not by looking."""
        return self.watch.sequence

    def _check_present_sometimes(self) -> None:
        now = time.monotonic()
        if now - self._path_checked > 0.5:
            self._path_checked = now
            self.check_present()

    # -- positions -----------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        self.refresh()
        return max(self._view.next_offset, self.tail.end_offset)

    @property
    def start_offset(self) -> int:
        self.refresh()
        return self._view.start_offset

    @property
    def durable_offset(self) -> int:
        self.refresh()
        known = self._view.state
        active = self._view.manifest.active
        synced = known.synced_offset if known.segment_base == active.base else active.base
        return max(self._syncing.offset, synced)

    @property
    def head(self) -> bytes:
        with self._reading:
            self._refresh()
            newest = self.tail.newest()
            if newest is not None and newest.header.end_offset > self._view.next_offset:
                return newest.header.hash
            return self._view.head

    def first_offset_at(self, timestamp: int) -> int:
        """The first offset whose row is not older than the timestamp."""
        with self._reading:
            self._refresh()
            found = self._view.first_offset_at(timestamp)
        if found >= self._view.next_offset and self.tail.end_offset > found:
            for block in self.tail.read(found, max_bytes=1 << 62):
                if block.header.span and block.header.max_timestamp >= timestamp:
                    return block.header.base_offset
            return self.tail.end_offset
        return found

    def view(self) -> _Reading:
        """The reading view with its lock held: for statistics and verification."""
        return _Reading(self)

    @property
    def topic_version(self) -> int:
        """The version of the topic that is in force here, as far as has been looked."""
        return self._view.state.topic_version

    @property
    def row_count(self) -> int:
        """How many rows there are: fewer than offsets where rows were compacted or erased."""
        with self._reading:
            self._refresh()
            sealed = sum(entry.rows for entry in self._view.manifest.segments[:-1])
            base = self._view.manifest.active.base
            return sealed + max(self._view.next_offset, self.tail.end_offset) - base

    def count(self, start: int, end: int) -> int:
        """How many rows have offsets from `start` up to `end`, from the chain where that can tell."""
        with self._reading:
            gaps = any(entry.rows < entry.end - entry.base for entry in self._view.manifest.segments[:-1])
            if not gaps:
                return max(0, end - start)
            active = self._view.manifest.active.base
            stretches = self._view.plan(start, min(end, active)) if start < active else []
        return max(0, end - max(start, active)) + sum(
            stretch.segment.count_rows(stretch.start, stretch.stop, start, end) for stretch in stretches
        )

    def stats(self) -> Stats:
        with self._reading:
            self._refresh()
            view = self._view
            waiting = max(0, self.tail.end_offset - view.next_offset)
            sealed = view.manifest.segments[:-1]
            chain_rows = view.active_rows()
            bounds = self.tail.bounds()
            return Stats(
                rows=sum(entry.rows for entry in sealed) + chain_rows + waiting,
                bytes=sum(entry.data_length for entry in sealed) + view.data_end,
                blocks=sum(entry.blocks for entry in sealed) + view.blocks,
                segments=len(view.manifest.segments),
                start_offset=view.start_offset,
                next_offset=view.next_offset + waiting,
                oldest_in_memory=bounds[0] if bounds else None,
                newest_in_memory=bounds[1] - 1 if bounds else None,
                memory_bytes=bounds[2] if bounds else 0,
            )

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write and sync what waits, then let go of every file."""
        if self._closed is not None:
            return
        try:
            with self._as_storage_error("closing"):
                self.dump()
                if self._syncing.is_due and self._is_in_place():
                    self.sync()
                self._syncing.mark()
                self._give_back()
        finally:
            self._let_go("the log was closed")

    def _give_back(self) -> None:
        """Room reserved ahead goes back with the last holder here; where it cannot, sealing does it."""
        with self._committing:
            committer = self._committer
            if committer is None or not committer.room.until or not committer.lock.try_acquire():
                return
            try:
                committer.trim()
            finally:
                committer.lock.release()

    def _let_go(self, why: str) -> None:
        with self._committing, self._reading:
            self._closed = why
            process_wakeups().forget(self.watch)
            self.tail.clear()
            self._shared.clear()
            if self._committer is not None:
                self._committer.close()
                self._committer.view.close()
                self._committer = None
            self._view.close()

    def after_fork(self) -> None:
        """In a child: locks are not inherited, so let go of the parent's descriptors at once."""
        self._committing = threading.Lock()
        self._reading = _ReadingLock(self.paths.root)
        self._syncing = self._begin_syncing()
        self.tail = TailBuffer(self.settings.tail_bytes_per_partition, Budget(0))
        self._closed = "the log was opened before a fork; open it again in the child"
        if self._committer is not None:
            self._committer.close()
            self._committer.view.close()
            self._committer = None
        self._view.close()


class _Writing:
    """`with partition.writing() as committer`: the commit lock of this process, then the partition's."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __enter__(self) -> Committer:
        partition = self._partition
        partition._committing.acquire()
        try:
            partition._check_open()
            committer = partition.committer()
            try:
                committer.acquire()
                committer.write_waiting()
            except BaseException:
                committer.release()
                raise
        except OSError as error:
            partition._committing.release()
            raise storage_error(error, partition.paths.root, "writing to") from error
        except BaseException:
            partition._committing.release()
            raise
        return committer

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        partition = self._partition
        try:
            committer = partition._committer
            if committer is not None:
                committer.release()
                if committer.controls:
                    partition.tail.offer(committer.take_controls())
                partition.tail.dumped()
        finally:
            partition._committing.release()
        if isinstance(error, OSError):
            raise storage_error(error, partition.paths.root, "writing to") from error


class _ReadingLock:
    """The lock of the reading side; what the file system says meanwhile becomes an error of ours."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._lock.release()
        if isinstance(error, OSError):
            raise storage_error(error, self._root, "reading") from error


class _Reading:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __enter__(self) -> View:
        reading = self._partition._reading
        reading.__enter__()
        try:
            self._partition._refresh()
        except BaseException as error:
            reading.__exit__(type(error), error, error.__traceback__)
            raise
        return self._partition._view

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._partition._reading.__exit__(kind, error, trace)
