"""NATS JetStream: one file-backed stream per partition, one replica.

A message has no key: it stands before the value, two bytes of length in front. That costs
NATS less than a header or a subject per key would. Publishing does not wait for each
acknowledgement: as many as JetStream's client allows are on their way.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from bench.rows import BATCH_ROWS, Batch, Row, batched
from bench.served import places
from bench.served.peers.contract import Columns, Peer, free_port, launch, stop

READ_MESSAGES = 5_000
WAIT_SECONDS = 30.0


class NatsServer:
    def __init__(self, directory: Path) -> None:
        port = free_port()
        self.address = f"nats://127.0.0.1:{port}"
        configuration = directory / "nats.conf"
        configuration.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f"jetstream {{ store_dir: {json.dumps(str(directory))}, max_file_store: 100GB }}\n"
        )
        self.process = launch([places.nats(), "-c", str(configuration)], directory, port)
        self._client = _Connected(self.address)

    def make(self, stream: str, partitions: int) -> None:
        for name in names(stream, partitions):
            self._client.run(
                self._client.streams.add_stream(name=name, subjects=[name], storage=StorageType.FILE)
            )

    def count(self, stream: str, partitions: int) -> int:
        infos = [
            self._client.run(self._client.streams.stream_info(name)) for name in names(stream, partitions)
        ]
        return sum(int(info.state.messages) for info in infos)

    def close(self) -> None:
        self._client.close()
        stop(self.process)


def names(stream: str, partitions: int) -> list[str]:
    return [f"{stream}-{number}" for number in range(partitions)]


class _Connected:
    """nats-py lives in an event loop; here it is stepped from plain calls."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self.run(nats.connect(address))
        self.streams = self._connection.jetstream(
            publish_async_max_pending=4 * BATCH_ROWS, timeout=WAIT_SECONDS
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self.run(self._end())
        self._loop.close()

    async def _end(self) -> None:
        await self._connection.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def payload(key: bytes, value: bytes) -> bytes:
    return len(key).to_bytes(2, "little") + key + value


def unpacked(data: bytes) -> tuple[bytes, bytes]:
    end = 2 + int.from_bytes(data[:2], "little")
    return data[2:end], data[end:]


class NatsClient:
    def __init__(self, address: str, stream: str, partitions: int) -> None:
        self._connected = _Connected(address)
        self._streams = self._connected.streams
        self._names = names(stream, partitions)
        self._turns = itertools.cycle(self._names)

    def ready(self, batches: Sequence[Batch]) -> Sequence[list[bytes]]:
        return [list(map(payload, batch.keys, batch.values)) for batch in batches]

    def produce(self, batches: Iterable[list[bytes]]) -> None:
        self._connected.run(self._publish(batches))

    def produce_rows(self, rows: Iterable[Row]) -> None:
        self.produce_lists(batched(rows, BATCH_ROWS))

    def produce_lists(self, lists: Iterable[list[Row]]) -> None:
        self._connected.run(
            self._publish([payload(row["key"], row["value"]) for row in some] for some in lists)
        )

    async def _publish(self, batches: Iterable[list[bytes]]) -> None:
        publish = self._streams.publish_async
        waiting = []
        for batch in batches:
            name = next(self._turns)
            waiting += [await publish(name, data, wait_stall=WAIT_SECONDS) for data in batch]
        await asyncio.gather(*waiting)

    def append_one(self, row: Row) -> None:
        self._connected.run(self._streams.publish(self._names[0], payload(row["key"], row["value"])))

    async def _messages(self, count: int) -> Iterable[Any]:
        """Batches that are asked for, without an acknowledgement for each message."""
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        sources = [
            await self._streams.pull_subscribe(name, stream=name, config=config, pending_bytes_limit=1 << 30)
            for name in self._names
        ]
        found: list[Any] = []
        while len(found) < count:
            for source in sources:
                try:
                    found += await source.fetch(
                        READ_MESSAGES, timeout=0.5 if len(sources) > 1 else WAIT_SECONDS
                    )
                except nats.errors.TimeoutError:
                    continue
        for source in sources:
            await source.unsubscribe()
        return found

    def consume(self, count: int) -> pa.Table:
        columns = Columns()
        for message in self._connected.run(self._messages(count)):
            metadata = message.metadata
            columns.offsets.append(metadata.sequence.stream)
            columns.times.append(int(metadata.timestamp.timestamp() * 1e6))
            key, value = unpacked(message.data)
            columns.keys.append(key)
            columns.values.append(value)
        return columns.table()

    def consume_rows(self, count: int) -> tuple[int, int]:
        rows = size = 0
        for message in self._connected.run(self._messages(count)):
            _key, value = unpacked(message.data)
            rows += 1
            size += len(value)
        return rows, size

    def close(self) -> None:
        self._connected.close()


PEERS = (Peer(name="nats", start=NatsServer, connect=NatsClient),)
