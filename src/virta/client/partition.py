"""A partition at a broker, as readers and writers of this process see it.

It stands where `memory.partition.Partition` stands in an embedded log and has its methods,
so topics, selections, writers and the five verbs are the same code on both sides of the
wire. What is read is remembered only where it is about to be used: the hash after the last
block (so that reading on needs no question about the token), and blocks that came with the
end of a wait.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from virta.client.blocks import blocks_of
from virta.client.catalog import RemoteCatalog
from virta.client.encoding import parts_of
from virta.client.wire import Lost, Outcome, Pending, Wire
from virta.errors import Corrupt, UnavailableError
from virta.protocol.codes import ACKS, ROWS_ALREADY_THERE, TOPIC_CHANGED, FrameType
from virta.protocol.messages import message
from virta.settings import Settings
from virta.storage.commit import Append, RowsAlreadyThere, TopicChanged
from virta.storage.segment import StoredBlock
from virta.storage.view import Identity
from virta.topics.schema import SchemaSource
from virta.types import Durability, Stats, Token

# Bytes on their way to a reader before it has taken what came: enough to keep both sides busy.
WINDOW_BYTES = 16 * 1024 * 1024
# A wait is asked anew after so long, so that a broker need not remember it for ever.
_WAIT_SECONDS = 60.0
_KNOWN_HASHES = 16
# A producer's number drawn at random is not used again after so long: the broker forgets it some time.
_IDENTITY_SECONDS = 600.0


class Placed(NamedTuple):
    """What an acknowledgement says of a block; the part of a header that acks are made from."""

    base_offset: int
    rows: int
    hash: bytes

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.rows


class _Identity:
    """A producer's number drawn at random, used by one append at a time."""

    __slots__ = ("number", "sequence", "used_at")

    def __init__(self) -> None:
        self.number = int.from_bytes(os.urandom(8), "little") or 1
        self.sequence = 0
        self.used_at = time.monotonic()


