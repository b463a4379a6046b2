"""The doctor judges given facts, gathers real ones, and names a cure that works."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from virta.errors import StorageFailed
from virta.log import Log
from virta.metadata.catalog import Catalog
from virta.steward.doctor import GIB, examine, judge, repair
from virta.steward.facts import MachineFacts, PartitionFacts, gather_machine, gather_partition
from virta.storage import state
from virta.storage.filesystem import Mount
from virta.types import Problem

RESTORE = "virta restore BACKUP NEW_LOG --topic orders"
NOW = 1_700_000_000_000_000
HEALTHY = MachineFacts(
    root=Path("/events"),
    now_us=NOW,
    free_bytes=100 * GIB,
    total_bytes=500 * GIB,
    open_file_limit=1024,
    inotify_instances=128,
    inotify_watches=65536,
    mount=Mount(point="/", kind="ext4", source="/dev/sda1", options=("rw", "relatime")),
    aio_used=10,
    aio_limit=65536,
    numa_nodes=1,
    zone_reclaim_mode=0,
)
PARTITION = PartitionFacts(topic="orders", number=0, root=Path("/events/topics/orders/p0000"), newest_us=NOW)


def on(kind: str, *options: str) -> Mount:
    return Mount(point="/events", kind=kind, source="x", options=options)


def found(machine: dict[str, Any] | None = None, *partitions: PartitionFacts) -> list[Problem]:
    return judge(dataclasses.replace(HEALTHY, **(machine or {})), list(partitions) or [PARTITION])


def test_a_healthy_machine_and_log_have_no_findings() -> None:
    assert found() == []


def test_a_system_that_says_nothing_has_no_findings() -> None:
    assert judge(MachineFacts(root=Path("/events"), now_us=NOW), [PARTITION]) == []


@pytest.mark.parametrize(
    ("facts", "severity", "word", "cure"),
    [
        ({"free_bytes": GIB // 2}, "warning", "512.0 MiB", "--retention-bytes"),
        ({"free_bytes": 20 * GIB}, "warning", "space", "virta steward"),
        ({"open_file_limit": 32}, "warning", "32 files", "ulimit -n 1024"),
        ({"inotify_watches": 1}, "warning", "watches", "fs.inotify.max_user_watches"),
        ({"inotify_instances": 8}, "notice", "8 processes", "fs.inotify.max_user_instances"),
        ({"inotify_failure": "no inotify watches are left"}, "warning", "poll", "max_user_watches"),
        ({"inotify_failure": "Too many open files"}, "warning", "poll", "max_user_instances"),
        ({"mount": on("nfs4")}, "warning", "nfs4", "cp -a"),
        ({"mount": on("tmpfs")}, "notice", "restart", "cp -a /events /a/local/disk"),
        (
            {"mount": Mount(point="/n", kind="xfs", source="x", options=("nobarrier",))},
            "warning",
            "sync",
            "mount",
        ),
        ({"mount": on("ext4", "ro")}, "notice", "read-only", "mount -o remount,rw"),
        ({"numa_nodes": 2, "zone_reclaim_mode": 1}, "warning", "NUMA", "vm.zone_reclaim_mode=0"),
        ({"aio_used": 65536}, "warning", "65536", "fs.aio-max-nr=262144"),
        ({"now_us": 1_000_000_000_000}, "warning", "2020", "timedatectl"),
    ],
)
def test_each_fact_of_a_machine_has_its_finding_and_cure(
    facts: dict[str, Any], severity: str, word: str, cure: str
) -> None:
    (finding,) = found(facts)
    assert finding.severity == severity
    assert word in finding.message
    assert finding.cure is not None and cure in finding.cure


@pytest.mark.parametrize("facts", [{"numa_nodes": 2}, {"zone_reclaim_mode": 1}, {"aio_limit": None}])
def test_numa_and_aio_are_not_mentioned_where_they_do_not_matter(facts: dict[str, Any]) -> None:
    assert found(facts) == []


def test_limits_are_measured_against_the_number_of_partitions() -> None:
    many = [dataclasses.replace(PARTITION, number=number) for number in range(500)]
    messages = [finding.message for finding in found(None, *many)]
    assert messages == ["a process may open 1024 files; all 500 partitions together take 4064"]


def test_a_clock_behind_the_newest_row_is_named_with_its_topic() -> None:
    ahead = dataclasses.replace(PARTITION, newest_us=NOW + 90_000_000)
    (finding,) = found(None, ahead)
    assert finding.topic == "orders" and "90 seconds behind" in finding.message


@pytest.mark.parametrize(
    ("facts", "severity", "cure"),
    [
        ({"flags": state.FAILED}, "damage", "virta doctor --repair orders"),
        ({"error": "the manifest does not match its digest"}, "damage", RESTORE),
        ({"has_state": False}, "warning", "virta doctor --repair orders"),
        ({"missing_data": (Path("/a.arrows"),)}, "damage", RESTORE),
        ({"missing_chains": (Path("/a.chain"),)}, "warning", "virta doctor --repair orders"),
        ({"evidence": (Path("/a.arrows.torn-1"),)}, "notice", "rm /a.arrows.torn-1"),
        ({"leftovers": (Path("/a.arrows"),)}, "notice", "virta steward --once"),
    ],
)
def test_each_fact_of_a_partition_has_its_finding_and_cure(
    facts: dict[str, Any], severity: str, cure: str
) -> None:
    (finding,) = found(None, dataclasses.replace(PARTITION, **facts))
    assert (finding.severity, finding.cure) == (severity, cure)
    assert finding.topic == "orders" and finding.partition == 0


# -- real facts and cures ---------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as log:
        log.create_topic("orders", {"id": int}).append([{"id": 1}, {"id": 2}])
        log.sync()
        yield log


def catalog_of(log: Log) -> Catalog:
    found: Catalog = log._catalog
    return found


def facts_of(log: Log) -> PartitionFacts:
    stored = log.topic("orders").partition(0).stored
    return gather_partition(stored.files, stored.paths, "orders", 0, NOW)


def test_facts_of_this_machine_are_gathered(tmp_path: Path) -> None:
    facts = gather_machine(tmp_path, NOW)
    assert facts.free_bytes and facts.total_bytes and facts.open_file_limit
    assert facts.mount is None or facts.mount.kind


def test_a_fresh_log_has_nothing_wrong_with_its_partitions(log: Log) -> None:
    facts = facts_of(log)
    assert facts.newest_us is not None and facts.newest_us > NOW
    assert facts == PartitionFacts(topic="orders", number=0, root=facts.root, newest_us=facts.newest_us)
    report = examine(catalog_of(log))
    assert report.ok and not [finding for finding in report.findings if finding.topic]
    assert any("1 topics" in text or "topic" in text for text in report.checked)


def test_leftover_damage_is_found_worst_first(log: Log) -> None:
    stored = log.topic("orders").partition(0).stored
    root = stored.paths.root
    (root / f"{0:020d}.arrows.torn-1").write_bytes(b"x")
    (root / f"{55:020d}.arrows").write_bytes(b"x")
    stored.paths.chain(0).unlink()
    with stored.writing() as committer:
        committer.write_state(flags=state.FAILED)
    report = examine(catalog_of(log))
    assert not report.ok
    assert [one.severity for one in report.findings if one.topic] == ["damage", "warning", "notice", "notice"]


def test_what_cannot_be_read_is_a_finding(log: Log) -> None:
    log.topic("orders").partition(0).stored.paths.manifest.write_bytes(b"?" * 300)
    findings = [one for one in examine(catalog_of(log)).findings if one.topic == "orders"]
    assert [one.severity for one in findings] == ["damage"]
    paths = catalog_of(log).paths.topic("orders")
    paths.topic_file.write_bytes(b"\xff not toml")
    findings = [one for one in examine(catalog_of(log)).findings if one.topic == "orders"]
    assert [one.file for one in findings] == [str(paths.topic_file)]


def test_the_cure_of_a_failed_sync_works(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        topic = log.create_topic("orders", {"id": int})
        topic.append([{"id": 1}, {"id": 2}])
        topic.sync()
        with topic.partition(0).stored.writing() as committer:
            committer.write_state(flags=state.FAILED)
        with pytest.raises(StorageFailed):
            topic.append({"id": 3})
    with Log(tmp_path / "log") as log:
        told = repair(log.topic("orders"), catalog_of(log))
        assert len(told) == 1 and "every row is on the disk" in told[0]
        assert log.topic("orders").append({"id": 3}).first_offset == 2
        assert not [one for one in examine(catalog_of(log)).findings if one.topic]
        assert log.topic("orders").verify().ok
