"""Archives and folders from elsewhere are checked before anything of them is written."""

import io
import json
import os
import pickle
import struct
import tarfile
import tracemalloc

import pytest

from jobs.actions import archive_members
from jobs.actions.archive import ArchiveError, export_run, import_run
from jobs.actions.backup import back_up, restore
from jobs.actions.staging import staging_folder
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec

INFO = b'{"name": "one", "created_at": "2026-01-01T00:00:00+00:00", "parent_run_id": null, "branched_from_step": null}'
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


@pytest.fixture
def extracted(monkeypatch):
    """What was extracted."""
    found = []
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, *_, **__: found.append(self.name))
    monkeypatch.setattr(tarfile.TarFile, "extract", lambda self, *_, **__: found.append(self.name))
    return found


def test_members_that_lead_elsewhere_are_refused_before_anything_is_extracted(tmp_path, extracted, tried):
    (tmp_path / "evil").write_text("untouched")
    cases = [[*WHOLE, (name, b"evil")] for name in NAMES]
    cases += [[*WHOLE, ("x", link)] for link in LINKS]
    cases += [[(name.replace("run-1", top), content) for name, content in WHOLE] for top in TOPS]
    cases += [[*WHOLE, ("run-2/spec.json", b"{}")]]
    for number, members in enumerate(cases):
        source = write(tmp_path / f"{number}.tar.gz", members)
        with pytest.raises(ArchiveError):
            import_run(source, tmp_path / "runs")
    assert extracted == []
    assert (tmp_path / "evil").read_text() == "untouched"
    assert not any(path.name != "workbench" for path in (tmp_path / "runs").iterdir())
    tried("hostile archives", len(cases))


def with_path(path):
    """A member whose name is in an extended header, which may hold what a block cannot."""
    made = member("x")
    made.pax_headers = {"path": path}
    return made


REPLACED = {
    "written through a link": (("x", member("run-1/x", tarfile.LNKTYPE, "run-1/spec.json")), ("run-1/x", b"[1]")),
    "replaced by a link": (("run-1/y", b"[1]"), ("x", member("run-1/spec.json", tarfile.LNKTYPE, "run-1/y"))),
    "twice": (("run-1/spec.json/.", b"{}"),),
    "link to nothing": (("x", member("run-1/x", tarfile.LNKTYPE, "run-1/missing")),),
    "link to itself": (("x", member("run-1/x", tarfile.LNKTYPE, "run-1/x")),),
    "name with a zero byte": (("x", with_path("run-1/attempts/0001/ray.json\0")),),
}


@pytest.mark.parametrize("members", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("read", [import_run, restore])
def test_no_member_replaces_what_was_checked(tmp_path, members, read, tried):
    with pytest.raises(ArchiveError, match="nothing is written"):
        read(write(tmp_path / "run.tar.gz", [*WHOLE, *members]), tmp_path / "runs")
    assert not [*(tmp_path / "runs").glob("run-*")]
    tried("hostile archives", 1)


def test_an_archive_larger_than_the_disk_is_refused_before_anything_is_extracted(tmp_path, extracted, monkeypatch):
    from collections import namedtuple

    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(100))
    with pytest.raises(ArchiveError, match="100 are free"):
        import_run(write(tmp_path / "big.tar.gz", [*WHOLE, ("run-1/zeros", bytes(100_000))]), tmp_path / "runs")
    assert extracted == []


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


def raw_block(name, size_field, kind=b"0"):
    """A header whose size is the given 12 bytes."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    block[124:136], block[156:157], block[148:156] = size_field, kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def base_256(number):
    return struct.pack(">B3xq", 0xFF if number < 0 else 0x80, number).replace(b"\0\0\0", b"\xff" * 3, number < 0)


def pax_record(name, value):
    body = f" {name}={value}\n".encode()
    length = len(body) + 2
    return str(length if len(str(length)) + len(body) == length else length + 1).encode() + body


def pax_block(content, kind=b"x"):
    return raw_block("pax", b"%011o\0" % len(content), kind) + content + bytes(-len(content) % 512)


FILE = raw_block("run-1/spec.json", b"%011o\0" % 0)
BAD_HEADERS = {
    "negative size": raw_block("run-1/x", base_256(-512)),
    "negative size of an extended header": raw_block("run-1/x", base_256(-512), b"x"),
    "negative size of a long name": raw_block("run-1/x", base_256(-512), b"L"),
    "negative size in an extended header": pax_block(pax_record("size", -512)) + FILE,
    "size of 2**80": raw_block("run-1/x", b"\x80\0" + (2**79).to_bytes(10, "big")),
    "size that is no number": raw_block("run-1/x", b"zzzzzzzzzzz\0"),
    "14 MB of extended header": pax_block(pax_record("a" * 14, "b" * 14) * 400_000),
    "header for all members": pax_block(pax_record("comment", "x"), b"g") + FILE,
    "a thousand extended headers": pax_block(pax_record("comment", "x")) * 1000 + FILE,
    "sparse file": raw_block("run-1/x", b"%011o\0" % 0, b"S"),
}


@pytest.mark.parametrize("blocks", BAD_HEADERS.values(), ids=BAD_HEADERS)
@pytest.mark.parametrize("read", [import_run, restore])
def test_bad_headers_are_refused_by_their_first_block(tmp_path, extracted, blocks, read, tried):
    source = tmp_path / "bad.tar"
    source.write_bytes(blocks + bytes(1024))
    tracemalloc.start()
    with pytest.raises(ArchiveError, match=r"bad\.tar: ") as refused:
        read(source, tmp_path / "runs")
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    assert "\n" not in str(refused.value)
    assert extracted == []
    tried("hostile archives", 1)


def test_too_many_members_are_refused(tmp_path, extracted, monkeypatch):
    monkeypatch.setattr("jobs.actions.archive_members.MAX_MEMBERS", 2)
    with pytest.raises(ArchiveError, match="more than 2 members"):
        import_run(write(tmp_path / "many.tar.gz", [*WHOLE, ("run-1/x", b"")]), tmp_path / "runs")
    assert extracted == []


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
def test_a_specification_of_wrong_shape_is_refused_in_one_sentence(tmp_path, extracted, is_folder, tried):
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
    assert extracted == []
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


def test_an_archive_that_takes_too_long_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_members, "BASE_SECONDS", 0.01)
    monkeypatch.setattr(archive_members, "BYTES_A_SECOND", 1 << 40)
    source = write(tmp_path / "bomb.tar.gz", [*WHOLE, ("run-1/zeros", bytes(64 << 20))])
    assert source.stat().st_size < 1 << 20
    with pytest.raises(ArchiveError, match=r"bomb\.tar\.gz: takes longer than 0 s to read; nothing is written\."):
        import_run(source, tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []
