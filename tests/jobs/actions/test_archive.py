import errno
import io
import json
import os
import pickle
import pkgutil
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from exgrpo.jobs.actions.archive import ArchiveError, export_run, import_run, staging_folder, unpack
from exgrpo.jobs.actions.backup import back_up, restore
from exgrpo.jobs.runs.directory import RunDirectory, list_run_directories
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.bounded_json import seal

INFO = seal(
    b'{"name": "one", "created_at": "2026-01-01T00:00:00+00:00", "parent_run_id": null, "branched_from_step": null}'
)
WHOLE = {"run-1/spec.json": b"{}", "run-1/run.json": INFO}
PROCESS_FILES = ("lock", "heartbeat.json", "ray.json")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "runs").mkdir()
    run = RunDirectory.create(tmp_path / "runs", TrainSpec(name="one"), run_id="run-1")
    run.claim_attempt()
    for name in PROCESS_FILES:
        (run.attempt_path(1) / name).write_text("{}")
    (run.buffer_path / "segment-000001.rows").write_bytes(b"rows")
    run.request_stop()
    return run


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def write(path: Path, members: dict[str, bytes | tarfile.TarInfo]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            made = member(name)
            made.size = len(content)
            archive.addfile(made, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["run.tar.gz", "folder"])
def test_exported_run_comes_back_with_its_files_but_no_process_request_link_or_unfinished_checkpoint(
    run, tmp_path, name
):
    (tmp_path / "folder").mkdir()
    (run.checkpoints_path / ".step-00000003.0a1b2c3d").mkdir()
    (run.path / "link").symlink_to("/etc/passwd")
    run_id = import_run(export_run(run, tmp_path / name), tmp_path / "elsewhere")
    copy = RunDirectory.open(tmp_path / "elsewhere", run_id)
    assert copy.spec() == run.spec()
    assert (copy.buffer_path / "segment-000001.rows").read_bytes() == b"rows"
    assert (copy.attempts(), copy.stop_requested(), (copy.path / "link").exists()) == ([1], False, False)
    assert list(copy.checkpoints_path.iterdir()) == []
    assert list(copy.attempt_path(1).iterdir()) == []
    (entry,) = Journal(tmp_path / "elsewhere").entries()
    assert (entry.kind, entry.run_id) == (JournalKind.IMPORTED, run_id)


@pytest.mark.parametrize("is_folder", [False, True])
def test_an_imported_attempt_names_no_process_and_no_cluster(tmp_path, is_folder):
    source = write(tmp_path / "a.tar.gz", WHOLE | {f"run-1/attempts/0001/{name}": b"{}" for name in PROCESS_FILES})
    if is_folder:
        with tarfile.open(source) as archive:
            archive.extractall(tmp_path / "elsewhere", filter="data")
        source = tmp_path / "elsewhere" / "run-1"
    assert import_run(source, tmp_path / "runs") == "run-1"
    assert not [path for path in (tmp_path / "runs").rglob("*") if path.name in PROCESS_FILES]


def test_a_restored_attempt_names_no_cluster(run, tmp_path):
    back_up(run.path.parent, tmp_path / "all.tar")
    restore(tmp_path / "all.tar", tmp_path / "again")
    assert (tmp_path / "again" / "run-1" / "attempts" / "0001").is_dir()
    assert not [*(tmp_path / "again").rglob("ray.json")]


def test_archive_names_no_user_of_this_machine(run, tmp_path):
    with tarfile.open(export_run(run, tmp_path / "run.tar.gz")) as archive:
        assert {(member.uid, member.uname) for member in archive} == {(0, "")}


def test_run_that_is_there_is_not_overwritten(run):
    with pytest.raises(ArchiveError, match="already"):
        import_run(run.path, run.path.parent)


def test_export_overwrites_a_file_only_if_told_and_never_a_folder(run, tmp_path):
    target = tmp_path / "run.tar.gz"
    target.write_text("mine")
    with pytest.raises(ArchiveError):
        export_run(run, target)
    assert target.read_text() == "mine"
    export_run(run, target, overwrites=True)
    assert import_run(target, tmp_path / "elsewhere") == run.run_id
    with pytest.raises(ArchiveError):
        export_run(run, run.path.parent, overwrites=True)
    assert run.spec().name == "one"


@pytest.mark.parametrize(
    "members",
    [
        *(WHOLE | {name: b"evil"} for name in ("../evil", "/tmp/evil", "run-1/../../evil", "run-1/a/../../../evil")),
        *(
            WHOLE | {"x": member("run-1/x", kind, link)}
            for kind, link in (
                (tarfile.SYMTYPE, "/etc/passwd"), (tarfile.SYMTYPE, "spec.json"), (tarfile.SYMTYPE, "../../.."),
                (tarfile.LNKTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "../../evil"), (tarfile.LNKTYPE, "run-1/missing"),
                (tarfile.FIFOTYPE, ""), (tarfile.CHRTYPE, ""),
            )
        ),
        *(
            {name.replace("run-1", top): content for name, content in WHOLE.items()}
            for top in ("workbench", ".hidden", "-rf", "two words", "a" * 81)
        ),
        WHOLE | {"run-2/spec.json": b"{}"},
        {"run-1/run.json": INFO},
        *(WHOLE | {name: content} for name in WHOLE for content in (b"", b"[", b"\xff")),
    ],
)  # fmt: skip
def test_an_archive_that_is_no_run_or_leads_elsewhere_is_refused_and_nothing_is_left(tmp_path, members):
    root = tmp_path / "deep" / "runs"
    with pytest.raises(ArchiveError, match=r"evil\.tar\.gz: "):
        import_run(write(tmp_path / "evil.tar.gz", members), root)
    assert list(root.iterdir()) == []
    assert not (tmp_path / "deep" / "evil").exists()


def header(size_field: bytes) -> bytes:
    """A header whose size is the given 12 bytes."""
    block = bytearray(tarfile.TarInfo("run-1/x").tobuf(tarfile.USTAR_FORMAT))
    block[124:136], block[148:156] = size_field, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def with_header(kind: bytes, size: int, content: bytes = b"") -> bytes:
    """An archive of one member of a kind, with a header that says `size` bytes."""
    made = member("run-1/x", kind)
    made.size = size
    return made.tobuf(tarfile.GNU_FORMAT) + content


def deep(*depths: int) -> dict[str, bytes]:
    return WHOLE | {"run-1/" + "a/" * depth + "x": b"" for depth in depths}


def sparse() -> bytes:
    made = member("run-1/x")
    made.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "run-1/x"}
    made.size = 1 << 30
    return made.tobuf(tarfile.PAX_FORMAT) + b"9" * 512


