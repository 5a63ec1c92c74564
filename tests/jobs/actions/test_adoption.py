import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from db.queries import runs, trajectories, trajectory_list
from db.rows.trajectories import TrajectoryFacets
from jobs.actions.adoption import DumpedRollout, DumpError, adopt, read_dump
from jobs.cli.main import app
from jobs.recording.event_reader import EventReader
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal, JournalKind
from jobs.supervisor.open_index import open_fresh_index


def line(question: int, rollout: int, score: object, step: int = 1, **fields) -> str:
    """One line as verl 0.9.1 writes it."""
    row = {
        "input": f"question {question}", "output": f"answer {rollout} of {question}", "gts": str(question),
        "score": score, "step": step, "uid": f"q{question}_{rollout}_0",
    }  # fmt: skip
    return json.dumps(row | fields, ensure_ascii=False)


@pytest.fixture
def dump(tmp_path):
    folder = tmp_path / "rollouts"
    folder.mkdir()
    (folder / "1.jsonl").write_text("\n".join([line(0, 0, 1.0), line(0, 1, 0.0), line(1, 0, 0.0), line(1, 1, 0.0)]))
    (folder / "2.jsonl").write_text("\n".join([line(1, 0, 1.0, 2), line(2, 0, 1.0, 2)]) + "\n")
    (folder / "10.jsonl").write_text(line(0, 0, 0.0, 10) + "\n")
    (folder / "notes.txt").write_text("not a dump")
    return folder


def test_adopted_run_has_its_texts_rewards_and_steps_in_the_database(dump, tmp_path):
    adopted = adopt(dump, tmp_path / "runs", "stock verl", "some/model")
    assert (adopted.num_steps, adopted.num_rollouts, adopted.bad_lines) == (3, 7, [])
    with open_fresh_index(tmp_path / "runs", None) as database:
        run = runs.get_run(database, adopted.run_id)
        assert run is not None
        assert (run.status, run.engine, run.model) == ("finished", "verl", "some/model")
        assert "adopted" in run.tags
        hits = trajectory_list.list_snippets(database, TrajectoryFacets(words="answer 1"))
        (hit,) = [row for row in hits if row.snippet == "answer 1 of 0"]
        row = trajectories.get_trajectory(database, adopted.run_id, hit.trajectory_id)
        assert row is not None
        assert (row.text, row.reward, row.verdict, row.step) == ("answer 1 of 0", 0.0, "wrong", 1)
        late = trajectory_list.list_snippets(database, TrajectoryFacets(adopted.run_id, step_from=10, step_to=10))
        assert [row.snippet for row in late] == ["answer 0 of 0"]


def read_steps(run):
    return [event for event in EventReader(run).read().events if event["kind"] == "step"]


def test_rollouts_of_a_question_are_one_group_and_questions_keep_their_number_over_steps(dump, tmp_path):
    adopted = adopt(dump, tmp_path / "runs", "stock verl")
    run = RunDirectory.open(tmp_path / "runs", adopted.run_id)
    first, second = (event["trajectories"] for event in read_steps(run)[:2])
    assert [(row["question_index"], row["group_position"], row["group_slot"]) for row in first] == [
        (0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1),
    ]  # fmt: skip
    assert [row["question_index"] for row in second] == [1, 2]
    assert [row["num_tokens"] for row in second] == [0, 0]


def test_dumps_without_names_are_grouped_by_their_prompts(tmp_path):
    rows = [{"input": "a", "output": str(number), "score": 0.5, "step": 1} for number in range(3)]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    adopted = adopt(tmp_path, tmp_path / "runs", "old")
    (step,) = read_steps(RunDirectory.open(tmp_path / "runs", adopted.run_id))
    assert {(row["group_position"], row["verdict"]) for row in step["trajectories"]} == {(0, "")}


@pytest.mark.parametrize(
    "text",
    [
        '{"input": "a", "outp', "[1]", line(0, 0, 1.0, output=None), line(0, 0, "high"), line(0, 0, float("nan")),
        line(0, 0, 1.0, 7),
    ],
)  # fmt: skip
def test_bad_lines_are_left_out_and_named_by_file_and_line(dump, tmp_path, text):
    (dump / "1.jsonl").write_text(f"{line(0, 0, 1.0)}\n{text}\n")
    adopted = adopt(dump, tmp_path / "runs", "with a bad line")
    assert adopted.num_rollouts == 4
    (sentence,) = adopted.bad_lines
    assert sentence.startswith("1.jsonl, line 2: ")


@pytest.mark.parametrize("files", [{}, {"0.jsonl": line(0, 0, 1.0, 0)}, {"1.jsonl": "{}"}, {"1.jsonl": ""}, None])
def test_what_is_no_dump_is_refused_and_leaves_no_run(tmp_path, files):
    folder = tmp_path / "dump"
    if files is not None:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    with pytest.raises(DumpError, match=str(folder)):
        adopt(folder, tmp_path / "runs", "none")
    assert [path for path in tmp_path.glob("runs/*") if path.is_dir()] == []


def test_files_that_are_no_dump_of_a_step_are_passed_over(dump, tmp_path):
    steps = adopt(dump, tmp_path / "runs", "first").num_steps
    for name in ("\N{SUPERSCRIPT TWO}.jsonl", "9" * 30 + ".jsonl", "x.jsonl"):
        (dump / name).write_text(line(0, 0, 1.0, 3))
    run = adopt(dump, tmp_path / "runs", "second")
    assert run.num_steps == steps
    assert RunDirectory.open(tmp_path / "runs", run.run_id).spec().num_steps == 10


def test_command_prints_the_run_and_names_what_it_left_out(dump, tmp_path):
    (dump / "2.jsonl").write_text("broken\n" + line(1, 0, 1.0, 2))
    words = ["import", "--rollouts", str(dump), "--name", "mine", "--runs-root", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    run_id = result.stdout.strip()
    assert RunDirectory.open(tmp_path / "runs", run_id).spec().name == "mine"
    assert "2.jsonl, line 1" in result.stderr
    kinds = [entry.kind for entry in Journal(tmp_path / "runs").entries()]
    assert kinds == [JournalKind.IMPORTED, JournalKind.TAGGED]


@pytest.mark.verl
@pytest.mark.slow
def test_what_verl_itself_dumps_is_read(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries that verl looks for and does not find
        trainer_base = pytest.importorskip("verl.trainer.ppo.v1.trainer_base", reason="needs the verl environment")
    trainer_base.PPOTrainer._write_generations(
        inputs=["q0", "q0", "q1"],
        outputs=["a\n\u2028b", "", "\u00fc"],
        gts=["4", None, 5],
        scores=[1.0, 0.0, np.float32(0.5)],
        reward_extra_infos_dict={"uid": ["0-a_0_0", "0-a_1_0", "0-b_0_0"]},
        dump_path=str(tmp_path),
        global_steps=3,
    )
    (step,) = read_dump(tmp_path)
    assert (step.step, step.bad_lines) == (3, [])
    assert step.rollouts == [
        DumpedRollout("0-a", "q0", "a\n\u2028b", "4", 1.0),
        DumpedRollout("0-a", "q0", "", "", 0.0),
        DumpedRollout("0-b", "q1", "\u00fc", "5", 0.5),
    ]
