import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.branching import branch_spec
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.cli.main import app
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec
from tests.app import recorded
from tests.jobs.cli.invoked import WIDE, exgrpo, printed_json


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def submit(runs_root: Path, name: str = "toy", **fields: object) -> str:
    return queue_job(runs_root, TrainSpec(name=name, num_steps=2, **fields))


def test_runs_are_listed_with_their_state_and_an_empty_root_says_how_to_start(runs_root):
    assert "exgrpo train" in exgrpo(runs_root, "runs")
    run_id = submit(runs_root, tags=("paper",))
    (row,) = printed_json(runs_root, "runs")
    assert (row["run_id"], row["status"], row["num_steps"], row["tags"]) == (run_id, "queued", 2, ["paper"])
    heading, line = exgrpo(runs_root, "runs").splitlines()[:2]
    assert {run_id, "queued", "0/2"} <= set(line.split())
    assert "Held-out Avg@n" in heading
    assert printed_json(runs_root, "runs", "status:queued", "tag:paper num_steps=2") == [row]
    assert printed_json(runs_root, "runs", "num_steps=2 -tag:paper") == []
    assert "batchsize" in exgrpo(runs_root, "runs", "batchsize=16", code=2)


def test_a_misspelt_runs_root_names_the_folder_that_is_meant(runs_root):
    runs_root.mkdir()
    wrong = runs_root.with_name(f"{runs_root.name}s")
    for command in (["runs"], ["show", "any"]):
        result = CliRunner().invoke(app, [*command, "--runs-root", str(wrong)])
        assert (result.exit_code, f"{runs_root}?" in result.stderr) == (2, True)
    assert not wrong.exists()


def test_a_run_is_named_by_a_part_of_its_id_or_its_name_unless_two_have_it(runs_root):
    first, second, other = submit(runs_root, "same name"), submit(runs_root, "same name"), submit(runs_root, "mine")
    for text in (other[:-2], other.rpartition("-")[2], "mine"):
        assert printed_json(runs_root, "show", text)["run"]["run_id"] == other
    refused = exgrpo(runs_root, "show", "same name", code=2)
    assert first in refused
    assert second in refused
    lines = [line for line in exgrpo(runs_root, "runs").splitlines() if "same name" in line]
    assert all(any(run_id in line for line in lines) for run_id in (first, second))
    assert "'nothing'" in exgrpo(runs_root, "stop", "nothing", code=2)


def test_a_clone_is_printed_or_queued_with_a_name_of_its_own_and_its_parent(runs_root):
    run_id = submit(runs_root)
    printed = exgrpo(runs_root, "clone", run_id, "--set", "num_steps=7")
    assert TrainSpec.model_validate_json(printed) == TrainSpec(name="toy", num_steps=7)
    names = []
    for words in ([], [], ["--set", "name=mine"]):
        copy_id = exgrpo(runs_root, "clone", run_id, "--submit", *words).split()[0]
        info = RunDirectory.open(runs_root, copy_id).read_run_info()
        assert info["parent_run_id"] == run_id
        names.append(info["name"])
    assert names == ["toy copy", "toy copy 2", "mine"]
    result = CliRunner().invoke(app, ["clone", run_id, "--submit", "--runs-root", str(runs_root)])
    assert "exgrpo up" in result.stderr  # no supervisor runs


@pytest.mark.parametrize(
    ("tags", "kept"),
    [
        (("study:ablations", "scale:chains", "cell:repo", "seed:1"), ()),
        (("mine", "study:ablations", "scale:chains", "cell:repo", "seed:1", "b"), ("mine", "b")),
        (("seed:1", "mine"), ("seed:1", "mine")), (("study:of mine", "cell:3"), ("study:of mine", "cell:3")), ((), ()),
    ],
)  # fmt: skip
def test_a_copy_of_a_study_s_run_is_no_run_of_the_study(runs_root, tags, kept):
    run_id = queue_job(runs_root, TrainSpec(name="toy", tags=tags))
    copies = [exgrpo(runs_root, "clone", run_id, "--submit").split()[0]]
    copies.append(queue_job(runs_root, TrainSpec.model_validate_json(exgrpo(runs_root, "clone", run_id))))
    for copy_id in copies:
        assert RunDirectory.open(runs_root, copy_id).job_spec().tags == kept
    assert branch_spec(runs_root, run_id, 1).tags == kept
    file = RunDirectory.open(runs_root, run_id).spec_path
    assert tuple(printed_json(runs_root, "train", "--spec", file, "--dry-run")["spec"]["tags"]) == kept
    assert RunDirectory.open(runs_root, run_id).job_spec().tags == tags


def listed(runs_root, *options):
    return {row["run_id"] for row in printed_json(runs_root, "runs", *options)}


def test_archived_runs_and_tags_survive_a_rebuild_of_the_database(runs_root):
    archived_id, listed_id = submit(runs_root, "old"), submit(runs_root, "new")
    assert "queued" in exgrpo(runs_root, "annotate", "archive", "old", code=2)
    exgrpo(runs_root, "stop", archived_id)
    exgrpo(runs_root, "annotate", "archive", "old")
    for words in (["keep"], ["wrong"], ["wrong", "--remove"]):
        exgrpo(runs_root, "annotate", "tag", listed_id, *words)
    assert listed(runs_root, "--all") == {archived_id, listed_id}
    assert "stopped, archived" in exgrpo(runs_root, "runs", "--all")
    exgrpo(runs_root, "db", "rebuild")
    (row,) = printed_json(runs_root, "runs")
    assert (row["run_id"], row["tags"]) == (listed_id, ["keep"])
    exgrpo(runs_root, "annotate", "archive", "old", "--undo")
    exgrpo(runs_root, "db", "rebuild")
    assert listed(runs_root) == {archived_id, listed_id}


