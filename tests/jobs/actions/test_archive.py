import io
import os
import re
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from exgrpo_core.checksums import seal
from jobs.actions.archive import ArchiveError, export_run, import_run
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal, JournalKind
from jobs.specs.train import TrainSpec


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "runs").mkdir()
    run = RunDirectory.create(tmp_path / "runs", TrainSpec(name="one"))
    run.claim_attempt()
    (run.attempt_path(1) / "lock").touch()
    (run.buffer_path / "segment-000001.rows").write_bytes(b"rows")
    run.request_stop()
    return run


def write_archive(path: Path, members: dict[str, bytes | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


INFO = seal(
    b'{"name": "one", "created_at": "2026-01-01T00:00:00+00:00", "parent_run_id": null, "branched_from_step": null}'
)
WHOLE = {"run-1/spec.json": b"{}", "run-1/run.json": INFO}


@pytest.mark.parametrize("name", ["run.tar.gz", "folder"])
def test_exported_run_comes_back_with_the_same_files(run, tmp_path, name):
    (tmp_path / "folder").mkdir()
    being_saved = run.checkpoints_path / ".step-00000003.0a1b2c3d"
    being_saved.mkdir(parents=True)
    exported = export_run(run, tmp_path / name)
    run_id = import_run(exported, tmp_path / "elsewhere")
    copy = RunDirectory.open(tmp_path / "elsewhere", run_id)
    assert copy.spec() == run.spec()
    assert (copy.buffer_path / "segment-000001.rows").read_bytes() == b"rows"
    assert copy.attempts() == [1]
    assert list(copy.checkpoints_path.iterdir()) == []


def test_import_takes_over_neither_locks_nor_wishes_to_stop(run, tmp_path):
    run_id = import_run(export_run(run, tmp_path / "run.tar.gz"), tmp_path / "elsewhere")
    copy = RunDirectory.open(tmp_path / "elsewhere", run_id)
    assert not copy.stop_requested()
    assert not (copy.attempt_path(1) / "lock").exists()


def test_import_is_written_to_the_journal(run, tmp_path):
    run_id = import_run(run.path, tmp_path / "elsewhere")
    (entry,) = Journal(tmp_path / "elsewhere").entries()
    assert (entry.kind, entry.run_id) == (JournalKind.IMPORTED, run_id)


def test_archive_names_no_user_of_this_machine(run, tmp_path):
    with tarfile.open(export_run(run, tmp_path / "run.tar.gz")) as archive:
        assert {(member.uid, member.uname) for member in archive} == {(0, "")}


def test_run_that_is_there_is_not_overwritten(run):
    with pytest.raises(ArchiveError, match="already"):
        import_run(run.path, run.path.parent)


def test_export_does_not_overwrite(run, tmp_path):
    (tmp_path / "run.tar.gz").write_text("mine")
    with pytest.raises(ArchiveError, match="exists already"):
        export_run(run, tmp_path / "run.tar.gz")
    assert (tmp_path / "run.tar.gz").read_text() == "mine"


def test_export_overwrites_a_file_that_it_is_told_to(run, tmp_path):
    (tmp_path / "run.tar.gz").write_text("old")
    export_run(run, tmp_path / "run.tar.gz", overwrites=True)
    assert import_run(tmp_path / "run.tar.gz", tmp_path / "elsewhere") == run.run_id


def test_export_overwrites_no_folder_not_even_the_run_itself(run):
    with pytest.raises(ArchiveError, match="choose another target"):
        export_run(run, run.path.parent, overwrites=True)
    assert run.spec().name == "one"


@pytest.mark.parametrize("name", ["missing/run.tar.gz", "missing"])
def test_export_makes_no_folders(run, tmp_path, name):
    with pytest.raises(ArchiveError, match=r"missing: no such folder; create it first"):
        export_run(run, tmp_path / name)
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    "member",
    [
        {"../evil": b"x"},
        {"/tmp/evil": b"x"},
        {"run-1/../../evil": b"x"},
        {"run-1/link": link("run-1/link", "/etc/passwd", tarfile.SYMTYPE)},
        {"run-1/link": link("run-1/link", "../../evil", tarfile.LNKTYPE)},
        {"run-1/pipe": link("run-1/pipe", "", tarfile.FIFOTYPE)},
        {"run-1/device": link("run-1/device", "", tarfile.CHRTYPE)},
    ],
)
def test_hostile_member_is_refused_and_nothing_is_left(tmp_path, member):
    archive = write_archive(tmp_path / "evil.tar.gz", WHOLE | member)
    root = tmp_path / "deep" / "runs"
    with pytest.raises(ArchiveError, match=r"evil\.tar\.gz: "):
        import_run(archive, root)
    assert list(root.iterdir()) == []
    assert not (tmp_path / "deep" / "evil").exists()


@pytest.mark.parametrize("folder", ["workbench", ".hidden", "two words"])
def test_badly_named_run_folder_is_refused(tmp_path, folder):
    members = {f"{folder}/spec.json": b"{}", f"{folder}/run.json": b"{}"}
    with pytest.raises(ArchiveError, match="run id"):
        import_run(write_archive(tmp_path / "run.tar.gz", members), tmp_path / "runs")


def test_two_folders_in_one_archive_are_refused(tmp_path):
    members = WHOLE | {"run-2/spec.json": b"{}"}
    with pytest.raises(ArchiveError, match="expected one run folder"):
        import_run(write_archive(tmp_path / "run.tar.gz", members), tmp_path / "runs")


def test_archive_without_a_specification_is_no_run(tmp_path):
    archive = write_archive(tmp_path / "run.tar.gz", {"run-1/run.json": b"{}"})
    with pytest.raises(ArchiveError, match=r"holds no spec\.json"):
        import_run(archive, tmp_path / "runs")


def test_file_that_is_no_archive_is_one_sentence(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ArchiveError, match="expected a folder, or a") as refused:
        import_run(tmp_path / "notes.txt", tmp_path / "runs")
    assert "\n" not in str(refused.value)


def test_import_of_nothing_names_the_path(tmp_path):
    with pytest.raises(ArchiveError, match=r"nowhere: does not exist"):
        import_run(tmp_path / "nowhere", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_folder_that_is_no_run_is_not_even_copied(tmp_path):
    (tmp_path / "home").mkdir()
    os.mkfifo(tmp_path / "home" / "pipe")
    with pytest.raises(ArchiveError, match=r"holds no spec\.json, so it is no run folder"):
        import_run(tmp_path / "home", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["run.json", "spec.json"])
@pytest.mark.parametrize("content", [b"", b"[", b"\xff"])
def test_damaged_description_of_a_run_is_refused(tmp_path, name, content):
    archive = write_archive(tmp_path / "run.tar.gz", WHOLE | {f"run-1/{name}": content})
    with pytest.raises(ArchiveError, match=rf"{archive}: {re.escape(name)}: "):
        import_run(archive, tmp_path / "runs")


@pytest.mark.parametrize("from_end", [1_000, 4])
def test_archive_with_a_changed_byte_leaves_nothing(run, tmp_path, from_end):
    (run.path / "log.txt").write_bytes(os.urandom(100_000))
    archive = export_run(run, tmp_path / "run.tar.gz")
    content = bytearray(archive.read_bytes())
    content[-from_end] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ArchiveError, match=rf"{archive}: "):
        import_run(archive, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_cut_archive_leaves_nothing(run, tmp_path):
    (run.path / "log.txt").write_bytes(os.urandom(100_000))
    archive = export_run(run, tmp_path / "run.tar.gz")
    archive.write_bytes(archive.read_bytes()[:60_000])
    with pytest.raises(ArchiveError):
        import_run(archive, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_folder_with_a_symbolic_link_is_refused(run, tmp_path):
    (run.path / "link").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match="link is not a plain file"):
        import_run(run.path, tmp_path / "elsewhere")


def test_folder_that_cannot_be_read_is_named(run, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.copyfile", refuse)
    with pytest.raises(ArchiveError, match=f"^{run.path}: cannot be copied .*Permission denied"):
        import_run(run.path, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_folder_that_is_larger_than_the_room_is_not_even_begun(run, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3))
    with pytest.raises(ArchiveError, match="and 3 are free; nothing imported"):
        import_run(run.path, tmp_path / "elsewhere")
