import json

import pytest
from typer.testing import CliRunner

from jobs.cli.main import app
from jobs.evaluation.protocols import protocol_of
from jobs.evaluation.questions import load_benchmark
from jobs.specs.evaluation import BenchmarkChoice
from tests.app import played
from tests.jobs.cli.invoked import exgrpo, printed_json


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    return root


def test_buffer_is_printed_after_the_asked_step_or_the_newest(runs_root):
    early, late = (
        printed_json(runs_root, "buffer", "play-finished", "--step", "3"),
        printed_json(runs_root, "buffer", "play-finished"),
    )
    assert (early["step"], late["step"]) == (3, 14)
    assert len(late["retired"]) > len(early["retired"])
    assert sum(late["trajectories_by_birth"].values()) == sum(late["trajectories_by_replays"].values()) > 0
    assert f"{len(late['buckets'])} questions, {len(late['retired'])} retired" in exgrpo(
        runs_root, "buffer", "play-finished"
    )


def test_retired_questions_become_a_benchmark(runs_root, tmp_path):
    file = tmp_path / "retired.jsonl"
    retired = printed_json(runs_root, "buffer", "play-finished")["retired"]
    assert f"{len(retired)} retired questions" in exgrpo(runs_root, "retired", "play-finished", str(file))
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == len(retired) > 0
    choice = BenchmarkChoice(name="retired", source=str(file))
    assert len(load_benchmark(choice, protocol_of(choice)).questions) == len(rows)
    sentence = "cannot be written (No such file or directory); name another file."
    assert sentence in exgrpo(runs_root, "retired", "play-finished", str(tmp_path / "no" / "file"), code=2)


def test_step_that_a_run_does_not_have_is_refused(runs_root):
    assert "--step: play-finished has 14 steps, got 15." in exgrpo(
        runs_root, "buffer", "play-finished", "--step", "15", code=2
    )
    sentence = "--step: expected a step of play-finished that replayed; steps "
    assert sentence in exgrpo(runs_root, "audit", "play-finished", "--step", "999", code=2)


def test_audit_names_each_question_drawn_with_one_chosen_candidate(runs_root):
    printed = printed_json(runs_root, "audit", "play-finished")
    assert printed["selections"]
    assert printed["wrong_choices"] == []
    chosen = {item["question_index"]: item["trajectory_id"] for item in printed["candidates"] if item["is_chosen"]}
    assert chosen == {entry["question_index"]: entry["chosen_trajectory_id"] for entry in printed["selections"]}
    assert "0 choices contradict their scores" in exgrpo(runs_root, "audit", "play-finished")


def test_trajectories_are_listed_by_what_is_asked_and_one_is_shown_with_its_life(runs_root):
    rows = printed_json(runs_root, "trajectories", "play-finished", "--replayed", "--correct", "--limit", "5")
    assert 0 < len(rows) <= 5
    assert all(row["num_replays"] and row["reward"] == 1.0 for row in rows)
    printed = printed_json(runs_root, "trajectory", "play-finished", str(rows[0]["trajectory_id"]))
    assert printed["trajectory"]["question_index"] == printed["question"]["question_index"] == rows[0]["question_index"]
    assert {"inserted", "replayed"} <= {event["kind"] for event in printed["lineage"]}
    assert "replayed" in exgrpo(runs_root, "trajectory", "play-finished", str(rows[0]["trajectory_id"]))
    assert "has no trajectory 999999" in exgrpo(runs_root, "trajectory", "play-finished", "999999", code=2)
    [of_step] = {
        row["step"] for row in printed_json(runs_root, "trajectories", "play-finished", "boxed", "--step", "2")
    }
    assert of_step == 2


def test_curves_of_runs_are_printed_by_metric(runs_root):
    printed = json.loads(exgrpo(runs_root, "curves", "play-finished", "-m", "reward/mean"))
    assert [step for step, _ in printed["play-finished"]["metrics"]["reward/mean"]] == list(range(1, 15))
    assert len(json.loads(exgrpo(runs_root, "curves", "play-finished"))["play-finished"]["metrics"]) > 5


def test_journal_lists_what_users_asked_for_newest_first(runs_root):
    exgrpo(runs_root, "tag", "play-finished", "first")
    exgrpo(runs_root, "tag", "play-finished", "second")
    assert [entry["data"]["tag"] for entry in printed_json(runs_root, "journal", "--limit", "2")] == ["second", "first"]
    assert "tagged" in exgrpo(runs_root, "journal")


def test_a_search_without_a_hit_is_said_beside_the_result(runs_root):
    words = ["trajectories", "play-finished", "nowherefound", "--runs-root", str(runs_root)]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No trajectory of play-finished matches.\n"
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout) == []


def test_an_unknown_metric_names_the_nearest(runs_root):
    sentence = exgrpo(runs_root, "curves", "play-finished", "-m", "replay/num_replay", code=2)
    assert sentence == (
        "--metric: play-finished has recorded no 'replay/num_replay'; the nearest is replay/num_replayed.\n"
    )


def test_a_life_is_told_in_the_words_of_the_page(runs_root):
    [row, *_] = printed_json(runs_root, "trajectories", "play-finished", "--replayed", "--limit", "1")
    printed = exgrpo(runs_root, "trajectory", "play-finished", str(row["trajectory_id"]))
    assert "  stored in the buffer, bucket " in printed
    assert "  replayed" in printed
