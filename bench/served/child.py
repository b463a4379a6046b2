"""One side of a measurement in a process of its own: `python -m bench.served.child '{…}'`.

It is told what to do in one JSON object, prints `ready` when it may be started, and one
line of JSON at the end. Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.rows import BATCH_ROWS, batches, flat

ROOT = Path(__file__).resolve().parents[2]  # where `bench` can be imported from


class Child:
    """The process, seen by the one who started it."""

    def __init__(self, **task: Any) -> None:
        command = [sys.executable, "-m", "bench.served.child", json.dumps(task)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("a client process did not start")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise RuntimeError(f"a client process ended with {self.process.returncode}")
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def await_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def consume(peer: str, address: str, stream: str, partitions: int, rows: int, form: str) -> dict[str, Any]:
    """Read so many rows, which are still to come."""
    client = connect(peer, address, stream, partitions)
    await_go()
    found = client.consume(rows).num_rows if form == "ready" else client.consume_rows(rows)[0]
    ended = time.monotonic()
    client.close()
    return {"rows": found, "ended": ended}


def produce(
    peer: str, address: str, stream: str, partitions: int, count: int, form: str, connections: int
) -> dict[str, Any]:
    """So many batches over so many connections, a thread for each."""
    from bench.served.connections import produce_over

    clients = [connect(peer, address, stream, partitions) for _ in range(connections)]
    shares = [share(clients[0], batches(count), form) for _ in clients]
    await_go()
    began = time.monotonic()
    produce_over(clients, shares, form)
    ended = time.monotonic()
    for client in clients:
        client.close()
    return {"rows": count * connections * BATCH_ROWS, "began": began, "ended": ended}


def share(client: Any, made: Any, form: str) -> Any:
    return client.ready(made) if form == "ready" else flat(len(made))


def pace(address: str, stream: str, rows: int, per_second: float, seconds: float) -> dict[str, Any]:
    """Append `rows` at a time at a steady rate, whatever the answers take; each from its due moment."""
    from bench.served.peers.virta import VirtaClient

    client = VirtaClient(address, stream, 1)
    ready = [batch.arrow().slice(0, rows) for batch in batches(64)]
    interval = rows / per_second
    count = int(seconds / interval)
    append = client.topic.append
    await_go()
    began = time.monotonic() + 0.05
    acknowledged = []
    for number in range(count):
        due = began + number * interval
        wait = due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        append(ready[number % 64])
        acknowledged.append(time.monotonic())
    delays = [int((at - began - number * interval) * 1e9) for number, at in enumerate(acknowledged)]
    return {"began": began, "interval": interval, "delays": delays}


def watch(address: str, stream: str, rows: int) -> dict[str, Any]:
    """When each block of a stream came here: its first offset, and the moment."""
    from virta import open as open_log

    topic = open_log(address).topic(stream)
    partition = topic.partition(0)
    await_go()
    seen = []
    for block in partition.stream(partition.first_token):
        block.to_arrow()
        seen.append((block.base_offset, time.monotonic()))
        if block.base_offset + block.rows >= rows:
            break
    return {"seen": seen}


def idle(address: str, connections: int) -> dict[str, Any]:
    """Connections that were greeted and say nothing more."""
    from virta.client.wire import Wire
    from virta.security.address import parse_address

    wires = [Wire(parse_address(address)) for _ in range(connections)]
    for wire in wires:
        wire.connect()
    await_go()
    sys.stdin.readline()
    return {"connections": len(wires)}


def connect(peer: str, address: str, stream: str, partitions: int) -> Any:
    from bench.served.contenders import peer as find

    return find(peer).connect(address, stream, partitions)


TASKS = {"consume": consume, "produce": produce, "pace": pace, "watch": watch, "idle": idle}


def main(told: str) -> None:
    task = json.loads(told)
    print(json.dumps(TASKS[task.pop("task")](**task)))


if __name__ == "__main__":
    main(sys.argv[1])
