import json

import pytest

from exgrpo.jobs.runs.journal import Journal, JournalKind
from tests.jobs.cli.invoked import exgrpo, printed_json
from tests.jobs.evaluation.judging.chain_runs import new_job, oracle_spec, record_chains, run_job

pytestmark = pytest.mark.slow

KINDS = ["valid", "lucky", "wrong", "code"]


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    record_chains(root, [KINDS, KINDS])
    run_job(new_job(root, oracle_spec()))
    return root


def test_marked_trajectories_are_listed_until_the_mark_is_taken_off(runs_root):
    exgrpo(runs_root, "annotate", "mark", "trained", "1", "odd", "--comment", "skips a step")
    assert printed_json(runs_root, "query", "marks") == [{"mark": "odd", "num_trajectories": 1, "num_runs": 1}]
    [row] = printed_json(runs_root, "query", "marked", "odd")
    assert (row["run_id"], row["trajectory_id"], row["comment"]) == ("trained", 1, "skips a step")
    exgrpo(runs_root, "annotate", "mark", "trained", "1", "odd", "--undo")
    refused = exgrpo(runs_root, "annotate", "mark", "trained", "1", "odd", "--undo", code=2)
    assert "does not have the mark 'odd'" in refused
    assert printed_json(runs_root, "query", "marks") == []


def test_a_user_s_verdict_counts_until_it_is_taken_back(runs_root):
    exgrpo(runs_root, "annotate", "verdict", "trained", "0", "invalid")
    rows = printed_json(runs_root, "query", "verdicts", "trained", "--which", "disputed")
    assert [(row["trajectory_id"], row["by_judge"], row["user"]) for row in rows] == [(0, True, False)]
    exgrpo(runs_root, "annotate", "verdict", "trained", "0", "none")
    assert printed_json(runs_root, "query", "verdicts", "trained", "--which", "disputed") == []
    kinds = [entry.kind for entry in Journal(runs_root).entries()]
    assert kinds[-2:] == [JournalKind.VERDICT_SET, JournalKind.VERDICT_CLEARED]


def test_cases_are_found_kept_and_written_as_files(runs_root, tmp_path):
    [case] = printed_json(runs_root, "case", "find", "trained", "--telling", "--keep", "my set")
    assert (case["low"]["is_valid"], case["high"]["is_valid"]) == (True, False)
    assert printed_json(runs_root, "query", "case-sets") == [{"name": "my set", "num_cases": 1, "num_runs": 1}]
    exgrpo(runs_root, "case", "export", "my set", str(tmp_path / "cases.json"))
    assert json.loads((tmp_path / "cases.json").read_text(encoding="utf-8"))["cases"] == [case]
    assert "# Snowball cases: my set" in exgrpo(runs_root, "case", "export", "my set")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["annotate", "verdict", "trained", "0", "perhaps"], "VERDICT: "),
        (["annotate", "verdict", "trained", "77", "valid"], "TRAJECTORY: "),
        (["annotate", "mark", "trained", "99", "odd"], "trained: "),
        (["annotate", "mark", "trained", "1", " "], "mark: "), (["case", "export", "nothing"], "SET: "),
        (["case", "find", "trained", "--keep", "\x07"], ""), (["case", "find", "trained", "--judge", "trained"], ""),
    ],
)  # fmt: skip
def test_a_wrong_order_is_refused_in_one_sentence(runs_root, words, said):
    assert exgrpo(runs_root, *words, code=2).startswith(said)
