"""One broker per log, words to systemd, a certificate that is made once, rows for the audit."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import virta
from virta.broker.operation.audit import AuditWriter
from virta.broker.operation.certificates import broker_tls
from virta.broker.operation.lock import BrokerLock, holder_of
from virta.broker.operation.notify import Notify
from virta.broker.operation.settings import resolve
from virta.clock import SystemClock
from virta.errors import Locked, UsageError
from virta.security.audit import AuditEntry
from virta.types import Event


def test_one_broker_per_log(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    with BrokerLock(tmp_path) as held:
        held.note(("virta://127.0.0.1:7400",))
        with pytest.raises(Locked, match=rf"process {os.getpid()}, virta://127.0.0.1:7400"):
            BrokerLock(tmp_path)
        holder = holder_of(tmp_path)
        assert holder is not None and holder.process == os.getpid()
    assert holder_of(tmp_path) is None
    BrokerLock(tmp_path).close()


def test_a_killed_broker_keeps_nobody_out(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from virta.broker.operation.lock import BrokerLock\n"
        "lock = BrokerLock(Path(sys.argv[1])); lock.note(('x',)); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -9 and (tmp_path / "lock").read_bytes()
    assert holder_of(tmp_path) is None
    BrokerLock(tmp_path).close()


def test_words_to_systemd(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(path)
        notify = Notify({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "4000000"})
        notify.ready("serving")
        notify.reloading()
        notify.alive()
        notify.stopping()
        told = [there.recv(1000).decode() for _ in range(4)]
    assert told[0] == "READY=1\nSTATUS=serving" and told[2:] == ["WATCHDOG=1", "STOPPING=1"]
    assert told[1].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert notify.watchdog_seconds == 2.0
    notify.alive()  # nobody listens any more
    elsewhere = Notify({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    elsewhere.ready("x")
    assert elsewhere.watchdog_seconds is None


def test_a_certificate_is_made_once(tmp_path: Path) -> None:
    settings = resolve(flags={"listen": "0.0.0.0:0"})
    first = broker_tls(settings, tmp_path, SystemClock())
    assert broker_tls(settings, tmp_path, SystemClock()).fingerprint == first.fingerprint
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    files = {f"tls.{kind}_file": str(tmp_path / f"{kind}.pem") for kind in ("certificate", "key")}
    configured = resolve(flags=files)
    assert broker_tls(configured, tmp_path / "other", SystemClock()).fingerprint == first.fingerprint
    assert not (tmp_path / "other").exists()
    with pytest.raises(UsageError, match="no certificate"):
        broker_tls(resolve(flags={"tls.key_file": "x"}), tmp_path, SystemClock())


def entry(**changes: object) -> AuditEntry:
    fields = {"at_us": 1, "who": "ada", "how": "password", "address": "10.0.0.9", "action": "drop_topic"}
    return AuditEntry(**(fields | {"topic": "orders", "allowed": False, "reason": "no rule"} | changes))  # type: ignore[arg-type]


def test_rows_for_the_audit(tmp_path: Path) -> None:
    with virta.open(tmp_path / "log") as log:
        writer = AuditWriter(log.record_event)
        writer(entry(unwritten=3))
        writer(entry(action="create_topic", allowed=True))
        writer.close()
        refused, administered = log.topic("__events")[:]
    assert (refused["kind"], refused["actor"], refused["topic"]) == ("refused", "ada", "orders")
    assert '"action":"drop_topic"' in refused["details"] and '"unwritten":3' in refused["details"]
    assert administered["kind"] == "administered" and writer.lost == 0


def test_an_audit_that_cannot_be_written_stops_nobody() -> None:
    told: list[Event] = []
    writer = AuditWriter(lambda event: bool(told.append(event)))
    writer(entry())
    writer.close()
    assert writer.lost == 1 and len(told) == 1
