"""Archives and folders from elsewhere are checked before anything of them is written."""

import io
import json
import os
import pickle
import tarfile

import pytest

from exgrpo_core.checksums import seal
from jobs.actions import unpacking
from jobs.actions.archive import ArchiveError, export_run, import_run
from jobs.actions.backup import back_up, restore
from jobs.actions.unpacking import staging_folder
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec

INFO = seal(
    b'{"name": "one", "created_at": "2026-01-01T00:00:00+00:00", "parent_run_id": null, "branched_from_step": null}'
)
WHOLE = (("run-1/spec.json", b"{}"), ("run-1/run.json", INFO))
NAMES = (
    "../evil",
    "../../evil",
    "/evil",
    "//evil",
    "run-1/../../evil",
    "run-1/../evil",
    "./../evil",
    "run-1/a/../../../evil",
    "..",
    ".",
    "",
)
TOPS = ("workbench", ".hidden", "-rf", "two words", "a" * 81, "x\\y", "x:y")


def member(name, kind=tarfile.REGTYPE, link="", size=0):
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


LINKS = (
    member("run-1/x", tarfile.SYMTYPE, "/etc/passwd"),
    member("run-1/x", tarfile.SYMTYPE, "spec.json"),
    member("run-1/x", tarfile.SYMTYPE, "../../.."),
    member("run-1/x", tarfile.LNKTYPE, "/etc/passwd"),
    member("run-1/x", tarfile.LNKTYPE, "../../evil"),
    member("run-1/x", tarfile.LNKTYPE, "run-1/../../evil"),
    member("run-1/x", tarfile.FIFOTYPE),
    member("run-1/x", tarfile.CHRTYPE),
    member("run-1/x", tarfile.BLKTYPE),
)


def write(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            made = member(name, size=len(content)) if isinstance(content, bytes) else content
            archive.addfile(made, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


def left_in(root):
    """What an import or restore that was refused left in a runs root, hidden folders included."""
    return [path.name for path in root.glob("*")] if root.exists() else []


def test_members_that_lead_elsewhere_are_refused_and_nothing_is_left_of_them(tmp_path, tried):
    (tmp_path / "evil").write_text("untouched")
    cases = [[*WHOLE, (name, b"evil")] for name in NAMES]
    cases += [[*WHOLE, ("x", link)] for link in LINKS]
    cases += [[(name.replace("run-1", top), content) for name, content in WHOLE] for top in TOPS]
    cases += [[*WHOLE, ("run-2/spec.json", b"{}")]]
    for number, members in enumerate(cases):
        source = write(tmp_path / f"{number}.tar.gz", members)
        with pytest.raises(ArchiveError):
            import_run(source, tmp_path / "runs")
        assert left_in(tmp_path / "runs") == []
    assert (tmp_path / "evil").read_text() == "untouched"
    tried("hostile archives", len(cases))


def test_an_archive_larger_than_the_disk_is_refused(tmp_path, monkeypatch):
    from collections import namedtuple

    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(100))
    with pytest.raises(ArchiveError, match="100 bytes, which are free"):
        import_run(write(tmp_path / "big.tar.gz", [*WHOLE, ("run-1/zeros", bytes(100_000))]), tmp_path / "runs")


class Planted:
    """Makes a file where it is unpickled."""

    def __init__(self, path):
        self._path = str(path)

    def __reduce__(self):
        return (open, (self._path, "w"))


@pytest.mark.parametrize("name", ["model.pt", "optim.PTH", "pytorch_model.bin", "a.pkl", "a.pickle", "last.ckpt"])
def test_files_that_run_code_when_read_come_in_only_on_trust(tmp_path, name, tried):
    content = pickle.dumps(Planted(tmp_path / "planted"))
    source = write(tmp_path / "run.tar.gz", [*WHOLE, (f"run-1/checkpoints/step-00000001/policy/{name}", content)])
    with pytest.raises(ArchiveError, match="--trust-pickles"):
        import_run(source, tmp_path / "runs")
    run_id = import_run(source, tmp_path / "runs", trusts_pickles=True)
    with pytest.raises(ArchiveError, match="--trust-pickles"):
        import_run(tmp_path / "runs" / run_id, tmp_path / "elsewhere")
    assert not (tmp_path / "planted").exists()
    tried("pickles in archives and folders", 2)


def test_a_link_in_a_run_is_not_exported(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "secret").write_text("canary")
    run = RunDirectory.create(tmp_path / "runs", TrainSpec(), run_id="run-1")
    (run.path / "link").symlink_to(tmp_path / "secret")
    copied = export_run(run, tmp_path / "out")
    assert not (copied / "link").exists()
    with tarfile.open(export_run(run, tmp_path / "run.tar.gz")) as archive:
        assert "run-1/link" not in archive.getnames()


def test_a_folder_with_a_link_is_not_imported(tmp_path):
    (tmp_path / "from").mkdir()
    run = RunDirectory.create(tmp_path / "from", TrainSpec(), run_id="run-1")
    (run.path / "buffer" / "link").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match="not a plain file"):
        import_run(run.path, tmp_path / "runs")


