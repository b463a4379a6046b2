"""What a process knows of a partition: its segments, and the active chain as far as it has looked.

A view is filled from the manifest and the newest chain file's last header, so opening
costs the same for a log of any size. `refresh` looks for what others appended, rolled,
removed or, after a crash, cut. Readers take no lock:

 1. read the state record; a generation other than the manifest's: read that again (the
    record is written first, so it may take more than one look until the new one is
    there); another epoch: a recovery may have cut rows, so forget what was known of the
    active segment;
 2. take the chain file's length, rounded down to whole headers;
 3. each new header must follow from the hash known before it and begin where its
    predecessor ended. After another boot all headers are looked at (the chain file is
    not synced), above the synced watermark the bytes are hashed as well, and the first
    bad one ends what there is to see.

The object is not safe for several threads by itself: `memory.partition` guards it.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from blake3 import blake3

from virta.errors import Corrupt, HistoryChanged, UnavailableError
from virta.storage import block, chain, manifest, rebuild, state
from virta.storage.chain import HEADER_SIZE, Header
from virta.storage.files import Files
from virta.storage.layout import PartitionPaths
from virta.storage.manifest import Entry, Manifest
from virta.storage.segment import Segment, StoredBlock
from virta.storage.state import State
from virta.types import Token

# Sealed segments kept mapped per partition: no descriptors, and no memory but what is looked at.
_OPEN_SEALED = 128
_HEADERS_PER_READ = 8192
# A rewrite takes longer than a look, so a few looks are enough to meet segments that are in force.
_ATTEMPTS = 16
# As many headers are kept for readers that wait at the end; others find theirs in the chain file.
NEWEST_HEADERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which partition this is; genesis follows from it."""

    log_id: bytes
    topic_id: bytes
    topic: str
    number: int

    def genesis(self) -> bytes:
        return chain.genesis(self.log_id, self.topic_id, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Blocks `start` to `stop` of one segment: a piece of a plan, executed later on owned values."""

    segment: Segment
    start: int
    stop: int


class SegmentsMoved(UnavailableError):
    """A segment was rewritten while it was about to be opened; the view knows the new ones by now."""

    def __init__(self, base: int) -> None:
        super().__init__(f"the segment from offset {base} was rewritten just now", hint="try again")


T = TypeVar("T")


class View:
    def __init__(
        self,
        files: Files,
        paths: PartitionPaths,
        identity: Identity,
        schema_of: Callable[[int], pa.Schema],
        *,
        write: bool = False,
    ) -> None:
        self.files = files
        self.paths = paths
        self.identity = identity
        self.schema_of = schema_of
        self.write = write
        self._boot_id = files.boot_id()
        # the first headers taken by the last look, for a reader that waited for them
        self.newest_headers: list[Header] = []
        self.newest_previous = b""
        self._fresh = (-1, 0)  # offset and index of the first header taken last
        self._trusted = 0  # so many blocks need no look at their bytes: they were synced
        self.on_taken: Callable[[Header], None] | None = None  # told of each header taken from others
        self.on_skipped: Callable[[], None] | None = None  # told when headers were passed over unseen
        self._sealed: OrderedDict[int, Segment] = OrderedDict()
        self.lock_descriptor = files.open(paths.lock)
        try:
            self.state_bytes = b""
            self.state = State()
            self._read_state()
            self.manifest: Manifest = manifest.load(files, paths.manifest)
            self.active = self._open_active()
        except BaseException:
            files.close(self.lock_descriptor)
            raise
        # what is known of the active segment
        self.blocks = 0
        self.next_offset = self.manifest.active.base
        self.head = self.manifest.active.previous_hash
        self.data_end = 0
        self.last_timestamp = 0
        self.cuts = 0  # how often history known here was found changed
        self.rewrites = 0  # how often segments known here were found replaced by others
        try:
            self._look_first()
        except BaseException:
            self.close()
            raise

    def _open_active(self) -> Segment:
        """The active segment, looked for again where it was sealed and rewritten at this very moment."""
        for _ in range(_ATTEMPTS):
            entry = self.manifest.active
            try:
                return self._open(entry)
            except (SegmentsMoved, HistoryChanged):
                self.manifest = manifest.load(self.files, self.paths.manifest)
        raise SegmentsMoved(entry.base)

    def settled(self, ask: Callable[[], T]) -> T:
        """An answer from segments that are in force: asked again where one was rewritten meanwhile."""
        for _ in range(_ATTEMPTS):
            try:
                return ask()
            except SegmentsMoved:
                continue
        return ask()

    def _look_first(self) -> None:
        """Take the active chain; one that breaks off, or ends before what was synced, is made again."""
        known, entry = self.state, self.manifest.active
        try:
            self.look_from_end()
            is_whole = not known.is_of(entry) or self.blocks >= known.synced_blocks
        except Corrupt as error:
            if error.file != str(self.active.chain_path):
                raise
            is_whole = False
        if not is_whole:
            self._mend(entry)

    # -- where things are ---------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.manifest.segments[0].base

    def _open(self, entry: Entry) -> Segment:
        schema = self.schema_of(entry.schema_version)
        if schema_digest(schema) != entry.schema_digest:
            raise Corrupt(
                f"schema version {entry.schema_version} is not the one that the segment was written with",
                topic=self.identity.topic,
                partition=self.identity.number,
                file=str(self.paths.data(entry.base, entry.generation)),
                position=0,
            )
        try:
            return Segment(self.files, self.paths, entry, schema, write=self.write)
        except (FileNotFoundError, Corrupt) as error:
            self._explain(entry, error)
            return Segment(self.files, self.paths, entry, schema, write=self.write)

    def _explain(self, entry: Entry, error: FileNotFoundError | Corrupt) -> None:
        """A segment does not open: it was removed, or damaged; a chain file is made again."""
        now = manifest.load(self.files, self.paths.manifest)
        if all((one.base, one.generation) != (entry.base, entry.generation) for one in now.segments):
            if hasattr(self, "active"):
                self.reload_manifest()
            if entry.base < now.segments[0].base:
                raise self.removed(entry.base)
            raise SegmentsMoved(entry.base)
        file = error.file if isinstance(error, Corrupt) else str(error.filename)
        if file == str(self.paths.chain(entry.base, entry.generation)):
            self._make_chain(entry)
        elif isinstance(error, Corrupt):
            raise error
        else:
            raise Corrupt(
                "a data file is missing",
                topic=self.identity.topic,
                partition=self.identity.number,
                file=file,
                hint="restore it from a backup; `virta verify` tells what is still trustworthy",
            ) from error

    def _make_chain(self, entry: Entry) -> None:
        try:
            rebuild.mend_chain(self.files, self.paths, entry)
        except OSError as error:
            raise Corrupt(
                f"the chain file is missing or damaged, and cannot be made again here: {error.strerror}",
                topic=self.identity.topic,
                partition=self.identity.number,
                file=str(self.paths.chain(entry.base, entry.generation)),
                hint=f"let a process that may write there run `virta doctor --repair {self.identity.topic}`",
            ) from error

    def _mend(self, entry: Entry) -> Segment:
        """Make a segment's chain file again from its data, and go on with the new one."""
        self._make_chain(entry)
        self._sealed.pop(entry.base, None)
        opened = self._open(entry)
        if entry.is_active:
            self._read_state()
            self.switch_active(opened)
            self.look_from_end()
        return opened

    def mended(self, error: Corrupt) -> Segment | None:
        """The segment whose chain file the error names, with that file made again; else None."""
        for entry in self.manifest.segments:
            if error.file == str(self.paths.chain(entry.base, entry.generation)):
                return self._mend(entry)
        return None

    def segment(self, index: int) -> Segment:
        """The segment of the manifest's entry at this index, open."""
        entry = self.manifest.segments[index]
        if entry.is_active:
            return self.active
        found = self._sealed.get(entry.base)
        if found is not None and found.entry == entry:
            self._sealed.move_to_end(entry.base)
            return found
        opened = self._sealed[entry.base] = self._open(entry)
        while len(self._sealed) > _OPEN_SEALED:
            self._sealed.popitem(last=False)
        return opened

    def blocks_in(self, index: int) -> int:
        entry = self.manifest.segments[index]
        return self.blocks if entry.is_active else entry.blocks

    def segment_index(self, offset: int) -> int:
        """The segment that covers the offset; the active one for offsets not yet given."""
        ends = self.manifest.segments
        return min(bisect.bisect_right(ends, offset, key=lambda entry: entry.end), len(ends) - 1)

    def first_offset_at(self, timestamp: int) -> int:
        """Offset of the first row whose block reaches the timestamp (rows in it may be older)."""
        return self.settled(lambda: self._first_offset_at(timestamp))

    def _first_offset_at(self, timestamp: int) -> int:
        entries = self.manifest.segments[:-1]
        index = bisect.bisect_left(entries, timestamp, key=lambda entry: entry.max_timestamp)
        count = self.blocks_in(index)
        segment = self.segment(index)
        found = segment.headers(count).first_reaching(timestamp)
        if found:
            segment.checked_header(found - 1)
        return segment.checked_header(found).base_offset if found < count else self.next_offset

    # -- reading --------------------------------------------------------------------------

    def plan(self, start: int, end: int, *, most: int | None = None) -> list[Stretch]:
        """The stretches of blocks that hold the rows from `start` up to `end`; the first `most` of them."""
        try:
            return self.settled(lambda: self._plan(start, end, most))
        except Corrupt as error:
            if self.mended(error) is None:
                raise
            return self._plan(start, end, most)

    def _plan(self, start: int, end: int, most: int | None) -> list[Stretch]:
        stretches: list[Stretch] = []
        end = min(end, self.next_offset)
        index = self.segment_index(start)
        while start < end and index < len(self.manifest.segments) and len(stretches) != most:
            entry, segment, count = self.manifest.segments[index], self.segment(index), self.blocks_in(index)
            if entry.is_active and self.state.is_of(entry):
                segment.map_synced(self.state.synced_length)
            segment_end = min(entry.end, self.next_offset)
            if max(start, entry.base) < segment_end:
                if segment is self.active and start == self._fresh[0]:
                    first = self._fresh[1]  # a reader at the tail: the blocks that were just taken
                else:
                    first = segment.covering(count, max(start, entry.base))
                stop = count if end >= segment_end else segment.covering(count, end - 1) + 1
                stretches.append(Stretch(segment=segment, start=first, stop=stop))
            start = entry.end
            index += 1
        return stretches

    def hash_before(self, offset: int) -> bytes:
        """The hash before the block that holds the offset; the head for the next one."""
        if offset >= self.next_offset:
            return self.head
        return self.settled(lambda: next(self._hashes_before(offset)))

    def _hashes_before(self, offset: int) -> Iterator[bytes]:
        """The hash before the block that was appended with the offset, then those before the control
        blocks directly before it. Blocks that were rewritten are looked through."""
        index = self.segment_index(offset)
        segment = self.segment(index)
        at = segment.covering(self.blocks_in(index), offset)
        if at < self.blocks_in(index) and segment.is_rewritten(at):
            old, hashes = segment.trail_at(at)
            inside = int((old["base_offset"] + old["span"] > offset).argmax())
            yield hashes[inside]
            for number in range(inside - 1, -1, -1):
                if old["span"][number]:
                    return
                yield hashes[number]
        else:
            yield segment.hash_before(at)
        while True:
            if at == 0:
                if index == 0:
                    return
                index -= 1
                segment = self.segment(index)
                at = self.blocks_in(index)
                continue
            at -= 1
            if segment.is_rewritten(at):
                old, hashes = segment.trail_at(at)
            elif chain.unpack_header(segment.read_chain(at * HEADER_SIZE, HEADER_SIZE)).span:
                return
            else:
                yield segment.hash_before(at)
                continue
            for number in range(len(old) - 1, -1, -1):
                if old["span"][number]:
                    return
                yield hashes[number]

    def check_token(self, token: Token) -> None:
        """That the history the token was taken from is the one that is here."""
        if token.offset < self.start_offset:
            raise self.removed(token.offset)
        if token.offset > self.next_offset:
            raise self._changed(token.offset, f"the log ends at offset {self.next_offset}")
        if not self._follows(token):
            raise self._changed(token.offset, "another history stands there")

    def _follows(self, token: Token) -> bool:
        """Whether the token's hash stands before its block, control blocks between left aside."""
        return self.settled(lambda: any(found == token.hash for found in self._hashes_before(token.offset)))

    def removed(self, offset: int) -> HistoryChanged:
        """The answer to a reader that stands in what retention took away."""
        return self._changed(offset, f"rows before offset {self.start_offset} were removed by retention")

    def _changed(self, offset: int, why: str) -> HistoryChanged:
        oldest = Token(
            partition=self.identity.number,
            offset=self.start_offset,
            hash=self.manifest.segments[0].previous_hash,
        )
        return HistoryChanged(
            f"the reader stands at offset {offset}, but {why}",
            oldest=oldest,
            topic=self.identity.topic,
            partition=self.identity.number,
            file=str(self.paths.root),
            offset=offset,
            hint="go on from the error's `oldest` token to read what is there now",
        )

    def newest_blocks(self) -> list[StoredBlock]:
        """The blocks of the last look's headers, read and checked; none where there were many."""
        headers, self.newest_headers = self.newest_headers, []
        if not headers or headers[-1].hash != self.head:
            return []
        return self.active.read_run(headers, self.newest_previous)

    def read(self, offset: int, *, max_bytes: int) -> list[StoredBlock]:
        """Blocks from the one that holds the offset on, up to about `max_bytes`."""
        if offset >= self.next_offset:
            return []
        stretch = self.plan(offset, self.next_offset, most=1)[0]
        return stretch.segment.read_blocks(stretch.start, stretch.stop, max_bytes=max_bytes)

    # -- following what others do -----------------------------------------------------------

    def _read_state(self) -> bool:
        """Read the state record; whether it changed."""
        data = self.files.pread(self.lock_descriptor, state.READ_SIZE, 0)
        if data == self.state_bytes:
            return False
        self.state_bytes = data
        self.state = state.parse(data) or State()
        return True

    def active_rows(self) -> int:
        """Rows in the active segment, counted in its chain."""
        headers = chain.as_array(self.active.read_chain(0, self.blocks * HEADER_SIZE))
        return int(headers["rows"].sum())

    def refresh(self) -> bool:
        """Look for what is new; whether anything is."""
        if self.files.pread(self.lock_descriptor, state.READ_SIZE, 0) == self.state_bytes:
            # the usual case: nobody rolled, cut or synced since the last look
            count = self.files.size(self.active.chain_descriptor) // HEADER_SIZE
            if count >= self.blocks and self.state.generation == self.manifest.generation:
                known_blocks = self.blocks
                if count > known_blocks:
                    self._follow(count)
                return self.blocks != known_blocks
        return self._refresh_fully()

    def _refresh_fully(self) -> bool:
        before = (self.next_offset, self.blocks, self.manifest.generation, self.cuts)
        known = Token(partition=self.identity.number, offset=self.next_offset, hash=self.head)
        old = self.state
        self._read_state()
        try:
            if self.state.generation != self.manifest.generation:
                self.reload_manifest()
            if self.state.epoch != old.epoch:
                self._look_again(known)
        except BaseException:
            self.state, self.state_bytes = old, b""  # not taken in: the next look begins anew
            raise
        count = self.files.size(self.active.chain_descriptor) // HEADER_SIZE
        if count < self.blocks:
            self._look_again(known)
        elif count > self.blocks:
            self._follow(count)
        return before != (self.next_offset, self.blocks, self.manifest.generation, self.cuts)

    def reload_manifest(self) -> None:
        found = manifest.load(self.files, self.paths.manifest)
        if found.generation == self.manifest.generation:
            return
        old = self.manifest.active
        if found.active.base == old.base and found.active.generation == old.generation:
            self._take_manifest(found)
            return
        # the active segment was sealed: first see all of it, then move on
        sealed = next((entry for entry in found.segments if entry.base == old.base), None)
        if sealed is not None and sealed.generation == old.generation:
            self._follow(sealed.blocks)
        opened = self._open(found.active)  # may fail, so nothing is changed before
        self._take_manifest(found)
        self.switch_active(opened)
        self.look_from_end()

    def _take_manifest(self, found: Manifest) -> None:
        """Segments that are not in it any more are let go of; whoever reads them holds them."""
        kept = {(entry.base, entry.generation) for entry in found.segments}
        start = found.segments[0].base
        self.rewrites += any(
            (entry.base, entry.generation) not in kept and entry.base >= start
            for entry in self.manifest.segments
        )
        for base, segment in list(self._sealed.items()):
            if (base, segment.entry.generation) not in kept:
                del self._sealed[base]
        self.manifest = found

    def switch_active(self, segment: Segment) -> None:
        self.active = segment  # plans in flight may still hold the old one
        self._begin(0)

    def _begin(self, blocks: int) -> None:
        """Where the active segment begins."""
        entry = self.active.entry
        self._fresh = (-1, 0)
        self.blocks = blocks
        self.data_end = len(block.schema_message(self.active.schema))
        self.next_offset = entry.base
        self.head = entry.previous_hash

    def _look_again(self, known: Token) -> None:
        """The active segment may have been cut, or its chain made again: forget what was known of it."""
        chain_now = self.files.identity(self.active.chain_path)
        if chain_now != self.files.identity_of(self.active.chain_descriptor):
            self.active = self._open(self.manifest.active)
        self.look_from_end()
        if known.offset < self.start_offset:
            return
        try:
            changed = known.offset > self.next_offset or not self._follows(known)
        except Corrupt:
            changed = True
        self.cuts += changed

    def look_from_end(self) -> None:
        """Take the active chain as it stands; whole, if nobody has looked at it since the last boot."""
        count = self.files.size(self.active.chain_descriptor) // HEADER_SIZE
        checked = count if self.state.is_checked_in(self._boot_id) else 0
        if self.on_skipped is not None:
            self.on_skipped()
        last = self._last_header(checked) if checked else None
        if last is not None:
            self._check_place(last, checked)
        self._begin(checked)
        if self.last_timestamp == 0 and len(self.manifest.segments) > 1:
            self.last_timestamp = self.manifest.segments[-2].max_timestamp
        if last is not None:
            self.take(last)
        if checked < count:
            self._trusted = trusted_blocks(self.active, self.state, count)
            self._follow(count)

    def _last_header(self, count: int) -> Header:
        header = chain.unpack_header(self.active.read_chain((count - 1) * HEADER_SIZE, HEADER_SIZE))
        previous = self.active.hash_before(count - 1)
        if chain.link(previous, chain.without_place(header.fields()), header.digest) != header.hash:
            raise Corrupt(
                "the newest header's hash does not follow from the one before",
                topic=self.identity.topic,
                partition=self.identity.number,
                file=str(self.active.chain_path),
                position=(count - 1) * HEADER_SIZE,
            )
        return header

    def _check_place(self, last: Header, count: int) -> None:
        """That the chain is this segment's all along, not another's that is sound in itself."""
        active, known = self.active, self.state
        good = active.checked_header(0).base_offset == active.entry.base
        good = good and last.end_position <= self.files.size(active.data_descriptor)
        if known.is_of(active.entry) and 0 < known.synced_blocks <= count:
            good = good and active.hash_before(known.synced_blocks) == known.synced_hash
            if count > known.synced_blocks:
                active.checked_header(known.synced_blocks)
                good = good and last.base_offset >= known.synced_offset
                good = good and last.position >= known.synced_length
        if not good:
            raise Corrupt(
                "the chain file is not that of its segment",
                topic=self.identity.topic,
                partition=self.identity.number,
                file=str(self.active.chain_path),
                position=0,
            )

    def take(self, header: Header) -> None:
        self.next_offset = header.base_offset + header.span
        self.head = header.hash
        self.data_end = header.position_units * chain.POSITION_UNIT + header.length
        if header.max_timestamp > self.last_timestamp:
            self.last_timestamp = header.max_timestamp

    def _follow(self, count: int) -> None:
        """Take headers up to `count`, each checked; stop quietly at one that is not valid yet."""
        self._fresh = (self.next_offset, self.blocks)
        self.newest_headers = []
        self.newest_previous = self.head
        while self.blocks < count:
            upto = min(count, self.blocks + _HEADERS_PER_READ)
            try:
                raw = self.active.read_chain(self.blocks * HEADER_SIZE, (upto - self.blocks) * HEADER_SIZE)
            except Corrupt:
                return  # a recovery cuts it at this very moment
            good = chain.check_links(raw, self.head)
            for index in range(good):
                header = chain.unpack_header(raw, index * HEADER_SIZE)
                if not self._believable(header):
                    return
                self.take(header)
                self.blocks += 1
                if not header.span and self._fresh[1] == self.blocks - 1:
                    self._fresh = (self.next_offset, self.blocks)  # a control block holds no offset
                if len(self.newest_headers) < NEWEST_HEADERS:
                    self.newest_headers.append(header)
                if self.on_taken is not None:
                    self.on_taken(header)
            if good * HEADER_SIZE < len(raw):
                return

    def _believable(self, header: Header) -> bool:
        try:
            chain.check_follows(header, next_offset=self.next_offset, position=self.data_end)
            chain.check_appended(header)
            if self.blocks >= self._trusted and not self.state.is_checked_in(self._boot_id):
                if header.end_position > self.files.size(self.active.data_descriptor):
                    return False
                data = self.active.read_data(header.position, header.length)
                block.check_against(data, header)
        except Corrupt:
            return False
        return True

    def close(self) -> None:
        self.active.close()
        self._sealed.clear()
        self.files.close(self.lock_descriptor)


def trusted_blocks(active: Segment, known: State, count: int) -> int:
    """How many blocks of a chain of `count` headers are those that were synced.

    The chain file is not synced, so an older history's headers, linked well enough, may
    be back in it. Only when they lead to the watermark's hash are they what was synced.
    """
    synced = known.synced_blocks
    if not known.is_of(active.entry) or synced > count:
        return 0
    return synced if active.leads_to(synced, known.synced_hash) else 0


def schema_digest(full: pa.Schema) -> bytes:
    """What a manifest's entry calls the schema by."""
    return bytes(blake3(block.schema_message(full)).digest())
