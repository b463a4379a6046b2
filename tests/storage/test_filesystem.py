"""Network file systems are recognised by what mountinfo says, and writing there is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from virta.errors import Denied
from virta.storage.filesystem import check_writable_place, file_system_of, is_network, mount_of, parse_mounts

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:40 / /mnt/data rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
31 22 0:41 / /mnt/data/local rw - xfs /dev/sdb1 rw
32 22 0:42 / /mnt/with\\040space rw - fuse.sshfs me@host:/ rw
33 22 0:43 / /over rw - ext4 /dev/sdc1 rw
34 33 0:44 / /over rw - cifs //host/share rw
a line that is none
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ada/events", "ext4"),
        ("/mnt/data", "nfs4"),
        ("/mnt/data/events", "nfs4"),
        ("/mnt/data/local/events", "xfs"),
        ("/mnt/database", "ext4"),
        ("/mnt/with space/events", "fuse.sshfs"),
        ("/over/events", "cifs"),
    ],
)
def test_the_deepest_and_newest_mount_counts(path: str, kind: str) -> None:
    found = mount_of(Path(path), parse_mounts(MOUNTS))
    assert found is not None and found.kind == kind


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "ceph",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "lustre",
        "NFS",
    ],
)
def test_network_file_systems_are_recognised(kind: str) -> None:
    assert is_network(kind)


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.ntfs-3g"]
)
def test_local_ones_are_not(kind: str) -> None:
    assert not is_network(kind)


def test_writing_on_a_network_file_system_is_refused_unless_forced(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    with pytest.raises(Denied, match=r"nfs4, server:/export.*force_network_file_system"):
        check_writable_place(Path("/mnt/data/events"), False, mounts)
    check_writable_place(Path("/mnt/data/events"), True, mounts)
    check_writable_place(Path("/mnt/data/local/events"), False, mounts)


def test_a_link_is_followed_to_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 1 0:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:2 / {tmp_path / 'far'} rw - nfs server:/ rw\n"
    )
    with pytest.raises(Denied):
        check_writable_place(tmp_path / "near" / "events", False, mounts)


def test_where_the_system_does_not_say_the_place_is_taken(tmp_path: Path) -> None:
    assert file_system_of(tmp_path, tmp_path / "missing") is None
    check_writable_place(tmp_path, False, tmp_path / "missing")