def header(size_field):
    """A header whose size is the given 12 bytes."""
    block = bytearray(tarfile.TarInfo("run-1/x").tobuf(tarfile.USTAR_FORMAT))
    block[124:136], block[148:156] = size_field, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


NAN_TIME = member("run-1/x")
NAN_TIME.pax_headers = {"mtime": "nan"}
BAD_ARCHIVES = {
    "negative size": header(b"\xff" * 10 + b"\xfe\0"),
    "size of 2**80": header(b"\x80\0" + (2**79).to_bytes(10, "big")),
    "size that is no number": header(b"zzzzzzzzzzz\0"),
    "a time that is no number": NAN_TIME.tobuf(tarfile.PAX_FORMAT),
    "link to nothing": member("run-1/x", tarfile.LNKTYPE, "run-1/missing").tobuf(),
    "link to itself": member("run-1/x", tarfile.LNKTYPE, "run-1/x").tobuf(),
    "no archive": b"no archive" * 100,
}


@pytest.mark.parametrize("blocks", BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
@pytest.mark.parametrize("read", [import_run, restore])
def test_bad_archives_are_refused_in_one_sentence_and_leave_nothing(tmp_path, blocks, read, tried):
    source = tmp_path / "bad.tar"
    source.write_bytes(blocks + bytes(1024))
    with pytest.raises(ArchiveError, match=r"bad\.tar: ") as refused:
        read(source, tmp_path / "runs")
    assert "\n" not in str(refused.value)
    assert left_in(tmp_path / "runs") == []
    tried("hostile archives", 1)


@pytest.mark.parametrize("at", [40, -12, -3])
def test_damaged_archive_is_refused(tmp_path, at):
    source = write(tmp_path / "run.tar.gz", [*WHOLE, ("run-1/log.txt", os.urandom(2000))])
    content = bytearray(source.read_bytes())
    content[at] ^= 1
    source.write_bytes(content)
    with pytest.raises(ArchiveError, match=r"run\.tar\.gz: "):
        import_run(source, tmp_path / "runs")
    assert left_in(tmp_path / "runs") == []


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "MAX_MEMBERS", 2)
    with pytest.raises(ArchiveError, match="at most 2 members"):
        import_run(write(tmp_path / "many.tar.gz", [*WHOLE, ("run-1/x", b"")]), tmp_path / "runs")


def test_a_pipe_is_no_archive(tmp_path):
    os.mkfifo(tmp_path / "run.tar.gz")
    with pytest.raises(ArchiveError, match="expected a plain file"):
        import_run(tmp_path / "run.tar.gz", tmp_path / "runs")


