import os
import signal
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from typer.testing import CliRunner

from exgrpo.db import SQLITE_FILE
from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.trajectory_list import count_trajectories
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.jobs.actions import rollout_import
from exgrpo.jobs.actions.rollout_import import RolloutImport, read_sources
from exgrpo.jobs.actions.view_roots import open_view_root, runs_at
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.cli.view import expand
from exgrpo.jobs.cli.workbench import Workbench, WorkbenchInstance
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.rollout_formats.formats import UnknownRolloutsError, find_format, find_only_format, formats_in
from exgrpo.jobs.runs.rollout_formats.source import PART_SIZE
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.bounded_json import read_json
from tests.jobs.runs.rollout_formats.test_verl_dumps import line

SAMPLES = Path(__file__).parents[1] / "runs" / "rollout_formats" / "samples"


def test_globs_are_what_they_match_each_path_once(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "rollouts").mkdir(parents=True)
    found = expand([f"{tmp_path}/*/rollouts", str(tmp_path / "a" / "rollouts")])
    assert found == [tmp_path / "a" / "rollouts", tmp_path / "b" / "rollouts"]
    for text in (f"{tmp_path}/*/none", str(tmp_path / "none")):
        with pytest.raises(UnknownRolloutsError):
            expand([text])


def test_a_run_folder_and_a_runs_root_are_our_runs_and_other_folders_are_not(tmp_path):
    runs = [RunDirectory.create(tmp_path / "runs", TrainSpec()).path for _ in range(2)]
    assert runs_at(runs[0]) == [runs[0]]
    assert runs_at(tmp_path / "runs") == sorted(runs)
    assert runs_at(tmp_path) == []


def test_a_folder_with_several_formats_is_several_runs_and_no_single_one():
    assert {reads.title for reads in formats_in(SAMPLES).values()} > {"TRL's completions", "samples of lm-eval"}
    folders = [path for path in SAMPLES.rglob("*") if path.is_dir()]
    assert {path: formats_in(path) for path in folders if formats_in(path)} == {}
    with pytest.raises(UnknownRolloutsError):
        find_only_format(SAMPLES)


@pytest.mark.parametrize("content", [None, "", "words\n"])
def test_what_cannot_be_opened_is_refused_in_one_sentence_and_leaves_no_cache(tmp_path, monkeypatch, content):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "rollouts"
    if content is not None:
        folder.mkdir()
        (folder / "notes.txt").write_text(content)
    result = CliRunner().invoke(app, ["view", str(folder)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert result.stderr.startswith(f"{folder}: ")
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A dump of three parts, of which each call of a reading reads one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(rollout_import, "READ_SECONDS", 0.0)
    dump = tmp_path / "1.jsonl"
    dump.write_text("".join(line(0, number, 1.0) for number in range(2 * PART_SIZE + 1)))
    return dump


def test_a_path_whose_reading_breaks_is_named_and_the_others_are_read(parts, tmp_path, caplog):
    def broken(_):
        raise IndexError

    verl = find_format(parts)
    formats = {tmp_path / "broken": replace(verl, read=broken), parts: verl}
    root = open_view_root([*formats])
    reading = read_sources(formats, {path: path.name for path in formats}, root, follows=False)
    assert [*islice(reading, 5)] == [True, True, True, False, False]
    assert "broken" in caplog.text
    [outcome] = root.rglob("outcome.json")
    assert read_json(outcome)["status"] == "finished"
    reading.close()


def test_the_next_part_is_read_once_the_database_has_the_one_before(parts, monkeypatch):
    root = open_view_root([parts])
    url = f"sqlite:///{root / SQLITE_FILE}"
    counts = []

    def watched():
        for has_more in read_sources({parts: find_format(parts)}, {parts: "dump"}, root, follows=True):
            yield has_more
            with closing(open_database(url, root)) as database:
                counts.append(count_trajectories(database, TrajectoryFacets()))
            if not has_more:
                os.kill(os.getpid(), signal.SIGINT)

    with Popen(["sleep", "60"], stdout=PIPE) as pages:
        monkeypatch.setattr(Workbench, "_start_pages", lambda _: pages)
        assert Workbench(root, None).view(opens_browser=False, reading=watched()) == 0
    assert counts[:3] == [PART_SIZE, 2 * PART_SIZE, 2 * PART_SIZE + 1]


def test_a_second_view_is_refused_and_leaves_the_run_that_the_first_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    dump = tmp_path / "1.jsonl"
    dump.write_text(line(0, 0, 1.0))
    root = open_view_root([dump])
    served, first = WorkbenchInstance(root), RolloutImport(dump, find_format(dump), root, "first")
    first.advance()
    [file] = (root / first.run_id).rglob("record-*")
    with file.open("a") as written:
        written.write("a step of which the end is not yet kept\n")
    result = CliRunner().invoke(app, ["view", str(dump), "--no-browser"])
    assert (result.exit_code, str(root) in result.stderr, file.exists()) == (1, True, True)
    first.close()
    served.release()
