"""The Groups page: who reads and how far behind, live; putting a group somewhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.websockets import WebSocket

from virta.console.access import ALTER, READ, check
from virta.console.group_lags import LOOK_SECONDS
from virta.console.live import Messages
from virta.console.requests import answer, body_of, console_of
from virta.console.state import Console
from virta.errors import UsageError


def routes() -> list[Route]:
    return [
        Route("/api/group/plan", plan, methods=["POST"]),
        Route("/api/group/reset", reset, methods=["POST"]),
        Route("/api/group/remove", remove, methods=["POST"]),
    ]


async def groups(console: Console, socket: WebSocket, request: Mapping[str, Any]) -> Messages:
    """All groups on topics one may read, once a second; `group` and `topic` narrow it."""
    visitor = check(console.access, socket, READ, None)
    group, topic = request.get("group"), request.get("topic")
    while True:
        found = await console.hub.work(console.hub.groups.sample)
        shown = [
            each
            for each in found
            if console.access.allows(visitor, READ, each["topic"])
            and (group is None or each["group"] == group)
            and (topic is None or each["topic"] == topic)
        ]
        yield {"groups": shown, "now": console.now_us()}
        await asyncio.sleep(LOOK_SECONDS)


# -- putting one somewhere else ------------------------------------------------------------------


def _target(body: Mapping[str, Any]) -> Any:
    """Where to: oldest, newest, an offset or a moment; with a partition only there."""
    text = str(body.get("to", "")).strip()
    if not text:
        raise UsageError("say where to: oldest, newest, an offset, or a moment such as -1h")
    return int(text) if text.isdecimal() else text


def _plan(console: Console, body: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    topic = console.log.topic(str(body.get("topic")))
    group = topic.group(str(body.get("group")))
    target, number = _target(body), body.get("partition")
    if isinstance(target, int) and number is not None:
        target = {int(number): target}
    plans = group.plan_reset(target)
    if number is not None:
        plans = [each for each in plans if each.partition == int(number)]
    return group, plans


def _told(plans: list[Any]) -> dict[str, Any]:
    return {
        "parts": [
            {
                "partition": each.partition,
                "before": each.before,
                "after": each.after,
                "again": each.again,
                "skipped": each.skipped,
            }
            for each in plans
        ],
        "again": sum(each.again for each in plans),
        "skipped": sum(each.skipped for each in plans),
    }


async def plan(request: Request) -> Response:
    """What a reset would do; nothing is done."""
    console = console_of(request)
    body = await body_of(request)
    check(console.access, request, READ, str(body.get("topic")))
    _, plans = await console.hub.work(_plan, console, body)
    return answer(_told(plans))


async def reset(request: Request) -> Response:
    """Put the group there; refused while it is being read."""
    console = console_of(request)
    body = await body_of(request)
    check(console.access, request, ALTER, str(body.get("topic")))
    return answer(await console.hub.work(_reset, console, body))


def _reset(console: Console, body: Mapping[str, Any]) -> dict[str, Any]:
    group, plans = _plan(console, body)
    # what was looked at is what is done: by its tokens, not by its words once more
    group.reset({each.partition: each.token for each in plans})
    return _told(plans)


async def remove(request: Request) -> Response:
    """Forget the group; its name has to be typed."""
    console = console_of(request)
    body = await body_of(request)
    name, topic = str(body.get("group")), str(body.get("topic"))
    check(console.access, request, ALTER, topic)
    if body.get("typed") != name:
        raise UsageError("this cannot be undone: type the group's name", hint=f"type {name}")
    await console.hub.work(lambda: console.log.topic(topic).group(name).remove())
    return answer({"group": name})