@pytest.mark.parametrize("depths", [(900, 1400), (63,)])
def test_a_deep_archive_is_refused_and_stops_no_later_import_and_no_backup(tmp_path, depths):
    root = tmp_path / "runs"
    with pytest.raises(ArchiveError, match=r"deep\.tar\.gz: has folders deeper than 64"):
        import_run(write(tmp_path / "deep.tar.gz", deep(*depths)), root)
    assert [*root.iterdir()] == []
    assert import_run(write(tmp_path / "good.tar.gz", deep(61)), root) == "run-1"
    back_up(root, tmp_path / "all.tar")


@pytest.fixture
def deep_folder(tmp_path):
    """A folder that holds 1,500 folders inside each other, which pytest could not remove."""
    folder = tmp_path / "elsewhere" / "run-1"
    folder.mkdir(parents=True)
    made = os.open(folder, os.O_RDONLY)
    for _ in range(1_500):  # by steps, since no path may be so long
        os.mkdir("a", dir_fd=made)
        inner = os.open("a", os.O_RDONLY, dir_fd=made)
        os.close(made)
        made = inner
    os.close(made)
    yield folder
    subprocess.run(["rm", "-rf", tmp_path / "elsewhere", tmp_path / "runs"], check=True)


def test_a_deep_leftover_is_removed_and_stops_no_backup(deep_folder, tmp_path):
    root = tmp_path / "runs"
    root.mkdir()
    deep_folder.rename(root / ".importing-1")
    back_up(root, tmp_path / "all.tar")
    assert import_run(write(tmp_path / "good.tar.gz", WHOLE), root) == "run-1"
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []


