"""Which numbers a broker shows at /metrics, and where each comes from."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from virta import __version__
from virta.broker.operation.metrics import Registry, Sample
from virta.broker.tally import LATENCY_SECONDS, Tally
from virta.errors import VirtaError
from virta.protocol.codes import FrameType

if TYPE_CHECKING:
    from virta.broker.server import Server

# Topics that are shown one by one; of more, a page would be megabytes and a look take seconds.
MOST_TOPICS = 500


def broker_numbers(server: Server, *, started_at: float) -> Registry:
    """All of them. Asked in a thread: sizes of topics are looked up in files."""
    registry, tally = Registry(), server.tally
    registry.gauge("virta_build_info", "Version of the broker.", lambda: [((("version", __version__),), 1)])
    registry.gauge("virta_start_time_seconds", "When the broker began, since 1970.", lambda: started_at)
    _traffic(registry, server, tally)
    _topics(registry, server)
    _process(registry, server.log.path)
    return registry


def _traffic(registry: Registry, server: Server, tally: Tally) -> None:
    count = "counter"
    registry.gauge("virta_connections", "Connections open now.", lambda: len(server.sessions))
    registry.gauge("virta_connections_total", "Connections taken.", lambda: tally.connections, kind=count)
    registry.gauge(
        "virta_connections_refused_total",
        "Connections that got no place or were ended for what they sent.",
        lambda: tally.refused,
        kind=count,
    )
    registry.gauge(
        "virta_failed_logins_total", "Logins that failed.", lambda: tally.failed_logins, kind=count
    )
    registry.gauge(
        "virta_received_bytes_total", "Bytes from clients.", lambda: tally.received_bytes, kind=count
    )
    registry.gauge(
        "virta_paused_seconds_total",
        "Seconds for which connections were not read from, for the sake of a rate.",
        lambda: tally.paused_seconds,
        kind=count,
    )
    registry.gauge("virta_sent_bytes_total", "Bytes to clients.", lambda: tally.sent_bytes, kind=count)
    registry.gauge(
        "virta_requests_total",
        "Requests, by verb.",
        lambda: [_by_verb(type_, number) for type_, number in list(tally.requests.items())],
        kind=count,
    )
    registry.gauge(
        "virta_errors_total",
        "Requests answered with an error, by its code; `unexpected` is a fault of the broker.",
        lambda: [((("code", code),), number) for code, number in list(tally.errors.items())],
        kind=count,
    )
    registry.gauge(
        "virta_requests_in_flight",
        "Requests that wait for files, rows or room.",
        lambda: sum(len(session.tasks) for session in list(server.sessions)),
    )
    registry.gauge(
        "virta_request_seconds_sum",
        "Seconds of requests that had to wait, by verb.",
        lambda: [_by_verb(type_, number) for type_, number in list(tally.seconds.items())],
        kind=count,
    )
    registry.gauge(
        "virta_request_seconds_count",
        "Requests that had to wait, by verb.",
        lambda: [_by_verb(type_, number) for type_, number in list(tally.waited.items())],
        kind=count,
    )
    registry.gauge(
        "virta_answer_seconds_bucket",
        "Requests answered within so many seconds, by verb; not waits that were asked for.",
        lambda: _latencies(tally),
        kind=count,
    )


def _latencies(tally: Tally) -> Iterator[Sample]:
    """Buckets by verb, each with all that are below it, as Prometheus has them."""
    for type_, counts in list(tally.latency.items()):
        total = 0
        for bound, count in zip((*LATENCY_SECONDS, None), counts, strict=True):
            total += count
            labels = (
                ("verb", FrameType(type_).name.lower()),
                ("le", "+Inf" if bound is None else f"{bound:g}"),
            )
            yield labels, total


def _by_verb(type_: int, number: float) -> Sample:
    return (("verb", FrameType(type_).name.lower()),), number


def _topics(registry: Registry, server: Server) -> None:
    log = server.log

    def positions(attribute: str) -> Iterator[Sample]:
        for name in log.topics()[:MOST_TOPICS]:
            try:
                for partition in log.topic(name).partitions:
                    labels = (("topic", name), ("partition", str(partition.number)))
                    yield labels, getattr(partition, attribute)
            except VirtaError:
                continue  # dropped meanwhile, or damaged: the doctor says which

    registry.gauge("virta_topics", "Topics.", lambda: len(log.topics()))
    for attribute, meaning in (
        ("start_offset", "Oldest offset that is kept."),
        ("next_offset", "Offset of the next row: rises by one per row."),
    ):
        name = f"virta_partition_{attribute}"
        registry.gauge(name, meaning, lambda attribute=attribute: positions(attribute))  # type: ignore[misc]


def _process(registry: Registry, path: Path) -> None:
    registry.gauge("virta_disk_free_bytes", "Free where the log is.", lambda: shutil.disk_usage(path).free)
    registry.gauge("process_cpu_seconds_total", "Processor time.", _cpu_seconds, kind="counter")
    registry.gauge("process_resident_memory_bytes", "Memory in use.", _resident_bytes)
    registry.gauge("process_open_fds", "Open descriptors.", _descriptors)
    registry.gauge(
        "process_max_fds", "Descriptors allowed.", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    )


def process_numbers() -> dict[str, float]:
    """What the broker's process takes of its machine."""
    return {"cpu_seconds": _cpu_seconds(), "resident_bytes": _resident_bytes(), "descriptors": _descriptors()}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _resident_bytes() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        # Elsewhere than on Linux only the peak is known, on a Mac in bytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _descriptors() -> float:
    try:
        return len(os.listdir("/dev/fd"))  # noqa: PTH208 (names are not needed)
    except OSError:
        return 0
