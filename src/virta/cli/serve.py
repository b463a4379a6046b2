"""`virta serve`: a directory for many clients at once, over TCP."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virta.cli.invocation import Invocation, output_option
from virta.cli.output import note, print_records
from virta.cli.table import Layout
from virta.errors import UsageError

if TYPE_CHECKING:
    from virta.broker.operation.operation import Started
    from virta.broker.operation.settings import BrokerSettings

CONFIG = "VIRTA_SERVE_CONFIG"
# Looked for in the log when no other file is named.
OWN_CONFIG = Path("broker") / "broker.toml"
# Flags, and the settings they are.
_FLAGS = {
    "listen": "listen",
    "tls": "tls.mode",
    "certificate_file": "tls.certificate_file",
    "key_file": "tls.key_file",
    "client_ca_file": "tls.client_ca_file",
    "http": "http.listen",
    "log_format": "logging.format",
    "log_level": "logging.level",
    "wants_console": "http.console",
}
# Where `virta console` listens, too.
CONSOLE_PLACE = "127.0.0.1:7401"


@click.command()
@click.argument("path", required=False, metavar="[PATH]", type=click.Path(file_okay=False))
@click.option(
    "--listen", metavar="ADDRESS", help="Where; port 0 takes a free one.  [default: virta://127.0.0.1:7400]"
)
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of settings.  [default: broker/broker.toml in the log, if it is there]",
)
@click.option("--set", "assignments", metavar="NAME=VALUE", multiple=True, help="Any setting; repeatable.")
@click.option("--tls", metavar="MODE", help="auto (where other machines reach it), on, off.")
@click.option("--certificate-file", metavar="FILE", help="The broker's certificate (PEM).")
@click.option("--key-file", metavar="FILE", help="Its key (PEM).")
@click.option("--client-ca-file", metavar="FILE", help="Who may sign certificates of clients (PEM).")
@click.option("--http", metavar="HOST:PORT", help="Where to show the console, /metrics, /health and /ready.")
@click.option("--console", is_flag=True, help="Show the console, at 127.0.0.1:7401 unless --http says where.")
@click.option("--log-format", metavar="FORM", help="text or json.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--check", is_flag=True, help="Print all settings and where each came from; serve nothing.")
@output_option("table", "json", "jsonl", text="The form of --check: table, json, jsonl.")
@click.pass_obj
def serve(
    invocation: Invocation,
    /,
    path: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    check: bool,
    console: bool,
    **flags: Any,
) -> None:
    """Serve a log directory to other programs and machines.

    Local programs may have the same directory open at the same moment. SIGTERM or Ctrl-C stops it:
    what was begun is finished, and clients go on by themselves when it is back. SIGHUP has it read its
    settings, users and certificate again. Who may do what: virta user, virta permission.

    \b
    Examples:
      virta serve ./events --console
      virta serve ./events --listen virtas://0.0.0.0:7400 --http 127.0.0.1:7402
      virta serve ./events --check
    """
    from virta.contexts import resolve as resolve_place
    from virta.security.address import is_broker_address

    place = path or resolve_place(invocation.log).address
    if is_broker_address(place):
        raise UsageError("a broker serves a directory, and this is a broker", hint="virta serve ./events")
    reread = functools.partial(_settings, Path(place), config, assignments, flags)
    if console:
        flags["wants_console"] = "on"
    settings = reread()
    if console and settings["http.listen"] is None:
        flags["http"] = CONSOLE_PLACE
        settings = reread()
    if check:
        print_records(invocation, settings.records(), key="setting")
        return
    _serve(invocation, place, settings, reread)


def _settings(
    place: Path, config: Path | None, assignments: tuple[str, ...], flags: dict[str, Any]
) -> BrokerSettings:
    from virta.broker.operation.settings import parse_assignments, read_file, resolve

    named = config or (Path(os.environ[CONFIG]) if os.environ.get(CONFIG) else None)
    file = named or place / OWN_CONFIG
    return resolve(
        file=read_file(file) if named is not None or file.exists() else {},
        file_name=str(file),
        environment=os.environ,
        flags={**{_FLAGS[name]: value for name, value in flags.items()}, **parse_assignments(assignments)},
    )


def _serve(invocation: Invocation, place: str, settings: BrokerSettings, reread: Any) -> None:
    from virta.broker.operation.logs import set_up, take_down
    from virta.broker.operation.operation import Operation
    from virta.broker.run import run  # asyncio and Arrow are not for --help
    from virta.open import open as open_log

    set_up(settings["logging.format"], settings["logging.level"])
    announce = functools.partial(_announce, invocation)
    make_site = _console_of(settings)
    try:
        with open_log(place) as log:
            run(Operation(log, settings, reread=reread, announce=announce, make_site=make_site))
    finally:
        take_down()


def _console_of(settings: BrokerSettings) -> Any:
    """What makes the console at the HTTP port; None where it is not wanted, or not installed."""
    wanted = settings["http.console"]
    if wanted == "off" or settings["http.listen"] is None:
        return None
    try:
        from virta.console.site import Site  # the extra `console`
    except ModuleNotFoundError as error:
        if wanted == "on" or (error.name or "").startswith("virta"):
            raise  # the command line says which extra is missing
        return None
    return functools.partial(Site, hosts=settings["http.host_names"])


def _announce(invocation: Invocation, started: Started) -> None:
    """For whoever sits at a terminal: the address to copy. In logs it stands as fields."""
    import sys

    from virta.broker.operation.operation import own_name

    if not sys.stderr.isatty():
        return
    layout = Layout.of(invocation, False, {})
    for place in started.places:
        pinned = f"?fingerprint={started.fingerprint}" if place.tls and started.fingerprint else ""
        note(invocation, f"  {layout.bold(f'virta -l {own_name(place)}{pinned} topic ls')}")
    if started.http is not None:
        note(invocation, f"  {started.http}/")
    note(invocation, layout.dim("  Ctrl-C stops it"))
