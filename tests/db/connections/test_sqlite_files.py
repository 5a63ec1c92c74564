from pathlib import Path

import pytest

from exgrpo.db.connections import sqlite_files
from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import DatabaseError
from exgrpo.db.connections.sqlite_files import is_network_type, type_of
from exgrpo.jobs.execution.supervisor.indexing import describe_database

MOUNTS = r"""
22 1 0:1 / / rw,relatime - ext4 /dev/vda rw
23 22 0:2 / /mounted rw,relatime shared:5 master:1 - nfs4 server:/export rw,vers=4.2
24 23 0:3 / /mounted/local rw - xfs /dev/vdb rw
25 22 0:4 / /with\040space rw - cifs //server/share rw
26 22 0:5 / /twice rw - nfs server:/old rw
27 22 0:6 / /twice rw - ext4 /dev/vdc rw
a line of something else
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/mounted/runs/workbench/workbench.db", "nfs4"), ("/mounted", "nfs4"), ("/mounted/local/workbench.db", "xfs"),
        ("/mountedbutnot/workbench.db", "ext4"), ("/with space/workbench.db", "cifs"), ("/twice/workbench.db", "ext4"),
        ("/elsewhere", "ext4"),
    ],
)  # fmt: skip
def test_the_deepest_and_last_mount_says_what_a_file_lies_on(path, expected):
    assert type_of(Path(path), MOUNTS) == expected


def test_file_systems_of_several_machines_are_told_from_those_of_one():
    assert all(map(is_network_type, ("nfs", "nfs4", "cifs", "lustre", "beegfs", "fuse.ceph-fuse", "fuse.sshfs")))
    assert not any(map(is_network_type, ("ext4", "xfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.ntfs-3g", "")))


def test_sqlite_on_a_network_file_system_is_refused_and_nothing_is_made(tmp_path, monkeypatch):
    mounts, runs_root = tmp_path / "mountinfo", tmp_path / "runs"
    mounts.write_text(f"22 1 0:1 / / rw - ext4 /dev/vda rw\n23 22 0:2 / {tmp_path} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(sqlite_files, "MOUNTS", mounts)
    with pytest.raises(DatabaseError):
        open_database(None, runs_root)
    assert not list((runs_root / "workbench").iterdir())
    is_good, sentence = describe_database(None, runs_root)
    assert not is_good
    assert "network file system (nfs4)" in sentence
    mounts.unlink()  # a machine that does not say what is mounted is trusted
    open_database(None, runs_root).close()
