"""The Verify page: the chain drawn, recomputed in sight, held against heads and other logs, proofs."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.websockets import WebSocket

import virta
from virta.console.access import ALTER, READ, check
from virta.console.chain_reading import cells_of, header_at, segments_of
from virta.console.live import Messages
from virta.console.proof import check_proof, make_proof
from virta.console.requests import answer, body_of, console_of, number_of, text_of
from virta.console.state import Console
from virta.console.values import dump
from virta.errors import NotFound, UsageError
from virta.storage import chain

# Progress that is told: more than the eye sees is work for nothing.
_TOLD_SECONDS = 0.05


class _Stopped(Exception):
    """Whoever wanted the verification has gone."""


def routes() -> list[Route]:
    return [
        Route("/api/chain", chain_of),
        Route("/api/block", block),
        Route("/api/find-head", find_head),
        Route("/api/compare", compare, methods=["POST"]),
        Route("/api/proof", proof),
        Route("/api/check-proof", checked, methods=["POST"]),
    ]


async def verify(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """Check every byte of a topic, and say how far it is; at the end what was found."""
    name = str(request.get("topic"))
    check(console.access, socket, READ, name)
    topic = await console.hub.work(console.log.topic, name)
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    stopped = False
    last = 0.0

    def progress(step: Any) -> None:
        nonlocal last
        if stopped:
            raise _Stopped
        now = time.monotonic()
        if now - last >= _TOLD_SECONDS:
            last = now
            message = {
                "partition": step.partition,
                "blocks": step.blocks,
                "bytes": step.bytes,
                "total": step.total_bytes,
            }
            loop.call_soon_threadsafe(told.put_nowait, message)

    def run() -> Any:
        try:
            against = request.get("against") or None
            return topic.verify(against=against, progress=progress)
        finally:
            loop.call_soon_threadsafe(told.put_nowait, None)

    begun = time.monotonic()
    running = asyncio.ensure_future(console.hub.work(run))
    try:
        while (message := await told.get()) is not None:
            yield message
        report = await running
    finally:
        stopped = True
        if not running.done():
            running.add_done_callback(_swallow)
    yield {
        "done": True,
        "ok": report.ok,
        "blocks": report.blocks,
        "rows": report.rows,
        "bytes": report.bytes,
        "heads": {str(number): head for number, head in report.heads.items()},
        "problems": [dataclasses.asdict(problem) for problem in report.problems],
        "trustworthy": {str(number): end for number, end in (report.trustworthy_until or {}).items()},
        "seconds": time.monotonic() - begun,
    }


def _swallow(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more; its end, whatever it is, has been seen."""
    if not future.cancelled():
        future.exception()


async def chain_of(request: Request) -> Response:
    """The chain of a partition as cells to draw."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    return answer(await console.hub.work(_chain, console, name, number_of(request, "partition", 0)))


def _chain(console: Console, name: str, partition: int) -> dict[str, Any]:
    place = console.log.topic(name).partition(partition)
    cells, blocks = cells_of(place)
    return {
        "cells": [[cell.first, cell.blocks, cell.base, cell.end, cell.bytes, cell.kind] for cell in cells],
        "blocks": blocks,
        "segments": segments_of(place),
        "head": place.head,
    }


async def block(request: Request) -> Response:
    """One block of the chain: everything its hash is made from, so that a browser can make it again."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    place = number_of(request, "partition", 0), number_of(request, "number")
    return answer(await console.hub.work(_block, console, name, *place))


def _block(console: Console, name: str, partition: int, number: int) -> dict[str, Any]:
    place = console.log.topic(name).partition(partition)
    header, previous, raw = header_at(place, number)
    return {
        "number": number,
        "base": header.base_offset,
        "end": header.end_offset,
        "rows": header.rows,
        "bytes": header.length,
        "epoch": header.epoch,
        "schema_version": header.schema_version,
        "control": header.is_control,
        "rewritten": header.is_rewritten,
        "oldest": header.min_timestamp,
        "newest": header.max_timestamp,
        "producer": f"{header.producer:016x}" if header.producer and not header.is_rewritten else None,
        "previous": previous.hex(),
        "fields": chain.without_place(raw).hex(),
        "digest": header.digest.hex(),
        "hash": header.hash.hex(),
        "follows": chain.follows(raw, previous),
    }


