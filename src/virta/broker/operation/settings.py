"""The settings of `virta serve`, and where each came from.

    flag  >  environment  >  file  >  default

One table holds them all: a name with dots, how its text is read, its default and what it is for. In
the file the dots are TOML tables ([tls] certificate_file = …), in the environment they are
underscores (VIRTA_SERVE_TLS_CERTIFICATE_FILE), as a flag `--set tls.certificate_file=…` (a few have
a flag of their own). A name that is not in the table is an error: a misspelt limit limits nothing.

Pure: file and environment are passed in.
"""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virta.errors import NotFound, UsageError
from virta.requests import format_duration, format_size, parse_duration, parse_size
from virta.security.address import DEFAULT_PORT, Address, is_broker_address, parse_address
from virta.security.guard import Authentication, is_loopback
from virta.security.limits import Limits

PREFIX = "VIRTA_SERVE_"
LEVELS = ("debug", "info", "warning", "error")
# A configuration is a page; what is longer is another file.
_MOST_BYTES = 1024 * 1024


# -- how values are read ---------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError("it is a text")
    return value


def _file(value: Any) -> str:
    return str(Path(_text(value)).expanduser())


def _choice(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        # TOML and YAML people write `tls = false`; they mean off.
        value = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
        if value not in choices:
            raise UsageError(f"it is one of {', '.join(choices)}")
        return str(value)

    return read


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    if not isinstance(value, str) or value.lower() not in words:
        raise UsageError("it is true or false")
    return words[value.lower()]


def _addresses(value: Any) -> tuple[str, ...]:
    texts = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts:
        raise UsageError("it is an address, or a list of them")
    return tuple(str(_listening(each)) for each in texts)


def _listening(value: Any) -> Address:
    text = _text(value)
    address = parse_address(text if is_broker_address(text) or "://" in text else f"virta://{text}")
    if address.user or address.fingerprint or address.ca_file:
        raise UsageError("a broker listens at host:port, without user or options")
    return address


def _host_and_port(value: Any) -> str | None:
    if value in (None, "none", ""):
        return None
    host, colon, port = _text(value).rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError("it is host:port, such as 127.0.0.1:7402")
    return f"{host}:{port}"


def _names(value: Any) -> tuple[str, ...]:
    if value in (None, "none"):
        return ()
    texts = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
        raise UsageError("it is a name, or a list of them")
    return tuple(each for each in texts if each)


def _seconds(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise UsageError("it is more than no time")
    return seconds


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value in (None, "none") else read(value)


def _count(value: Any) -> int:
    if isinstance(value, str) and value.replace("_", "").isdigit():
        value = int(value.replace("_", ""))
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError("it is a whole number above zero")
    return value


def _bytes(value: Any) -> int:
    size = parse_size(value)
    if size < 1024:
        raise UsageError("it is at least 1 KiB")
    return size


# -- the table --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting: how it is read and what it is for."""

    name: str
    read: Callable[[Any], Any]
    default: Any
    meaning: str
    # Taken in on SIGHUP, without a restart.
    reloads: bool = False


def _limit_options() -> list[Option]:
    readers: dict[str, Callable[[Any], Any]] = {"bytes": _bytes, "seconds": _seconds}
    found = []
    for field in dataclasses.fields(Limits):
        words = field.name.split("_")
        read = next((readers[word] for word in (words[-1], words[0]) if word in readers), _count)
        read = _bytes if field.name.endswith("_bytes") or "_bytes_" in field.name else read
        optional = field.default is None or "None" in str(field.type)
        found.append(
            Option(
                name=f"limits.{field.name}",
                read=_or_none(read) if optional else read,
                default=field.default,
                meaning=_LIMIT_MEANINGS[field.name],
                reloads=True,
            )
        )
    return found


_LIMIT_MEANINGS = {
    "frame_bytes": "the largest frame of somebody who has logged in",
    "stranger_frame_bytes": "the largest frame of somebody who has not",
    "hello_seconds": "time for the first word of a connection",
    "frame_seconds": "time in which a frame that was begun goes on",
    "requests_in_flight": "requests of one connection that wait for something",
    "append_bytes_in_flight": "bytes of its appends that are not committed yet",
    "answer_bytes": "bytes of answers that it has not taken",
    "connections": "connections, all together",
    "connections_per_address": "connections from one address",
    "connections_per_user": "connections of one user",
    "connections_before_login": "connections that have not logged in, all together",
    "bytes_per_second_per_connection": "rate of one connection, both ways",
    "bytes_per_second_per_user": "rate of all connections of a user, both ways",
    "idle_seconds": "silence after which a connection is closed",
    "failed_logins_per_minute": "failed logins of one address before it has to wait",
}

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            name="listen",
            read=_addresses,
            default=(f"virta://127.0.0.1:{DEFAULT_PORT}",),
            meaning="where; port 0 takes a free one. Several: a list, or with commas",
        ),
        Option(
            name="tls.mode",
            read=_choice("auto", "on", "off"),
            default="auto",
            meaning="auto: on wherever other machines reach the broker",
        ),
        Option(
            name="tls.certificate_file",
            read=_or_none(_file),
            default=None,
            meaning="PEM, with those that signed it; none: one is generated and its fingerprint printed",
            reloads=True,
        ),
        Option(
            name="tls.key_file",
            read=_or_none(_file),
            default=None,
            meaning="PEM, not encrypted; none: in the certificate's file",
            reloads=True,
        ),
        Option(
            name="tls.client_ca_file",
            read=_or_none(_file),
            default=None,
            meaning="who may sign client certificates; none: nobody is asked for one",
        ),
        Option(
            name="tls.client_certificates_required",
            read=_truth,
            default=False,
            meaning="refuse connections without one",
        ),
        Option(
            name="security.authentication",
            read=_choice(*Authentication),
            default="auto",
            meaning="auto: asked for unless only this machine reaches the broker and no user was ever added",
        ),
        Option(
            name="security.access_file",
            read=_or_none(_file),
            default=None,
            meaning="users, tokens and permissions; none: broker/access.toml in the log",
        ),
        *_limit_options(),
        Option(
            name="logging.format",
            read=_choice("text", "json"),
            default="text",
            meaning="of the lines on stderr",
            reloads=True,
        ),
        Option(
            name="logging.level",
            read=_choice(*LEVELS),
            default="info",
            meaning="the least that is told",
            reloads=True,
        ),
        Option(
            name="http.listen",
            read=_host_and_port,
            default=None,
            meaning="host:port for the console, /metrics, /health and /ready; none: nowhere",
        ),
        Option(
            name="http.console",
            read=_choice("auto", "on", "off"),
            default="auto",
            meaning="the console at http.listen; auto: where virta[console] is installed",
        ),
        Option(
            name="http.host_names",
            read=_names,
            default=(),
            meaning="names under which the console may be opened, beside addresses and localhost",
        ),
        Option(
            name="development",
            read=_truth,
            default=False,
            meaning="lets the console's Broker page break things on purpose",
        ),
        Option(
            name="stop.grace_seconds",
            read=_seconds,
            default=10.0,
            meaning="time to finish what was begun when the broker is told to stop",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value, and where it came from in words."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """All settings, by name."""

    settings: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def listen(self) -> tuple[Address, ...]:
        """Where, and at each place whether with TLS."""
        mode = self["tls.mode"]
        found = []
        for text in self["listen"]:
            address = parse_address(text)
            encrypted = address.tls or mode == "on" or (mode == "auto" and not is_loopback(address.host))
            found.append(dataclasses.replace(address, tls=encrypted and mode != "off"))
        return tuple(found)

    @property
    def limits(self) -> Limits:
        return Limits(**{field.name: self[f"limits.{field.name}"] for field in dataclasses.fields(Limits)})

    @property
    def authentication(self) -> Authentication:
        return Authentication(self["security.authentication"])

    def records(self) -> list[dict[str, Any]]:
        """For `virta serve --check`."""
        return [
            {
                "setting": name,
                "value": shown(name, setting.value),
                "origin": setting.origin,
                "meaning": OPTIONS[name].meaning,
            }
            for name, setting in self.settings.items()
        ]

    def needing_restart(self, newer: BrokerSettings) -> list[str]:
        """What is different in another state of the settings and cannot be taken in while running."""
        return [
            name
            for name, setting in self.settings.items()
            if setting.value != newer[name] and not OPTIONS[name].reloads
        ]


def shown(name: str, value: Any) -> Any:
    """A value as a person writes it."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if "bytes" in name and isinstance(value, int):
        return format_size(value)
    return format_duration(value) if isinstance(value, float) else str(value)


def resolve(
    *,
    file: Mapping[str, Any] | None = None,
    file_name: str = "the file",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> BrokerSettings:
    """Each setting from the first place that names it. Values of None in `flags` were not given."""
    sources = (
        ("flag", {name: value for name, value in (flags or {}).items() if value is not None}),
        ("environment", _of_environment(environment or {})),
        (file_name, _flat(file or {})),
    )
    for origin, values in sources:
        for name in values:
            if name not in OPTIONS:
                near = difflib.get_close_matches(name, OPTIONS, 1)
                raise UsageError(
                    f"{origin}: there is no setting {name[:60]!r}",
                    hint=f"did you mean {near[0]!r}?" if near else "virta serve --check lists them all",
                )
    return BrokerSettings(settings={name: _resolved(option, sources) for name, option in OPTIONS.items()})


def _resolved(option: Option, sources: tuple[tuple[str, Mapping[str, Any]], ...]) -> Setting:
    for origin, values in sources:
        if option.name in values:
            shown_origin = (
                f"environment {environment_name(option.name)}" if origin == "environment" else origin
            )
            try:
                return Setting(value=option.read(values[option.name]), origin=shown_origin)
            except UsageError as error:
                raise UsageError(
                    f"{option.name} ({shown_origin}): {error.message}", hint=error.hint or option.meaning
                ) from None
    return Setting(value=option.default, origin="default")


def environment_name(name: str) -> str:
    return PREFIX + name.replace(".", "_").upper()


# Names beginning so that mean something else than a setting.
_OTHER = {f"{PREFIX}CONFIG"}


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    known = {environment_name(name): name for name in OPTIONS}
    # Unknown ones keep the name they have, so that the error shows it.
    return {
        known.get(name, name): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in _OTHER
    }


def _flat(tables: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tables.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[before + name] = value
    return found


def read_file(path: Path) -> dict[str, Any]:
    """A configuration file as tables."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(
            f"there is no configuration at {path}", hint="deploy/broker.toml is one to begin with"
        ) from None
    except OSError as error:
        raise UsageError(f"the configuration {path} cannot be read: {error.strerror}") from None
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError("it is too long")
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not readable as TOML: {error}") from None


def parse_assignments(texts: tuple[str, ...]) -> dict[str, str]:
    """`--set name=value`, several times."""
    found = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"--set {text[:60]!r} is no name=value", hint="--set limits.connections=500")
        found[name.strip()] = value.strip()
    return found