def test_a_file_is_overwritten_only_by_force_and_damage_is_said_at_export_and_import(runs_root, tmp_path):
    run_id, out = submit(runs_root), tmp_path / "run.tar.gz"
    exgrpo(runs_root, "export", run_id, out)
    assert "--force" in exgrpo(runs_root, "export", run_id, out, code=2)
    with (runs_root / run_id / "spec.json").open("a") as file:
        file.write("\n")
    words = [["export", run_id, str(out), "--force", "--runs-root", str(runs_root)]]
    words.append(["import", str(out), "--runs-root", str(tmp_path / "elsewhere")])
    for result in (CliRunner().invoke(app, each) for each in words):
        assert result.exit_code == 0
        assert result.stderr.startswith(f"{run_id}: spec.json: ")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--set", "algorithm.experience_ration=0.25"], "--set algorithm.experience_ration"),
        (["--set", "data.source=missing.parquet", "--set", "model.source=hub/model"], "data.source"),
        (["--set", "data.source=missing.parquet"], "data.source"),
        (["--preset", "nothing"], "preset"),
        (["--preset", "chains-exgrpo", "--spec", "spec.yaml"], "--preset, --spec"),
    ],
)
def test_training_that_cannot_start_is_refused_before_anything_is_written(runs_root, words, field):
    assert exgrpo(runs_root, "train", *words, code=2).startswith(f"{field}: ")
    assert not runs_root.exists()


def test_unexpected_error_is_one_sentence_with_a_way_to_see_more(runs_root, monkeypatch):
    def break_down(*_arguments: object) -> None:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr(run_actions, "stop", break_down)
    said = exgrpo(runs_root, "stop", submit(runs_root), code=1)
    assert said == "Unexpected ZeroDivisionError: made up Set EXGRPO_DEBUG=1 to see the traceback.\n"


@pytest.mark.parametrize(
    "words",
    [
        ["query", "verdicts", "mine", "--limit", 10_001], ["query", "trajectory", "mine", 2**70],
        ["annotate", "mark", "mine", 2**70, "odd"], ["annotate", "verdict", "mine", 2**70, "valid"],
        ["chat", "mine", "--seed", 2**64, "--prompt", "Hm?"], ["runs", "--nonsense"],
    ],
)  # fmt: skip
def test_a_number_that_no_database_and_no_generator_takes_and_a_wrong_option_are_bad_input(runs_root, words):
    submit(runs_root, name="mine")
    exgrpo(runs_root, *words, code=2)


def test_a_model_that_cannot_be_loaded_and_a_prompt_that_is_no_text_are_bad_input(runs_root, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert exgrpo(runs_root, "chat", tmp_path, "--prompt", "Hm?", code=2).startswith(f"model.source: {tmp_path}")
    result = CliRunner().invoke(app, ["chat", "m", "--runs-root", str(runs_root)], input=b"\xff")
    assert (result.exit_code, result.stderr) == (2, "prompt: expected text in UTF-8.\n")


@pytest.fixture
def long_ids(tmp_path):
    for number, run in enumerate((recorded.FINISHED, recorded.FAILED, recorded.QUEUED)):
        name = f"{run.name} with many more words and a number {number}"
        run_id = f"20261125-001149-a6acf{number}"
        recorded.record(tmp_path, recorded.RecordedRun(run_id, name, run.status, run.num_done, run.preset))
    return tmp_path


def table(runs_root, columns):
    terminal = {"COLUMNS": columns, "TTY_COMPATIBLE": "1" if columns else "0"}
    printed = CliRunner(env=WIDE | terminal).invoke(app, ["runs", "--runs-root", str(runs_root)]).stdout
    return re.sub(r"\x1b\[[0-9;]*m", "", printed)


def test_a_narrow_terminal_cuts_neither_ids_states_nor_scores_and_a_pipe_has_a_line_a_run(long_ids):
    printed = table(long_ids, "80")
    assert max(map(len, printed.splitlines())) <= 80
    whole = {"20261125-001149-a6acf0", "20261125-001149-a6acf2", "finished", "failed", "queued", "30/30", "ExGRPO"}
    assert whole | {"many", "number", "Avg@n", "Pass@1", "0.562"} <= set(printed.split())
    piped = CliRunner(env=WIDE | {"COLUMNS": "80"}).invoke(app, ["runs", "--runs-root", str(long_ids)]).stdout
    assert len(piped.splitlines()) == 4
    assert f"{recorded.FINISHED.name} with many more words and a number 0" in piped


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("db", "rebuild"), 2, "no such runs root"), (("verify",), 2, "no such runs root"),
        (("backup", "all.tar"), 2, "no such runs root"), (("runs",), 0, "No runs in"), (("query", "runs"), 0, ""),
    ],
)  # fmt: skip
def test_no_look_at_a_folder_that_is_not_there_makes_it(tmp_path, words, code, sentence):
    assert sentence in exgrpo(tmp_path / "none", *words, code=code)
    assert not (tmp_path / "none").exists()
