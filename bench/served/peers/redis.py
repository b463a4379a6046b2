"""Redis Streams: one stream per partition, the append-only file written before each answer.

`appendfsync everysec` is what Virta does at `os`: an acknowledged row is with the
operating system, and is synced in the background within about a second. hiredis reads
the answers. Rows go through redis-py's pipelines, a thousand at a time; ready batches are
lists of them. `redis packed` shows what the server does when redis-py has nothing to do:
its commands are packed beforehand and sent without waiting for the answers of the batch
before, through parts of redis-py that no documentation offers.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import redis

from bench.rows import BATCH_ROWS, Batch, Row, batched
from bench.served import places
from bench.served.peers.contract import Columns, Peer, free_port, launch, stop

BATCHES_ON_THEIR_WAY = 4
READ_ROWS = 10_000


class RedisServer:
    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.address = f"redis://127.0.0.1:{port}"
        options = {"port": port, "bind": "127.0.0.1", "dir": directory, "save": "", "appendonly": "yes"}
        options |= {"appendfsync": "everysec", "maxclients": 10_000}
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self.process = launch([places.redis(), *words], directory, port)
        self._client = redis.Redis.from_url(self.address)

    def make(self, stream: str, partitions: int) -> None:
        """A stream is there with its first row."""

    def count(self, stream: str, partitions: int) -> int:
        return sum(int(self._client.xlen(name)) for name in names(stream, partitions))

    def close(self) -> None:
        self._client.close()
        stop(self.process)


def names(stream: str, partitions: int) -> list[str]:
    return [f"{stream}-{number}" for number in range(partitions)]


class RedisClient:
    def __init__(self, address: str, stream: str, partitions: int) -> None:
        self._client = redis.Redis.from_url(address)
        self._client.ping()
        self._names = names(stream, partitions)
        self._turns = itertools.cycle(self._names)

    def ready(self, batches: Sequence[Batch]) -> Sequence[Any]:
        return [batch.rows() for batch in batches]

    def produce(self, batches: Iterable[Any]) -> None:
        self.produce_lists(batches)

    def produce_rows(self, rows: Iterable[Row]) -> None:
        self.produce_lists(batched(rows, BATCH_ROWS))

    def produce_lists(self, lists: Iterable[list[Row]]) -> None:
        for some in lists:
            name = next(self._turns)
            pipeline = self._client.pipeline(transaction=False)
            for row in some:
                pipeline.xadd(name, row)  # type: ignore[arg-type]
            pipeline.execute()

    def append_one(self, row: Row) -> None:
        self._client.xadd(self._names[0], row)  # type: ignore[arg-type]

    def _read(self, count: int) -> Iterable[tuple[bytes, dict[bytes, bytes]]]:
        places = dict.fromkeys(self._names, b"0")
        seen = 0
        while seen < count:
            for name, entries in self._client.xread(places, count=READ_ROWS, block=1000):  # type: ignore[arg-type, union-attr]
                places[name.decode()] = entries[-1][0]
                seen += len(entries)
                yield from entries

    def consume(self, count: int) -> pa.Table:
        columns = Columns()
        for name, fields in self._read(count):
            milliseconds, _, number = name.partition(b"-")
            columns.offsets.append(int(number))
            columns.times.append(int(milliseconds) * 1000)
            key, value = fields.values()
            columns.keys.append(key)
            columns.values.append(value)
        return columns.table()

    def consume_rows(self, count: int) -> tuple[int, int]:
        rows = size = 0
        for _name, fields in self._read(count):
            _key, value = fields.values()
            rows += 1
            size += len(value)
        return rows, size

    def close(self) -> None:
        self._client.close()


class PackedClient(RedisClient):
    def ready(self, batches: Sequence[Batch]) -> Sequence[list[bytes]]:
        """Commands as bytes, each batch for one of the partitions."""
        connection = self._client.connection_pool.get_connection()
        turns = itertools.cycle(self._names)
        found = []
        for batch in batches:
            name = next(turns)
            pairs = zip(batch.keys, batch.values, strict=True)
            found.append(
                connection.pack_commands([("XADD", name, "*", "k", key, "v", value) for key, value in pairs])
            )
        self._client.connection_pool.release(connection)
        return found

    def produce(self, batches: Iterable[list[bytes]]) -> None:
        connection = self._client.connection_pool.get_connection()
        waiting: deque[int] = deque()
        for batch in batches:
            connection.send_packed_command(batch)
            waiting.append(BATCH_ROWS)
            if len(waiting) > BATCHES_ON_THEIR_WAY:
                self._settle(connection, waiting.popleft())
        while waiting:
            self._settle(connection, waiting.popleft())
        self._client.connection_pool.release(connection)

    @staticmethod
    def _settle(connection: Any, count: int) -> None:
        for _ in range(count):
            connection.read_response()


PEERS = (
    Peer(name="redis", start=RedisServer, connect=RedisClient),
    Peer(name="redis packed", start=RedisServer, connect=PackedClient),
)