class RemotePartition:
    def __init__(
        self,
        wire: Wire,
        catalog: RemoteCatalog,
        identity: Identity,
        schemas: SchemaSource,
        settings: Settings,
    ) -> None:
        self.wire = wire
        self.identity = identity
        self.settings = settings
        self._catalog = catalog
        self._schemas = schemas
        self._acks = ACKS[wire.address.acks]
        self._lock = threading.Lock()
        self._hashes: OrderedDict[int, bytes] = OrderedDict()
        self._ahead: list[StoredBlock] = []
        self._identities: list[_Identity] = []
        self._appending: tuple[int, bytes] | None = None
        self.topic_version = schemas.record.version

    # -- appending ------------------------------------------------------------------------------

    def append(self, appends: list[Append], durability: Durability) -> None:  # noqa: ARG002 - the topic's own
        """Append these blocks in order; raises what went wrong with the first."""
        with self._as_producer(appends):
            waiting = [self.post(append) for append in appends]
            for append, pending in zip(appends, waiting, strict=True):
                self.settle(append, pending)
            for append in appends:
                if append.error is not None:
                    raise append.error

    def append_one(self, append: Append, durability: Durability) -> None:
        """As `append`, for one block without conditions: the path of rows that come one at a time."""
        if append.producer or self._acks == ACKS["none"]:
            return self.append([append], durability)
        identity = self.take_identity()
        append.producer, append.sequence = identity.number, identity.sequence
        self.settle(append, self.post(append))
        if append.error is not None:
            raise append.error  # it is open which rows were written, so the number is used no more
        identity.sequence += append.prepared.rows
        self.give_back(identity)
        return None

    @contextlib.contextmanager
    def _as_producer(self, appends: list[Append]) -> Iterator[None]:
        """Give appends without a producer a number and sequences, so that they can be sent again."""
        if appends[0].producer or self._acks == ACKS["none"]:
            yield
            return
        identity = self.take_identity()
        sequence = identity.sequence
        for append in appends:
            append.producer, append.sequence = identity.number, sequence
            sequence += append.prepared.rows
        yield  # what went wrong leaves open which rows were written, so the number is used no more
        identity.sequence = sequence
        self.give_back(identity)

    def take_identity(self) -> _Identity:
        with self._lock:
            if self._identities:
                found = self._identities.pop()
                if time.monotonic() - found.used_at < _IDENTITY_SECONDS:
                    return found
                self._identities.clear()
        return _Identity()

    def give_back(self, identity: _Identity) -> None:
        identity.used_at = time.monotonic()
        with self._lock:
            self._identities.append(identity)

    def post(self, append: Append) -> Pending | None:
        """Send a block without waiting for what becomes of it; None when no answer will come."""
        header = self._append_header(append.topic_version)
        if append.producer or append.expected_offset is not None or append.source is not None:
            header += self._conditions(append)
        body = parts_of(append.prepared)
        if self._acks == ACKS["none"]:
            self.wire.tell_apart(FrameType.APPEND, header, *body)
            return None
        return self.wire.post(FrameType.APPEND, header, *body)

    def _append_header(self, topic_version: int) -> bytes:
        """What all appends under this version say: protobuf lets the rest follow it."""
        known = self._appending
        if known is None or known[0] != topic_version:
            header = message("Append")(
                topic=self.identity.topic,
                partition=self.identity.number,
                topic_version=topic_version,
                topic_id=self.identity.topic_id,
            )
            if self._acks:
                header.acks = self._acks
            known = self._appending = topic_version, header.SerializeToString()
        return known[1]

    @staticmethod
    def _conditions(append: Append) -> bytes:
        header = message("Append")()
        if append.producer:
            header.producer = append.producer
            header.sequence = append.sequence
            if append.producer_epoch:
                header.producer_epoch = append.producer_epoch
        if append.expected_offset is not None:
            header.expected_offset = append.expected_offset
        if append.source is not None:
            header.source = append.source
        data: bytes = header.SerializeToString()
        return data

    def settle(self, append: Append, pending: Pending | None) -> None:
        """Wait for what became of a block, and note it in the append."""
        if pending is None:
            append.block = _placed(-1, append.prepared.rows, b"")
            return
        try:
            _, answer = self.wire.finish(pending)
        except Outcome as outcome:
            append.error = self._outcome(outcome)
            return
        except Exception as error:
            append.error = error
            return
        if answer.duplicate and (append.producer_epoch or answer.rows != append.prepared.rows):
            append.duplicate = True
            return
        append.block = _placed(answer.base_offset, append.prepared.rows, answer.hash)

    @staticmethod
    def _outcome(outcome: Outcome) -> BaseException:
        if outcome.number == TOPIC_CHANGED:
            return TopicChanged()
        if outcome.number == ROWS_ALREADY_THERE:
            return RowsAlreadyThere(int(outcome.details["rows"]))
        return UnavailableError(f"the broker answered what this version does not know: {outcome}")

    def claim(self, name: str) -> tuple[int, int, int]:
        """Become the holder of a producer's name: its number, epoch, and rows sent so far."""
        return _RemoteCommitter(self).claim_producer(name)

    def newest_source(self, producer: int) -> str | None:
        """The newest position that a producer's blocks tell of their source."""
        arguments = {"partition": self.identity.number, "producer": f"{producer:016x}"}
        found: str | None = self._catalog.administer(
            "newest_source", self.identity.topic, arguments=arguments, topic_id=self.identity.topic_id
        )[0]
        return found

    def writing(self) -> Any:
        """What a named writer needs of the writing side."""
        return contextlib.nullcontext(_RemoteCommitter(self))

    def sync(self, offset: int | None = None) -> None:  # noqa: ARG002 - it syncs all there is
        self._catalog.administer("sync", self.identity.topic, topic_id=self.identity.topic_id)

    def dump(self) -> None:
        """The broker writes what waits in its memory by itself."""

    # -- reading ---------------------------------------------------------------------------------

    def _read_header(self, offset: int) -> Any:
        header = message("Read")(
            topic=self.identity.topic,
            partition=self.identity.number,
            offset=offset,
            topic_id=self.identity.topic_id,
        )
        known = self._hashes.get(offset)
        if known is not None:
            header.hash = known
        return header

    def _take(self, frame: Any, answer: Any, *, verify: bool = True) -> list[StoredBlock]:
        self.topic_version = max(self.topic_version, answer.topic_version)
        try:
            blocks = blocks_of(frame, answer, self._schema_of, verify=verify)
        except Corrupt as error:
            error.topic, error.partition = self.identity.topic, self.identity.number
            raise
        if blocks:
            newest = blocks[-1].header
            self._remember(newest.end_offset, newest.hash)
        return blocks

    def _schema_of(self, version: int) -> Any:
        return self._schemas.version(version)

    def _remember(self, offset: int, hash_: bytes) -> None:
        with self._lock:
            self._hashes[offset] = hash_
            self._hashes.move_to_end(offset)
            while len(self._hashes) > _KNOWN_HASHES:
                self._hashes.popitem(last=False)

    def read(
        self, offset: int, *, max_bytes: int, end: int | None = None, verify: bool = True
    ) -> list[StoredBlock]:
        """Blocks from the one that holds the offset on, control blocks among them; none at the end."""
        ahead = self._ahead
        if ahead and ahead[0].header.base_offset <= offset < ahead[0].header.end_offset:
            self._ahead = []
            return ahead
        header = self._read_header(offset)
        header.max_bytes = max_bytes
        if end is not None:
            header.end = max(end, offset + 1)
        return self._take(*self.wire.call(FrameType.POLL, header), verify=verify)

    def scan(
        self,
        start: int,
        end: int,
        *,
        max_bytes: int,  # noqa: ARG002 - credit bounds it
        verify: bool = True,
        narrow: Callable[..., Any] | None = None,  # noqa: ARG002 - filters are the broker's
    ) -> Iterator[list[StoredBlock]]:
        """The blocks that hold the rows from `start` up to `end`, pushed by the broker as they are taken."""
        offset = start
        while offset < end:
            try:
                for blocks in self._stream(offset, end, verify=verify):
                    offset = blocks[-1].header.end_offset
                    yield blocks
                return
            except Lost:
                continue  # a new connection goes on where the old one ended

    def _stream(self, start: int, end: int | None, *, verify: bool) -> Iterator[list[StoredBlock]]:
        header = self._read_header(start)
        header.credit = WINDOW_BYTES
        if end is not None:
            header.end = end
        wire = self.wire
        pending = wire.post(FrameType.STREAM, header, is_stream=True)
        is_over = False
        taken = 0
        try:
            while not is_over:
                frame, answer = wire.next(pending)
                is_over = frame.type != FrameType.BLOCKS or answer.last
                blocks = self._take(frame, answer, verify=verify) if frame.type == FrameType.BLOCKS else []
                taken += len(frame.body) + 64
                if blocks:
                    yield blocks
                if taken > WINDOW_BYTES // 4 and not is_over:
                    wire.tell(FrameType.CREDIT, pending.channel, message("Credit")(bytes=taken))
                    taken = 0
        finally:
            wire.forget(pending)
            if not is_over and pending.error is None:
                wire.tell(FrameType.CANCEL, pending.channel, message("Cancel")())

    def check_token(self, token: Token) -> None:
        known = self._hashes.get(token.offset)
        if known == token.hash:
            return  # the next read says so, if it is true no more
        self._hashes.pop(token.offset, None)
        self._locate(offset=token.offset, hash=token.hash)
        self._remember(token.offset, token.hash)

    def token_at(self, offset: int, *, locked: bool = False) -> Token:  # noqa: ARG002
        answer = self._locate(offset=offset)
        self._remember(answer.offset, answer.hash)
        return Token(partition=self.identity.number, offset=answer.offset, hash=answer.hash)

    def first_offset_at(self, timestamp: int) -> int:
        return int(self._locate(timestamp=timestamp).offset)

    def find(self, digits: str) -> Token:
        """Where the block with this hash is."""
        answer = self._locate(block=digits)
        self._remember(answer.offset, answer.hash)
        return Token(partition=self.identity.number, offset=answer.offset, hash=answer.hash)

    def _locate(self, **what: Any) -> Any:
        header = message("Locate")(
            topic=self.identity.topic, partition=self.identity.number, topic_id=self.identity.topic_id, **what
        )
        return self.wire.call(FrameType.LOCATE, header)[1]

    def wait(self, offset: int, timeout: float | None) -> bool:
        """Wait until there is a row at the offset; False when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_SECONDS if deadline is None else min(_WAIT_SECONDS, deadline - time.monotonic())
            answer = self.finish_wait(self.begin_wait(offset, max(0.0, left)))
            if answer:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def begin_wait(self, offset: int, seconds: float) -> Pending:
        """Ask to be told of a row at the offset."""
        header = self._read_header(offset)
        header.wait_ms = int(seconds * 1000) + 1 if seconds else 0
        header.max_bytes = self.settings.read_bytes
        return self.wire.post(FrameType.LONG_POLL, header)

    def finish_wait(self, pending: Pending) -> bool:
        blocks = self._take(*self.wire.finish(pending))
        self._ahead = blocks
        return bool(blocks)

    @staticmethod
    def wait_with_others(places: Sequence[tuple[RemotePartition, int]], timeout: float | None) -> bool:
        """Wait until one of several partitions has a row at its offset; False when the time is over."""
        there = threading.Event()
        failures: list[BaseException] = []

        def answer(error: BaseException | None) -> None:
            if error is not None:
                failures.append(error)
            there.set()

        stops = [partition.when_there(offset, answer) for partition, offset in places]
        try:
            found = there.wait(timeout)
        finally:
            for stop in stops:
                stop()
        if failures:
            raise failures[0]
        return found

    def when_there(self, offset: int, answer: Callable[[BaseException | None], None]) -> Callable[[], None]:
        """Have somebody told once a row is at the offset, or what went wrong; gives how to stop that."""
        waiting = [self.begin_wait(offset, _WAIT_SECONDS)]

        def answered() -> None:
            try:
                if not self.finish_wait(waiting[0]):
                    waiting[0] = self.begin_wait(offset, _WAIT_SECONDS)
                    self.wire.when_answered(waiting[0], answered)
                    return
            except Exception as error:
                answer(error)
            else:
                answer(None)

        self.wire.when_answered(waiting[0], answered)
        return lambda: self.wire.give_up(waiting[0])

    # -- positions ---------------------------------------------------------------------------------

    def positions(self) -> Any:
        """Where the partition stands now, all of one moment."""
        header = message("Positions")(
            topic=self.identity.topic, partition=self.identity.number, topic_id=self.identity.topic_id
        )
        answer = self.wire.call(FrameType.POSITIONS, header)[1]
        self.topic_version = answer.topic_version
        return answer

    def refresh(self) -> bool:
        self.positions()
        return True

    @property
    def next_offset(self) -> int:
        return int(self.positions().next_offset)

    @property
    def start_offset(self) -> int:
        return int(self.positions().start_offset)

    @property
    def durable_offset(self) -> int:
        return int(self.positions().durable_offset)

    @property
    def head(self) -> bytes:
        return bytes(self.positions().head)

    @property
    def row_count(self) -> int:
        """How many rows there are: fewer than offsets where rows were compacted or erased."""
        return int(self.positions().rows)

    def count(self, start: int, end: int) -> int:
        """How many rows have offsets from `start` up to `end`."""
        header = message("Select")(
            topic=self.identity.topic, partition=self.identity.number, topic_id=self.identity.topic_id
        )
        header.start, header.end, header.count = start, max(start, end), True
        return int(self.wire.call(FrameType.SELECT, header)[1].rows)

    def view(self) -> Any:
        """The little of an embedded partition's view that can be asked of a broker."""
        found = self.positions()
        return contextlib.nullcontext(
            SimpleNamespace(
                state=SimpleNamespace(topic_version=found.topic_version),
                start_offset=found.start_offset,
                next_offset=found.next_offset,
                head=found.head,
            )
        )

    def stats(self) -> Stats:
        arguments = {"partition": self.identity.number}
        value, _ = self._catalog.administer(
            "stats", self.identity.topic, arguments=arguments, topic_id=self.identity.topic_id
        )
        return Stats(**value)

    def close(self) -> None:
        self._hashes.clear()
        self._ahead = []


class _RemoteBlock:
    """Stands where a stored block stands in an append that is done."""

    __slots__ = ("header",)

    def __init__(self, header: Placed) -> None:
        self.header = header


def _placed(base_offset: int, rows: int, hash_: bytes) -> Any:
    return _RemoteBlock(Placed(base_offset, rows, hash_))


class _RemoteCommitter:
    """What writers ask of an embedded partition's committer, asked of the broker."""

    def __init__(self, partition: RemotePartition) -> None:
        self._partition = partition
        # the broker finishes changes of a topic by itself
        self.view = SimpleNamespace(state=SimpleNamespace(topic_version=1 << 62))

    def claim_producer(self, name: str) -> tuple[int, int, int]:
        identity = self._partition.identity
        header = message("Claim")(topic=identity.topic, partition=identity.number, name=name)
        # claimed twice is claimed all the same: the second claim fences the first
        answer = self._partition.wire.call(FrameType.CLAIM, header)[1]
        return answer.producer, answer.epoch, answer.sequence
