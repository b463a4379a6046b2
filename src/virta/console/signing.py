"""Signing in and out: the cookie that says who somebody is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virta.console.requests import answer, body_of, console_of
from virta.console.users import cookie_name


def routes() -> list[Route]:
    return [
        Route("/api/sign-in", sign_in, methods=["POST"]),
        Route("/api/sign-out", sign_out, methods=["POST"]),
    ]


async def sign_in(request: Request) -> Response:
    """Name and password for a session. Checking a password takes a tenth of a second on purpose."""
    console = console_of(request)
    body = await body_of(request)
    name, password = str(body.get("name", "")).strip(), str(body.get("password", ""))
    session = await console.hub.work(console.access.sign_in, request, name, password)
    response = answer({"name": name})
    response.set_cookie(
        cookie_name(request),
        session,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path=request.scope.get("root_path") or "/",
    )
    return response


async def sign_out(request: Request) -> Response:
    """End the session, here and in the browser."""
    console_of(request).access.sign_out(request)
    response = answer({})
    response.delete_cookie(cookie_name(request), path=request.scope.get("root_path") or "/")
    return response
