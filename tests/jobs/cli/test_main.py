"""The command line in this process: what it prints, refuses and exits with."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.actions import run_actions
from jobs.actions.queueing import queue_job
from jobs.cli.main import app
from jobs.cli.runs import plain_number
from jobs.cli.workbench import WorkbenchInstance
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec
from tests.app import recorded, scored
from tests.jobs.training.killed_runs import killed_run

CLI = CliRunner(env={"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"})


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def invoke(runs_root: Path, *words: str):
    return CLI.invoke(app, [*words, "--runs-root", str(runs_root)])


def submit(runs_root: Path, name: str = "toy") -> str:
    return queue_job(runs_root, TrainSpec(name=name, num_steps=2))


def test_empty_runs_root_says_how_to_start(runs_root):
    result = invoke(runs_root, "runs")
    assert result.exit_code == 0
    assert "No runs" in result.output
    assert "exgrpo train" in result.output


def test_runs_lists_a_queued_run_as_json(runs_root):
    run_id = submit(runs_root)
    (row,) = json.loads(invoke(runs_root, "runs", "--json").stdout)
    assert (row["run_id"], row["status"], row["num_steps"]) == (run_id, "queued", 2)


def test_runs_table_shows_id_state_and_steps(runs_root):
    run_id = submit(runs_root)
    output = invoke(runs_root, "runs").stdout
    assert run_id in output
    assert "queued" in output
    assert "0/2" in output


def test_show_takes_a_beginning_of_the_id_and_a_name(runs_root):
    run_id = submit(runs_root, "my run")
    by_beginning = json.loads(invoke(runs_root, "show", run_id[:-2], "--json").stdout)
    by_name = json.loads(invoke(runs_root, "show", "my run", "--json").stdout)
    assert by_beginning["run"]["run_id"] == by_name["run"]["run_id"] == run_id


def test_name_of_two_runs_is_refused_with_both_ids(runs_root):
    first, second = submit(runs_root, "same name"), submit(runs_root, "same name")
    result = invoke(runs_root, "show", "same name")
    assert result.exit_code == 2
    assert first in result.stderr
    assert second in result.stderr


def test_unknown_run_is_one_sentence_and_bad_input(runs_root):
    submit(runs_root)
    result = invoke(runs_root, "stop", "nothing")
    assert result.exit_code == 2
    assert result.stderr.strip().count("\n") == 0
    assert "'nothing'" in result.stderr


def test_stop_and_resume_of_a_queued_run(runs_root):
    run_id = submit(runs_root)
    assert invoke(runs_root, "stop", run_id).exit_code == 0
    assert json.loads(invoke(runs_root, "show", run_id, "--json").stdout)["run"]["status"] == "stopped"
    assert invoke(runs_root, "resume", run_id).exit_code == 0
    assert json.loads(invoke(runs_root, "show", run_id, "--json").stdout)["run"]["status"] == "queued"


def test_resume_says_which_later_experience_is_dropped(runs_root):
    run = killed_run(runs_root, "as_of_checkpoint", 7)
    write_outcome(run.attempt_path(1), RunStatus.FAILED, "killed")
    result = invoke(runs_root, "resume", run.run_id)
    assert result.exit_code == 0
    assert result.stdout.strip() == run.run_id
    assert re.search(
        r"Resumes from step 4: \d+ trajectories that were collected in steps 5 to 7 are dropped", result.stderr
    )


def test_resume_of_a_queued_run_is_refused_with_the_states_that_allow_it(runs_root):
    result = invoke(runs_root, "resume", submit(runs_root))
    assert result.exit_code == 2
    assert "it is queued; expected one of failed, lost, stopped" in result.stderr


def test_queued_run_says_that_no_supervisor_runs(runs_root):
    run_id = submit(runs_root)
    result = invoke(runs_root, "clone", run_id, "--submit")
    assert "exgrpo up" in result.stderr
    assert len(json.loads(invoke(runs_root, "runs", "--json").stdout)) == 2


def test_queued_clone_has_a_name_of_its_own_and_its_parent(runs_root):
    run_id = submit(runs_root)
    names = []
    for _ in range(2):
        copy_id = invoke(runs_root, "clone", run_id, "--submit").stdout.split()[0]
        info = RunDirectory.open(runs_root, copy_id).read_run_info()
        assert info["parent_run_id"] == run_id
        names.append(info["name"])
    assert names == ["toy copy", "toy copy 2"]
    third = invoke(runs_root, "clone", run_id, "--submit", "--set", "name=mine").stdout.split()[0]
    assert RunDirectory.open(runs_root, third).read_run_info()["name"] == "mine"


def test_clone_prints_a_specification_that_can_be_read_back(runs_root):
    run_id = submit(runs_root)
    result = invoke(runs_root, "clone", run_id, "--set", "num_steps=7")
    assert TrainSpec.model_validate_json(result.stdout) == TrainSpec(name="toy", num_steps=7)


def test_tags_and_notes_are_shown_and_survive_a_rebuild_of_the_database(runs_root):
    run_id = submit(runs_root)
    invoke(runs_root, "annotate", "tag", run_id, "keep")
    invoke(runs_root, "annotate", "tag", run_id, "wrong")
    invoke(runs_root, "annotate", "tag", run_id, "wrong", "--remove")
    assert json.loads(invoke(runs_root, "runs", "--json").stdout)[0]["tags"] == ["keep"]
    result = invoke(runs_root, "db", "rebuild")
    assert result.exit_code == 0, result.output
    assert json.loads(invoke(runs_root, "runs", "--json").stdout)[0]["tags"] == ["keep"]


def listed(runs_root, *options):
    return [row["run_id"] for row in json.loads(invoke(runs_root, "runs", "--json", *options).stdout)]


def test_archived_run_is_hidden_until_asked_for_and_stays_so_after_a_rebuild(runs_root):
    archived_id, listed_id = submit(runs_root, "old"), submit(runs_root, "new")
    invoke(runs_root, "stop", archived_id)
    assert invoke(runs_root, "annotate", "archive", "old").exit_code == 0
    assert (listed(runs_root), set(listed(runs_root, "--all"))) == ([listed_id], {archived_id, listed_id})
    assert "stopped, archived" in invoke(runs_root, "runs", "--all").stdout
    assert invoke(runs_root, "db", "rebuild").exit_code == 0
    assert listed(runs_root) == [listed_id]
    assert invoke(runs_root, "annotate", "archive", "old", "--undo").exit_code == 0
    assert set(listed(runs_root)) == {archived_id, listed_id}
    assert invoke(runs_root, "db", "rebuild").exit_code == 0
    assert set(listed(runs_root)) == {archived_id, listed_id}


def test_run_that_has_not_ended_cannot_be_archived(runs_root):
    result = invoke(runs_root, "annotate", "archive", submit(runs_root))
    assert (result.exit_code, result.stderr.strip().endswith("it is queued; stop it first.")) == (2, True)


def test_list_of_nothing_but_archived_runs_says_so(runs_root):
    run_id = submit(runs_root)
    invoke(runs_root, "stop", run_id)
    invoke(runs_root, "annotate", "archive", run_id)
    assert "All 1 runs" in invoke(runs_root, "runs").stdout


def test_runs_of_one_name_are_beside_their_ids_whose_ends_find_them(runs_root):
    first, second = submit(runs_root, "same name"), submit(runs_root, "same name")
    output = invoke(runs_root, "runs").stdout
    lines = [line for line in output.splitlines() if "same name" in line]
    assert all(any(run_id in line for line in lines) for run_id in (first, second))
    end = first.rpartition("-")[2]
    assert json.loads(invoke(runs_root, "show", end, "--json").stdout)["run"]["run_id"] == first


def test_table_names_scores_as_the_pages_do(runs_root):
    submit(runs_root)
    heading = invoke(runs_root, "runs").stdout.splitlines()[0]
    assert "Batch Pass@1" in heading
    assert "Held-out Avg@n" in heading


def test_tags_of_the_specification_are_tags_of_the_run(runs_root):
    queue_job(runs_root, TrainSpec(tags=("paper",)))
    assert json.loads(invoke(runs_root, "runs", "--json").stdout)[0]["tags"] == ["paper"]


def test_import_of_something_that_is_no_run_is_one_sentence(runs_root, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for source in (tmp_path / "notes.txt", tmp_path / "nowhere", tmp_path):
        result = invoke(runs_root, "import", str(source))
        assert result.exit_code == 2
        assert result.stderr.startswith(f"{source}: ")
        assert result.stderr.count("\n") == 1
    assert "SOURCE" in invoke(runs_root, "import", "--help").output


def test_damage_is_said_at_export_and_import(runs_root, tmp_path):
    run_id = submit(runs_root)
    with (runs_root / run_id / "spec.json").open("a") as file:
        file.write("\n")
    exported = invoke(runs_root, "export", run_id, str(tmp_path / "run.tar.gz"))
    imported = invoke(tmp_path / "elsewhere", "import", str(tmp_path / "run.tar.gz"))
    assert imported.stdout == f"{run_id}\n"
    for result in (exported, imported):
        assert result.exit_code == 0
        assert result.stderr.startswith(f"{run_id}: spec.json: differs from what was written")
        assert result.stderr.count("\n") == 1


def test_export_overwrites_only_by_force(runs_root, tmp_path):
    run_id, out = submit(runs_root), tmp_path / "run.tar.gz"
    assert invoke(runs_root, "export", run_id, str(out)).exit_code == 0
    refused = invoke(runs_root, "export", run_id, str(out))
    assert (refused.exit_code, "--force" in refused.stderr) == (2, True)
    assert invoke(runs_root, "export", run_id, str(out), "--force").exit_code == 0


def test_bad_setting_starts_nothing(runs_root):
    result = invoke(runs_root, "train", "--set", "algorithm.experience_ration=0.25")
    assert result.exit_code == 2
    assert "did you mean algorithm.experience_ratio" in result.stderr
    assert not runs_root.exists()


def test_missing_data_file_is_named_before_anything_starts(runs_root):
    result = invoke(runs_root, "train", "--set", "data.source=missing.parquet", "--set", "data.template=paper")
    assert result.exit_code == 2
    assert result.stderr.startswith("data.source: expected an existing file or folder, got missing.parquet")
    assert result.stderr.count("\n") == 1
    assert not runs_root.exists()


def test_preset_like_none_there_is_names_the_command_that_lists_them(runs_root):
    result = invoke(runs_root, "train", "--preset", "nothing")
    assert (result.exit_code, result.stderr) == (
        2,
        "preset: there is no 'nothing'; `exgrpo query presets` lists all.\n",
    )


def test_preset_and_file_together_are_refused(runs_root, tmp_path):
    result = invoke(runs_root, "train", "--preset", "chains-exgrpo", "--spec", str(tmp_path / "spec.yaml"))
    assert result.exit_code == 2
    assert "expected one of them" in result.stderr


def test_doctor_finds_this_machine_fit(runs_root):
    checks = {check["name"]: check for check in json.loads(invoke(runs_root, "doctor", "--json").stdout)}
    assert checks["Python"]["result"] == "ok"
    assert checks["database"]["result"] == "ok"
    assert {"GPU", "verl engine", "port", "disk"} <= checks.keys()


def test_doctor_leaves_a_folder_as_it_was(runs_root, tmp_path):
    assert invoke(runs_root, "doctor").exit_code == 0
    assert invoke(tmp_path, "doctor", "--database-url", f"sqlite:///{tmp_path / 'mine.db'}").exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_doctor_upgrades_no_database_and_says_that_it_is_old(runs_root, tmp_path):
    url = f"sqlite:///{tmp_path / 'old.db'}"
    (tmp_path / "old.db").touch()
    checks = {check["name"]: check for check in json.loads(invoke(runs_root, "doctor", "--json").stdout)}
    assert "not created yet" in checks["database"]["detail"]
    old = json.loads(invoke(runs_root, "doctor", "--json", "--database-url", url).stdout)
    assert any(check["detail"].startswith("SQLite, schema none, upgraded to ") for check in old)
    again = json.loads(invoke(runs_root, "doctor", "--json", "--database-url", url).stdout)
    assert again == old


def test_doctor_tells_a_database_of_an_unknown_version(runs_root, tmp_path):
    path = tmp_path / "newer.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
        connection.commit()
    result = invoke(runs_root, "doctor", "--database-url", f"sqlite:///{path}")
    assert result.exit_code == 1
    assert re.search(r"FAIL database .*schema 9999, unknown to this version", result.output)


def test_doctor_knows_the_port_of_this_runs_root_s_workbench(runs_root):
    instance = WorkbenchInstance(runs_root)
    instance.record_link("http://127.0.0.1:8642/?token=secret")
    assert "8642 is used by this runs root's workbench" in invoke(runs_root, "doctor", "--port", "8642").output
    instance.release()


def test_doctor_fails_with_advice_where_the_database_cannot_be_opened(runs_root):
    result = invoke(runs_root, "doctor", "--database-url", "nonsense://")
    assert result.exit_code == 1
    assert "EXGRPO_DATABASE_URL" in result.output


def test_unexpected_error_is_one_sentence_with_a_way_to_see_more(runs_root, monkeypatch):
    def break_down(*_arguments: object) -> None:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr(run_actions, "stop", break_down)
    result = invoke(runs_root, "stop", submit(runs_root))
    assert result.exit_code == 1
    assert result.stderr == "Unexpected ZeroDivisionError: made up Set EXGRPO_DEBUG=1 to see the traceback.\n"


def test_a_model_that_cannot_be_loaded_is_bad_input(runs_root, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    result = invoke(runs_root, "chat", str(tmp_path), "--prompt", "Hm?")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"model.source: {tmp_path} cannot be loaded as a causal language model (")


@pytest.mark.parametrize(
    "words",
    [
        ["query", "verdicts", "mine", "--limit", 10**30], ["query", "trajectory", "mine", 2**70],
        ["annotate", "mark", "mine", 2**70, "odd"], ["annotate", "verdict", "mine", 2**70, "valid"],
        ["chat", "mine", "--seed", 2**64, "--prompt", "Hm?"],
    ],
)  # fmt: skip
def test_a_number_that_no_database_and_no_generator_takes_is_bad_input(runs_root, words):
    submit(runs_root, name="mine")
    assert invoke(runs_root, *map(str, words)).exit_code == 2


def test_a_prompt_that_is_no_text_is_bad_input(runs_root):
    result = CliRunner().invoke(app, ["chat", "m", "--runs-root", str(runs_root)], input=b"\xff")
    assert (result.exit_code, result.stderr) == (2, "prompt: expected text in UTF-8.\n")


def test_wrong_option_is_bad_input(runs_root):
    assert invoke(runs_root, "runs", "--nonsense").exit_code == 2


NARROW = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "80"})


@pytest.fixture
def long_ids(tmp_path):
    """A runs root with ids as long as those that are made, and long names."""
    for number, run in enumerate((recorded.FINISHED, recorded.FAILED, recorded.QUEUED)):
        name = f"{run.name} with many more words and a number {number}"
        run_id = f"20261125-001149-a6acf{number}"
        recorded.record(tmp_path, recorded.RecordedRun(run_id, name, run.status, run.num_done, run.preset))
    return tmp_path


def test_a_narrow_terminal_cuts_neither_ids_states_nor_scores(long_ids):
    printed = NARROW.invoke(app, ["runs", "--runs-root", str(long_ids)]).stdout
    assert max(map(len, printed.splitlines())) <= 80
    words = printed.split()
    for whole in (
        "20261125-001149-a6acf0",
        "20261125-001149-a6acf2",
        "finished",
        "failed",
        "queued",
        "30/30",
        "ExGRPO",
    ):
        assert whole in words, whole
    assert {"many", "number", "Avg@n", "Pass@1", "0.562"} <= set(words)


def test_a_table_that_is_piped_has_one_line_a_run(long_ids):
    printed = CliRunner(env={"COLUMNS": None}).invoke(app, ["runs", "--runs-root", str(long_ids)]).stdout
    assert len(printed.splitlines()) == 4
    assert f"{recorded.FINISHED.name} with many more words and a number 0" in printed


@pytest.mark.parametrize(
    ("value", "text"),
    [(18180.4, "18180"), (0.35, "0.35"), (0.123456, "0.1235"), (1e-06, "0.000001"), (-2.5e7, "-25000000")],
)
def test_numbers_are_printed_without_powers_of_ten(value, text):
    assert plain_number(value) == text


def test_an_evaluation_has_no_count_of_steps_and_its_kind_is_one_word(tmp_path):
    scored.record_unfinished(tmp_path)
    printed = NARROW.invoke(app, ["runs", "--runs-root", str(tmp_path)]).stdout
    assert "evaluation" in printed.split()
    assert "0/0" not in printed
