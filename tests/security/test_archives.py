"""Archives and folders from elsewhere are checked before anything of them is written."""

import io
import pickle
import tarfile

import pytest

from jobs.actions.archive import ArchiveError, export_run, import_run
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
