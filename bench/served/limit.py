"""The limit: what two bare sockets move between two processes, and Virta's share of it.

One process writes the same Arrow messages to a TCP connection, the other takes them and
throws them away. Nothing is framed, checked, hashed or written.
"""

from __future__ import annotations

import os
import socket
import time

from bench.harness import ROWS_PER_SECOND, Bench, Contest, Sample
from bench.rows import BATCH_ROWS, batches
from bench.served.contenders import field_of
from bench.served.throughput import filled, time_consume, time_produce

READ_BYTES = 1 << 20


def limit(bench: Bench) -> None:
    """Producing and consuming ready batches beside bare sockets."""
    count = 100 if bench.quick else 300
    with field_of(bench) as field:
        bench.compete(
            Contest(
                workload="limit",
                title="produce, beside two bare sockets",
                conditions="ready Arrow batches of 1,000 rows; bare sockets keep nothing",
                runners={
                    **field.runners(lambda served: time_produce(served, "ready", count, 1), ("virta",)),
                    "bare sockets": lambda: _sockets(count),
                },
            )
        )
        stream = filled(count)
        bench.compete(
            Contest(
                workload="limit",
                title="consume into Arrow, beside two bare sockets",
                conditions="Virta's consumer reads every byte of the values once, the sockets' none",
                runners={
                    **field.runners(lambda served: time_consume(served, stream(served), count), ("virta",)),
                    "bare sockets": lambda: _sockets(count),
                },
            )
        )


def _sockets(count: int) -> Sample:
    messages = [memoryview(batch.arrow().serialize()) for batch in batches(count)]
    size = sum(map(len, messages))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            _drain(listener.getsockname(), size)
        taken, _ = listener.accept()
        with taken:
            start = time.perf_counter()
            for message in messages:
                taken.sendall(message)
            taken.recv(1)  # the other side has all of it
            seconds = time.perf_counter() - start
        os.waitpid(child, 0)
    return {ROWS_PER_SECOND: count * BATCH_ROWS / seconds}


def _drain(address: tuple[str, int], size: int) -> None:
    with socket.create_connection(address) as source:
        buffer = bytearray(READ_BYTES)
        while size:
            size -= source.recv_into(buffer)
        source.sendall(b".")
    os._exit(0)
