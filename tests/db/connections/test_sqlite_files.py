import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from db.connections import sqlite_files
from db.connections.opening import open_database
from db.connections.session import DatabaseError, copy_sqlite
from db.connections.sqlite_files import is_network_type, type_of
from jobs.supervisor.open_index import describe_database

MOUNTS = r"""
22 1 0:1 / / rw,relatime - ext4 /dev/vda rw
23 22 0:2 / /mounted rw,relatime shared:5 master:1 - nfs4 server:/export rw,vers=4.2
24 23 0:3 / /mounted/local rw - xfs /dev/vdb rw
25 22 0:4 / /with\040space rw - cifs //server/share rw
26 22 0:5 / /twice rw - nfs server:/old rw
27 22 0:6 / /twice rw - ext4 /dev/vdc rw
a line of something else
"""
NUM_BYTES = 64 * 2**20


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/mounted/runs/workbench/workbench.db", "nfs4"),
        ("/mounted", "nfs4"),
        ("/mounted/local/workbench.db", "xfs"),
        ("/mountedbutnot/workbench.db", "ext4"),
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
    monkeypatch.setattr(sqlite_files, "MOUNTS", mounts)
    return tmp_path


def test_sqlite_on_a_network_file_system_is_refused_in_one_sentence_and_nothing_is_made(on_nfs):
    with pytest.raises(DatabaseError, match=r"workbench.db: lies on a network file system \(nfs4\).*PostgreSQL"):
        open_database(None, on_nfs / "runs")
    assert not list((on_nfs / "runs" / "workbench").iterdir())
    is_good, sentence = describe_database(None, on_nfs / "runs")
    assert not is_good
    assert "network file system (nfs4)" in sentence


def test_a_machine_that_does_not_say_what_is_mounted_is_trusted(on_nfs, monkeypatch):
    monkeypatch.setattr(sqlite_files, "MOUNTS", on_nfs / "missing")
    assert sqlite_files.refusal(on_nfs / "workbench.db") == ""
    open_database(None, on_nfs / "runs").close()


def test_a_large_database_is_copied_while_another_program_commits_again_and_again(tmp_path):
    source, target, ends = tmp_path / "source.db", tmp_path / "copy.db", threading.Event()
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE filling (content BLOB)")
        connection.execute("INSERT INTO filling VALUES (zeroblob(?))", [NUM_BYTES])
        connection.execute("CREATE TABLE counts (number INTEGER)")

    def commit() -> None:
        with closing(sqlite3.connect(source, isolation_level=None)) as own:
            own.execute("PRAGMA synchronous = OFF")
            while not ends.is_set():
                own.execute("INSERT INTO counts VALUES (1)")

    writer = threading.Thread(target=commit)
    copier = threading.Thread(target=copy_sqlite, args=(source, target), daemon=True)
    writer.start()
    copier.start()
    copier.join(20)
    is_ended = not copier.is_alive()
    ends.set()
    writer.join()
    copier.join()
    assert is_ended, "the copy went on for as long as the other program did"
    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT length(content) FROM filling").fetchone() == (NUM_BYTES,)
