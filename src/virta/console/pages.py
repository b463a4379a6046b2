"""The pages: one shell for all, filled by a module each. Every view's state is in its address."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from virta import __version__
from virta.console.access import READ, WRITE
from virta.console.requests import console_of

HERE = Path(__file__).parent

# path → (title, module of static/, what the navigation marks)
PAGES: dict[str, tuple[str, str, str]] = {
    "": ("Topics", "topics", "topics"),
    "rows": ("Rows", "rows", "topics"),
    "row": ("Row", "row", "topics"),
    "produce": ("Produce", "produce", "topics"),
    "replay": ("Replay", "replay", "topics"),
    "settings": ("Settings", "settings", "topics"),
    "new": ("New topic", "new", "topics"),
    "sql": ("SQL", "sql", "sql"),
    "verify": ("Verify", "verify", "verify"),
    "time": ("Time", "time", "topics"),
    "storage": ("Storage", "storage", "storage"),
}

NAVIGATION: tuple[tuple[str, str, str], ...] = (
    ("topics", "./", "Topics"),
    ("sql", "sql", "SQL"),
    ("verify", "verify", "Verify"),
    ("storage", "storage", "Storage"),
)


def routes() -> list[Route]:
    return [Route(f"/{path}", page) for path in PAGES]


async def page(request: Request) -> Response:
    """The shell of the page whose path this is."""
    console = console_of(request)
    visitor = console.access.visitor(request)
    path = request.url.path.rsplit("/", 1)[-1]
    title, module, marked = PAGES[path]
    facts = {
        "log": console.address,
        "version": __version__,
        "visitor": visitor.name,
        "users": console.access.has_users,
        "read": console.access.allows(visitor, READ, None),
        "write": console.access.allows(visitor, WRITE, None),
        "broker": console.broker is not None,
        "development": console.development,
    }
    html = (
        _templates()
        .get_template("page.html")
        .render(
            title=title,
            module=module,
            marked=marked,
            navigation=NAVIGATION,
            facts=json.dumps(facts),
            log=console.address,
            version=__version__,
        )
    )
    return HTMLResponse(html)


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True)