async def find_head(request: Request) -> Response:
    """Where a head that was noted stands in the chain now."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    wanted = text_of(request, "head").strip().lstrip("#").lower()
    return answer(await console.hub.work(_find, console, name, number_of(request, "partition", 0), wanted))


def _find(console: Console, name: str, partition: int, wanted: str) -> dict[str, Any]:
    place = console.log.topic(name).partition(partition)
    if len(wanted) >= 8 and place.head.startswith(wanted):
        return {"found": True, "is_head": True, "offset": place.next_offset, "behind": 0}
    try:
        found = place.find(wanted)
    except NotFound:
        return {"found": False}
    end = found.last_offset + 1
    return {"found": True, "is_head": False, "offset": end, "behind": place.next_offset - end}


async def compare(request: Request) -> Response:
    """This topic against the one of another log: the same, ahead, behind, or apart since which row."""
    console = console_of(request)
    body = await body_of(request)
    name = str(body.get("topic"))
    check(console.access, request, READ, name)
    # it opens whatever the server can reach, so it is for whoever may do everything here
    check(console.access, request, ALTER, None)
    return answer(await console.hub.work(_compare, console, name, body))


def _compare(console: Console, name: str, body: dict[str, Any]) -> dict[str, Any]:
    partition = int(body.get("partition") or 0)
    address = str(body.get("other") or "").strip()
    if not address:
        raise UsageError("name the other log")
    mine = console.log.topic(name).partition(partition)
    with virta.open(address, create=False) as log:
        theirs = log.topic(str(body.get("other_topic") or name)).partition(partition)
        return compared(mine, theirs)


def compared(mine: Any, theirs: Any) -> dict[str, Any]:
    """How two chains of one origin stand to each other; hashes that differ once differ from there on."""
    ends = {"mine": mine.next_offset, "theirs": theirs.next_offset}
    if mine.head == theirs.head:
        return {"relation": "same", **ends}
    low, high = max(mine.start_offset, theirs.start_offset), min(mine.next_offset, theirs.next_offset)
    # blocks that were joined keep the hash of their last one, so ends are compared, not beginnings
    if low < high and _hash_at(mine, low) != _hash_at(theirs, low) and not _shares(mine, theirs, low):
        return {"relation": "apart", "since": low, **ends}
    first, last = low, high
    while first < last:
        middle = (first + last) // 2
        if _shares(mine, theirs, middle):
            first = middle + 1
        else:
            last = middle
    if first >= high:
        return {"relation": "ahead" if ends["mine"] > ends["theirs"] else "behind", **ends}
    return {"relation": "apart", "since": first, **ends}


def _hash_at(place: Any, offset: int) -> str:
    return str(place.fetch(place.token(offset)).hash)


def _shares(mine: Any, theirs: Any, offset: int) -> bool:
    """Whether the block that holds the offset here ends a history the other has, too, or the reverse."""
    own, other = mine.fetch(mine.token(offset)), theirs.fetch(theirs.token(offset))
    if own.hash == other.hash:
        return True
    longer, shorter = (own, theirs) if own.last_offset < other.last_offset else (other, mine)
    if own.last_offset == other.last_offset:
        return False
    try:
        return bool(shorter.find(longer.hash))
    except NotFound:
        return False


async def proof(request: Request) -> Response:
    """The proof of a row, as a file."""
    console, name = console_of(request), text_of(request, "topic")
    check(console.access, request, READ, name)
    partition, offset = number_of(request, "partition", 0), number_of(request, "offset")
    topic = await console.hub.work(console.log.topic, name)
    document = await console.hub.work(make_proof, topic, partition, offset)
    return Response(
        dump(document),
        media_type="application/json",
        headers={"content-disposition": f'attachment; filename="proof-{offset}.json"'},
    )


async def checked(request: Request) -> Response:
    """What a proof shows, if it holds."""
    return answer(await console_of(request).hub.work(check_proof, await body_of(request)))