def dead(*_, **__):
    """In place of a function of an import: the process is killed where it is called."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "place", ["unpack", "_check_bounds", "_check_name", "_check_run", "tempfile.mkdtemp", "Path.rename", "Path.chmod"]
)
def test_an_import_that_is_killed_anywhere_stops_no_later_import_and_no_backup_and_its_rest_is_removed(tmp_path, place):
    root, source = tmp_path / "runs", write(tmp_path / "good.tar.gz", WHOLE | {"run-1/a/b": b"x" * 5000})
    if (child := os.fork()) == 0:
        try:
            owner, _, name = f"exgrpo.jobs.actions.archive.{place}".rpartition(".")
            setattr(pkgutil.resolve_name(owner), name, dead)
            import_run(source, root)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert list_run_directories(root) == []
    back_up(root, tmp_path / "all.tar")
    assert import_run(source, root) == "run-1"
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []
    back_up(root, tmp_path / "later.tar")


@pytest.mark.parametrize("rest", ["lock that is a folder", "file", "link", "link to itself", "folder of another user"])
def test_a_rest_that_cannot_be_removed_stops_no_import(tmp_path, rest, monkeypatch):
    root = tmp_path / "runs"
    left = root / ".importing-1"
    root.mkdir()
    if rest == "lock that is a folder":
        (left / "staging.lock").mkdir(parents=True)
    elif rest == "file":
        left.write_text("x")
    elif rest.startswith("link"):
        left.symlink_to(left if rest == "link to itself" else tmp_path)
    else:
        left.mkdir()
        opened = os.open

        def refused(path, *arguments, **options):
            if str(path).startswith(str(left)):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return opened(path, *arguments, **options)

        monkeypatch.setattr(os, "open", refused)
    assert import_run(write(tmp_path / "good.tar.gz", WHOLE), root) == "run-1"
    back_up(root, tmp_path / "all.tar")
    assert [*tmp_path.glob("good*")], "what a link leads to stays"


def test_a_deep_folder_is_refused_and_leaves_nothing(deep_folder, tmp_path):
    for name, content in WHOLE.items():
        (deep_folder.parent / name).write_bytes(content)
    with pytest.raises(ArchiveError, match="deeper than 64"):
        import_run(deep_folder, tmp_path / "runs")
    assert not [*tmp_path.glob("runs/*")]


@pytest.mark.parametrize("read", [import_run, restore])
def test_the_number_of_members_is_bounded(tmp_path, monkeypatch, read):
    monkeypatch.setattr("exgrpo.jobs.actions.archive.MAX_MEMBERS", 3)
    monkeypatch.setattr(unpack, "__defaults__", (*unpack.__defaults__[:-1], 3))
    source = write(tmp_path / "many.tar.gz", WHOLE | {f"run-1/{number}": b"" for number in range(2)})
    with pytest.raises(ArchiveError, match="more than 3 files"):
        read(source, tmp_path / "runs")
    assert not [*tmp_path.glob("runs/*")]


def test_what_is_imported_is_its_users_alone(tmp_path):
    source = write(tmp_path / "a.tar.gz", WHOLE | {"run-1/a/b": b"x"})
    old = os.umask(0)
    try:
        import_run(source, tmp_path / "first")
        for path in (tmp_path / "first").rglob("*"):
            path.chmod(0o777)
        import_run(tmp_path / "first" / "run-1", tmp_path / "second")
    finally:
        os.umask(old)
    for root in (tmp_path / "second" / "run-1", import_mode(tmp_path, source)):
        modes = {path.is_dir(): path.stat().st_mode & 0o7777 for path in (root, *root.rglob("*"))}
        assert modes == {True: 0o700, False: 0o600}


def import_mode(tmp_path: Path, source: Path) -> Path:
    return tmp_path / "third" / import_run(source, tmp_path / "third")


def at_no_time() -> bytes:
    made = member("run-1/x")
    made.pax_headers = {"mtime": "nan"}
    return made.tobuf(tarfile.PAX_FORMAT)


@pytest.mark.parametrize(
    "blocks",
    [
        header(b"\xff" * 10 + b"\xfe\0"), header(b"\x80\0" + (2**79).to_bytes(10, "big")), header(b"zzzzzzzzzzz\0"),
        at_no_time(), b"no archive" * 100,
        with_header(tarfile.XHDTYPE, 2 << 30), with_header(tarfile.XGLTYPE, 2 << 20),
        with_header(tarfile.GNUTYPE_LONGNAME, 2 << 30), with_header(tarfile.GNUTYPE_LONGLINK, 2 << 20),
        with_header(tarfile.SOLARIS_XHDTYPE, 2 << 30), with_header(tarfile.GNUTYPE_SPARSE, 10), sparse(),
    ],
    ids=[
        *("negative size", "size of 2**79", "size that is no number", "time that is no number", "no archive"),
        *("large pax header", "large global header", "large name", "large link", "large header of Solaris"),
        *("sparse file", "sparse file by pax"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("read", [import_run, restore])
def test_bad_archives_are_refused_in_one_sentence_and_leave_nothing(tmp_path, blocks, read):
    source = tmp_path / "bad.tar"
    source.write_bytes(blocks + bytes(1024))
    with pytest.raises(ArchiveError, match=r"bad\.tar(: | holds)") as refused:
        read(source, tmp_path / "runs")
    assert "\n" not in str(refused.value)
    assert not [*tmp_path.glob("runs/*")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda content: content[:-1000] + bytes([content[-1000] ^ 1]) + content[-999:],
        lambda content: content[:-4] + bytes([content[-4] ^ 1]) + content[-3:],
        lambda content: content[: len(content) // 2],
    ],
)
def test_archive_that_is_cut_or_has_a_changed_byte_leaves_nothing(run, tmp_path, damage):
    (run.path / "log.txt").write_bytes(os.urandom(100_000))
    archive = export_run(run, tmp_path / "run.tar.gz")
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.raises(ArchiveError):
        import_run(archive, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_does_not_fit_on_the_disk_is_refused(run, tmp_path, monkeypatch):
    archive = export_run(run, tmp_path / "run.tar.gz")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3))
    for source in (archive, run.path):
        with pytest.raises(ArchiveError) as refused:
            import_run(source, tmp_path / "elsewhere")
        assert str(refused.value).startswith(f"{tmp_path / 'elsewhere'}: ")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("read", [import_run, restore])
def test_a_python_that_cannot_unpack_safely_refuses_archives(run, tmp_path, monkeypatch, read):
    archive = export_run(run, tmp_path / "run.tar.gz")
    monkeypatch.delattr("tarfile.data_filter")
    with pytest.raises(ArchiveError):
        read(archive, tmp_path / "elsewhere")
    assert not [*tmp_path.glob("elsewhere/*")]


@pytest.mark.parametrize(
    "name", ["model.pt", "optim.PTH", "a.bin", "a.pkl", "a.pt.tar", "a.joblib", "a.Pickle.gz", "state", "a.npz"]
)
def test_files_that_run_code_when_read_come_in_only_on_trust(tmp_path, name):
    content = {"state": pickle.dumps({"a": 1}), "a.npz": zip_of("data.pkl")}.get(name, b"pickle")
    source = write(tmp_path / "run.tar.gz", WHOLE | {f"run-1/checkpoints/step-00000001/policy/{name}": content})
    with pytest.raises(ArchiveError):
        import_run(source, tmp_path / "runs")
    run_id = import_run(source, tmp_path / "runs", trusts_pickles=True)
    with pytest.raises(ArchiveError):
        import_run(tmp_path / "runs" / run_id, tmp_path / "elsewhere")


def zip_of(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, b"")
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b"\x80\x02" + bytes(700)), ("pytorch_model.bin.index.json", b"{}"),
        ("a.npz", zip_of("a.npy")), ("log.txt", b"\x80"), ("empty", b""),
    ],
)  # fmt: skip
def test_files_that_run_no_code_need_no_trust(tmp_path, name, content):
    source = write(tmp_path / "run.tar.gz", WHOLE | {f"run-1/{name}": content})
    assert import_run(source, tmp_path / "runs") == "run-1"


def test_folder_or_file_that_is_no_run_is_not_even_copied(run, tmp_path):
    (tmp_path / "home").mkdir()
    os.mkfifo(tmp_path / "home" / "pipe")
    os.mkfifo(tmp_path / "run.tar.gz")
    (run.path / "link").symlink_to("/etc/passwd")
    for source in (tmp_path / "home", tmp_path / "run.tar.gz", run.path, tmp_path / "nowhere"):
        with pytest.raises(ArchiveError, match=str(source)):
            import_run(source, tmp_path / "elsewhere")
    assert not [*tmp_path.glob("elsewhere/*")]


@pytest.mark.parametrize(
    "shape",
    [
        {"algorithm": None}, {"model": 5}, {"name": 5}, {"tags": [5]}, {"kind": "other"}, {"model": {"source": 5}},
        {"kind": "eval", "benchmarks": [5]},
    ],
)  # fmt: skip
def test_a_specification_of_wrong_shape_is_refused(tmp_path, shape):
    source = write(tmp_path / "run.tar.gz", WHOLE | {"run-1/spec.json": json.dumps(shape).encode()})
    with pytest.raises(ArchiveError, match=r"spec\.json: "):
        import_run(source, tmp_path / "runs")
    assert not [*(tmp_path / "runs").iterdir()]


def test_a_specification_of_another_version_is_imported(tmp_path):
    content = json.dumps({"num_steps": -1, "gone": {"field": 1}, "engine": "old", "algorithm": {"gone": 2}}).encode()
    source = write(tmp_path / "run.tar.gz", WHOLE | {"run-1/spec.json": content})
    assert import_run(source, tmp_path / "runs") == "run-1"


def test_what_a_killed_import_left_is_removed_and_what_a_living_one_writes_is_kept(tmp_path):
    for purpose in ("importing", "adopting", "restoring"):
        killed = tmp_path / f".{purpose}-killed"
        (killed / "content" / "run-1").mkdir(parents=True)
        with staging_folder(tmp_path, purpose) as living, staging_folder(tmp_path, purpose):
            assert living.is_dir()
            assert not killed.exists()
    assert [*tmp_path.iterdir()] == []
