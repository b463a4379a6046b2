"""`virta serve`: a directory for many clients at once, over TCP."""

from __future__ import annotations

import click

from virta.cli.invocation import Invocation
from virta.cli.output import note
from virta.errors import UsageError

DEFAULT_LISTEN = "virta://127.0.0.1:7400"


@click.command()
@click.argument("path", required=False, type=click.Path(file_okay=False))
@click.option(
    "--listen",
    metavar="ADDRESS",
    default=DEFAULT_LISTEN,
    show_default=True,
    help="Where; port 0 takes a free one.",
)
@click.pass_obj
def serve(invocation: Invocation, path: str | None, listen: str) -> None:
    """Serve a log directory to other programs and machines.

    Local programs may have the same directory open at the same moment. Ctrl-C or SIGTERM
    stops it: what was begun is finished, and clients go on by themselves when it is back.

    \b
    Examples:
      virta serve ./events
      virta serve ./events --listen virta://127.0.0.1:7401
      VIRTA_LOG=virta://127.0.0.1:7400 virta topic ls
    """
    from virta.broker.run import run  # asyncio and Arrow are not for --help
    from virta.log import Log
    from virta.open import open as open_log
    from virta.security.address import Address, is_broker_address, parse_address

    if not is_broker_address(listen):
        raise UsageError(f"--listen {listen!r} is no address", hint=f"write {DEFAULT_LISTEN}")
    place = path or invocation.log
    if place is not None and is_broker_address(place):
        raise UsageError(f"{place} is a broker, and a broker serves a directory", hint="virta serve ./events")
    log: Log = open_log(place)

    def started(address: Address) -> None:
        note(invocation, f"serving {log.path} at {address}")

    with log:
        run(log, parse_address(listen), started=started)
