"""The file system of a file: SQLite's locks and shared memory do not work between machines."""

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK_TYPES = frozenset(
    {
        "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
        "orangefs", "panfs", "smb3", "smbfs", "wekafs",
    }
)  # fmt: skip
NETWORK_PROGRAMS = frozenset(
    {
        "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "gcsfuse", "glusterfs", "juicefs", "lizardfs", "mfs", "mount-s3",
        "rclone", "s3fs", "sshfs",
    }
)  # fmt: skip
"""Programs that mount as `fuse.NAME`."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def is_network_type(name: str) -> bool:
    """Return whether a file system of this type may be mounted by several machines at once."""
    kind, _, program = name.partition(".")
    return kind in NETWORK_TYPES or (kind == "fuse" and program in NETWORK_PROGRAMS)


def type_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that `path` is on, or would be on, by a mountinfo text; "" if it has none."""
    resolved = path.resolve()
    most_parts, kind = -1, ""
    for line in mounts.splitlines():
        head, _, tail = line.partition(" - ")
        words = head.split(" ")
        if len(words) < 5 or not tail:
            continue
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), words[4]))
        # A later mount on the same point hides the earlier one.
        if resolved.is_relative_to(point) and len(point.parts) >= most_parts:
            most_parts, kind = len(point.parts), tail.split(" ")[0]
    return kind


def network_type_of(path: Path) -> str:
    """Return the type of the network file system that `path` is on; "" on a local one, or if it is not known."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    kind = type_of(path, mounts)
    return kind if is_network_type(kind) else ""
