"""Which file system a log lies on, and whether its locks can be trusted there.

Writers keep each other out with `flock` and readers wake through inotify. On network
file systems either may work between machines, on one machine only, or not at all, and
which of these cannot be found out by trying. So writing there is refused unless forced.
Where the system does not say (no /proc/self/mountinfo), the place is taken as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from virta.errors import Denied

MOUNTS = Path("/proc/self/mountinfo")

# Types as the kernel names them; a FUSE file system is `fuse.` and its own name.
_NETWORK = {
    *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs"),
    *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2", "shfs", "smb2"),
    *("smb3", "smbfs", "vboxsf", "vmhgfs"),
}
_NETWORK_FUSE = {
    *("afp", "blobfuse", "blobfuse2", "ceph-fuse", "curlftpfs", "cvmfs2", "davfs2", "gcsfuse", "goofys"),
    *("grpcfuse", "gvfsd-fuse", "juicefs", "moosefs", "mount-s3", "osxfs", "rclone", "s3fs", "seaweedfs"),
    *("smbnetfs", "sshfs", "vmhgfs-fuse"),
}
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo: where, what kind, from which source and how."""

    point: str
    kind: str
    source: str
    options: tuple[str, ...]


def is_network(kind: str) -> bool:
    """Whether a file system of this type belongs to another machine."""
    kind = kind.lower()
    family, _, name = kind.partition(".")
    if family in ("fuse", "fuseblk"):
        return name in _NETWORK_FUSE or name in _NETWORK
    return kind in _NETWORK


def parse_mounts(text: str) -> list[Mount]:
    """The lines of /proc/self/mountinfo; one that is not understood is left out."""
    mounts = []
    for line in text.splitlines():
        left, mark, right = line.partition(" - ")
        own, rest = left.split(), right.split()
        if not mark or len(own) < 6 or len(rest) < 2:
            continue
        options = [*own[5].split(","), *(rest[2].split(",") if len(rest) > 2 else ())]
        mounts.append(
            Mount(
                point=_unescape(own[4]),
                kind=rest[0],
                source=_unescape(rest[1]),
                options=tuple(dict.fromkeys(options)),
            )
        )
    return mounts


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)


def mount_of(path: Path, mounts: list[Mount]) -> Mount | None:
    """The mount a resolved path lies on: the deepest, and of several there the last."""
    found: Mount | None = None
    for mount in mounts:
        inside = path == Path(mount.point) or Path(mount.point) in path.parents
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def file_system_of(path: Path, mounts_file: Path = MOUNTS) -> Mount | None:
    """The mount under a path that need not exist yet; None where the system does not say."""
    try:
        text = mounts_file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return mount_of(path.resolve(), parse_mounts(text))


def check_writable_place(path: Path, force: bool, mounts_file: Path = MOUNTS) -> None:
    """Refuse to write where locks cannot be trusted. Called when a log is opened for writing."""
    if force:
        return
    mount = file_system_of(path, mounts_file)
    if mount is not None and is_network(mount.kind):
        raise Denied(
            f"{path} lies on a network file system ({mount.kind}, {mount.source}), where writers "
            "cannot reliably keep each other out",
            hint="keep the log on a local disk; if this machine alone writes there, "
            "open it with Settings(force_network_file_system=True)",
        )
