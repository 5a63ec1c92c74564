from pathlib import Path

import pytest

from db.connections import file_systems, sqlite_files
from db.connections.file_systems import is_network_type, type_of
from db.connections.opening import open_database
from db.connections.session import DatabaseError
from jobs.supervisor.open_index import describe_database

MOUNTS = r"""
22 1 0:1 / / rw,relatime - ext4 /dev/vda rw
23 22 0:2 / /shared rw,relatime shared:5 master:1 - nfs4 server:/export rw,vers=4.2
24 23 0:3 / /shared/local rw - xfs /dev/vdb rw
25 22 0:4 / /with\040space rw - cifs //server/share rw
26 22 0:5 / /twice rw - nfs server:/old rw
27 22 0:6 / /twice rw - ext4 /dev/vdc rw
a line of something else
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/shared/runs/workbench/workbench.db", "nfs4"),
        ("/shared", "nfs4"),
        ("/shared/local/workbench.db", "xfs"),
        ("/sharedbutnot/workbench.db", "ext4"),
        ("/with space/workbench.db", "cifs"),
        ("/twice/workbench.db", "ext4"),
        ("/elsewhere", "ext4"),
    ],
)
def test_the_deepest_and_last_mount_says_what_a_file_lies_on(path, expected):
    assert type_of(Path(path), MOUNTS) == expected


@pytest.mark.parametrize(
    "kind",
    [
        "nfs", "nfs4", "cifs", "lustre", "beegfs", "ceph", "fuse.ceph-fuse", "fuse.gcsfuse", "fuse.lizardfs",
        "fuse.mfs", "fuse.sshfs",
    ],
)  # fmt: skip
def test_file_systems_of_several_machines_are_known(kind):
    assert is_network_type(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.ntfs-3g", ""])
def test_file_systems_of_one_machine_are_taken(kind):
    assert not is_network_type(kind)


@pytest.fixture
def on_nfs(tmp_path, monkeypatch):
    """A folder that the kernel says is on NFS."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:1 / / rw - ext4 /dev/vda rw\n23 22 0:2 / {tmp_path} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(file_systems, "MOUNTS", mounts)
    return tmp_path


def test_sqlite_on_a_network_file_system_is_refused_in_one_sentence_and_nothing_is_made(on_nfs):
    with pytest.raises(DatabaseError, match=r"workbench.db: lies on a network file system \(nfs4\).*PostgreSQL"):
        open_database(None, on_nfs / "runs")
    assert not list((on_nfs / "runs" / "workbench").iterdir())
    is_good, sentence = describe_database(None, on_nfs / "runs")
    assert not is_good
    assert "network file system (nfs4)" in sentence


def test_a_machine_that_does_not_say_what_is_mounted_is_trusted(on_nfs, monkeypatch):
    monkeypatch.setattr(file_systems, "MOUNTS", on_nfs / "missing")
    assert sqlite_files.refusal(on_nfs / "workbench.db") == ""
    open_database(None, on_nfs / "runs").close()
