"""The Storage page: what lies on disk, and what the steward would do about it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console.access import READ, check
from virta.console.chain_reading import cells_of, segments_of
from virta.console.requests import answer, console_of, text_of
from virta.console.state import Console
from virta.errors import UnavailableError, VirtaError
from virta.steward.report import PartitionReport
from virta.steward.steward import Steward

_SIZE_BINS = 24


def routes() -> list[Route]:
    return [
        Route("/api/storage", storage),
        Route("/api/storage/topic", topic_storage),
        Route("/api/storage/plan", plan),
    ]


async def storage(request: Request) -> Response:
    """Every topic's sizes."""
    console = console_of(request)
    visitor = check(console.access, request, READ, None)
    found = await console.hub.work(_storage, console)
    return answer({"topics": [each for each in found if console.access.allows(visitor, READ, each["name"])]})


def _storage(console: Console) -> list[dict[str, Any]]:
    return [_sizes(console, name) for name in console.log.topics()]


def _sizes(console: Console, name: str) -> dict[str, Any]:
    try:
        topic = console.log.topic(name)
        stats, config = topic.stats(), topic.config
    except VirtaError as error:
        return {"name": name, "error": error.message}
    return {
        "name": name,
        "rows": stats.rows,
        "bytes": stats.bytes,
        "blocks": stats.blocks,
        "segments": stats.segments,
        "memory": stats.memory_bytes,
        "compression": str(config.compression),
        "retention": _retention(config),
    }


def _retention(config: Any) -> dict[str, Any]:
    return {
        "age": config.retention_age_seconds,
        "bytes": config.retention_bytes,
        "rows": config.retention_rows,
    }


async def topic_storage(request: Request) -> Response:
    """A topic's segments and the sizes of its blocks, by partition."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    return answer(await console.hub.work(_topic_storage, console, name))


def _topic_storage(console: Console, name: str) -> dict[str, Any]:
    topic = console.log.topic(name)
    return {
        **_sizes(console, name),
        "partitions": [
            {
                "number": number,
                "segments": segments_of(topic.partition(number)),
                "block_sizes": _block_sizes(topic.partition(number)),
            }
            for number in topic.next_offsets
        ],
    }


def _block_sizes(place: Any) -> list[list[int]]:
    """How many blocks there are of each size, by powers of two: [at most so many bytes, blocks]."""
    counts = [0] * _SIZE_BINS
    cells, _ = cells_of(place)
    for cell in cells:
        size = cell.bytes // max(1, cell.blocks)
        counts[min(_SIZE_BINS - 1, max(0, size.bit_length() - 7))] += cell.blocks
    last = max((at for at, count in enumerate(counts) if count), default=-1)
    return [[64 << (at + 1), count] for at, count in enumerate(counts[: last + 1])]


async def plan(request: Request) -> Response:
    """What a round of the steward would remove or rewrite now; nothing is done."""
    console = console_of(request)
    name = request.query_params.get("topic")
    visitor = check(console.access, request, READ, name)
    found = await console.hub.work(_plan, console, name)
    shown = [each for each in found if console.access.allows(visitor, READ, each.topic)]
    return answer(
        {
            "rows": sum(part.rows for part in shown),
            "bytes": sum(part.bytes for part in shown),
            "segments": sum(part.segments for part in shown),
            "parts": [dataclasses.asdict(part) for part in shown],
        }
    )


def _plan(console: Console, name: str | None) -> list[PartitionReport]:
    if not isinstance(console.log.path, Path):
        raise UnavailableError(
            "what the steward would do is known where the log's files are",
            hint="open the console of the broker itself",
        )
    return list(Steward(console.log).run_once(dry_run=True, topic=name).partitions)