SECTIONS = ("algorithm", "model", "data", "optim", "recording", "verl")
SHAPES = (
    *({name: value} for name in SECTIONS for value in (None, 5, "x", [])),
    {"name": 5}, {"num_steps": "5"}, {"num_steps": None}, {"tags": 5}, {"tags": [5]}, {"engine": {}}, {"preset": []},
    {"kind": 5}, {"kind": "other"}, {"kind": None}, {"model": {"source": 5}},
    {"algorithm": {"experience_ratio": "x"}}, {"algorithm": {"experience_ratio": {}}}, {"algorithm": {"mask_range": 5}},
    {"kind": "eval"}, {"kind": "eval", "benchmarks": "x"}, {"kind": "eval", "benchmarks": [5]}, {"kind": "judge"},
)  # fmt: skip


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_specification_of_wrong_shape_is_refused_in_one_sentence(tmp_path, is_folder, tried):
    for number, shape in enumerate(SHAPES):
        content = json.dumps(shape).encode()
        source = tmp_path / f"run-{number}" if is_folder else tmp_path / f"{number}.tar.gz"
        if is_folder:
            source.mkdir()
            (source / "spec.json").write_bytes(content)
            (source / "run.json").write_bytes(INFO)
        else:
            write(source, [("run-1/spec.json", content), ("run-1/run.json", INFO)])
        with pytest.raises(ArchiveError, match=r"spec\.json: .*expected.*nothing imported") as refused:
            import_run(source, tmp_path / "runs")
        assert "\n" not in str(refused.value), shape
    assert not [*(tmp_path / "runs").glob("run-*")]
    tried("specifications of wrong shape", len(SHAPES))


def test_a_specification_of_another_version_is_imported(tmp_path):
    content = json.dumps({"num_steps": -1, "gone": {"field": 1}, "engine": "old", "algorithm": {"gone": 2}}).encode()
    source = write(tmp_path / "run.tar.gz", [("run-1/spec.json", content), ("run-1/run.json", INFO)])
    assert import_run(source, tmp_path / "runs") == "run-1"


PROCESS_FILES = ("lock", "heartbeat.json", "ray.json")


@pytest.mark.parametrize("is_folder", [False, True])
def test_an_imported_attempt_names_no_process_and_no_cluster(tmp_path, is_folder):
    paths = [f"run-1/attempts/0001/{name}" for name in PROCESS_FILES]
    source = write(tmp_path / "run.tar.gz", [*WHOLE, *((path, b"{}") for path in paths)])
    if is_folder:
        with tarfile.open(source) as archive:
            archive.extractall(tmp_path / "elsewhere", filter="data")
        source = tmp_path / "elsewhere" / "run-1"
    assert import_run(source, tmp_path / "runs") == "run-1"
    assert not [path for path in (tmp_path / "runs").rglob("*") if path.name in PROCESS_FILES]


def test_a_restored_attempt_names_no_cluster(tmp_path):
    (tmp_path / "runs").mkdir()
    run = RunDirectory.create(tmp_path / "runs", TrainSpec(), run_id="run-1")
    (run.attempt_path(run.claim_attempt()) / "ray.json").write_text("{}")
    back_up(tmp_path / "runs", None, tmp_path / "all.tar")
    restore(tmp_path / "all.tar", tmp_path / "again")
    assert (tmp_path / "again" / "run-1" / "attempts" / "0001").is_dir()
    assert not [*(tmp_path / "again").rglob("ray.json")]


@pytest.mark.parametrize("purpose", ["importing", "adopting", "restoring"])
def test_what_a_killed_import_left_is_removed_and_what_a_living_one_writes_is_kept(tmp_path, purpose):
    killed = tmp_path / f".{purpose}-killed"
    (killed / "content" / "run-1").mkdir(parents=True)
    with staging_folder(tmp_path, purpose) as living, staging_folder(tmp_path, purpose):
        assert living.is_dir()
        assert not killed.exists()
    assert [*tmp_path.iterdir()] == []
