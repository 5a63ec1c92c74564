import json

from exgrpo.jobs.actions.replay.facts import Outcome, summed_over
from exgrpo.jobs.queries.frames import open_run
from tests.app import played
from tests.jobs.actions.replay import solved_runs
from tests.jobs.actions.replay.test_steps import rows_of, token_changed
from tests.jobs.cli.invoked import exgrpo, printed_json


def test_true_steps_end_with_0_and_a_contradiction_with_1_and_its_place(tmp_path):
    solved_runs.record(tmp_path / "true", num_steps=2)
    rows = printed_json(tmp_path / "true", "replay", "solved", "--steps", "1:9")
    assert {row["step"] for row in rows} == {1, 2}
    assert {row["outcome"] for row in rows if row["stage"] != "loss"} == {"same"}
    assert len(open_run(tmp_path / "true" / "solved").replay(2)) == sum(row["step"] == 2 for row in rows)
    solved_runs.record(tmp_path / "false", lambda report: report.step == 3 and token_changed(report), num_steps=3)
    exgrpo(tmp_path / "false", "replay", "solved", "--step", 3, code=1)
    rows = json.loads(exgrpo(tmp_path / "false", "query", "replay", "solved", "--step", 3, "--json"))
    assert [row["compared"] for row in rows if row["outcome"] == "differs"] == ["same tokens as at rollout"]


def test_several_steps_are_summed_up_with_the_first_that_differs(tmp_path):
    solved_runs.record(tmp_path, lambda report: report.step >= 3 and token_changed(report), num_steps=5)
    rows = rows_of(tmp_path, range(1, 6))
    of_steps = {row.step: row.num_compared for row in rows if row.compared == "same tokens as at rollout"}
    [summed] = [row for row in summed_over(rows) if row.compared == "same tokens as at rollout"]
    assert (summed.step, summed.outcome, summed.num_different) == (3, Outcome.DIFFERS, 3)
    assert summed.num_compared == sum(of_steps.values())
    assert summed.first_difference == next(row for row in rows if row.outcome is Outcome.DIFFERS).first_difference


def test_questions_of_another_task_are_said(tmp_path):
    played.play(tmp_path, played.FAILED)
    rows = printed_json(tmp_path, "replay", "play-failed", "--step", 2)
    [row] = [row for row in rows if row["note"] and row["stage"] == "reward"]
    assert row["outcome"] == "not compared"
    assert "cannot read the recorded questions" in row["note"]


def test_wrong_steps_are_one_sentence(tmp_path):
    solved_runs.record(tmp_path, num_steps=1)
    for words, sentence in (
        ((), "expected either"),
        (("--steps", "3:1"), "expected A:B"),
        (("--step", "9"), "recorded no trajectories of step 9; its last step is 1."),
        (("--steps", "8:9"), "recorded no trajectories of step 8"),
    ):
        assert sentence in exgrpo(tmp_path, "replay", "solved", *words, code=2)
