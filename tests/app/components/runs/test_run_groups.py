import dataclasses

import pytest

from exgrpo.app.components.runs import run_groups
from exgrpo.db.rows.runs import RunRow

pytestmark = pytest.mark.slow


def row(score, step=150, **changes):
    fields = {field.name: None for field in dataclasses.fields(RunRow)}
    fields |= {"run_id": f"run-{score}-{step}", "kind": "train", "status": "finished", "method": "ExGRPO", "tags": ()}
    return RunRow(**fields | {"dataset": "chains", "step": step, "last_avg_at_n": score} | changes)


def groups(*rows, name="Method"):
    columns = [name, "Runs", "Averaged", "Held-out Avg@n, %", "Held-out Avg@n, 95% over runs", "Steps"]
    lines = run_groups.table(rows, name)[columns].astype(object)
    return [tuple(None if value != value else value for value in line) for line in lines.to_numpy().tolist()]


def test_groups_average_finished_runs_only_and_say_how_many():
    rows = row(0.8), row(0.9, 300), row(0.1, 10, status="failed"), row(0.2, 40, status="running"), row(None, 150)
    # By hand: t(1) = 12.706 times 7.07 / sqrt(2) is 63.5 points: 85 less that, and no score is above 100.
    [line] = groups(*rows)
    assert line == ("ExGRPO", 5, 3, pytest.approx(85.0), "21.5 to 100.0", "150 to 300")
    assert groups(row(0.1, status="lost")) == [("ExGRPO", 1, 0, None, None, "")]


def test_runs_with_other_data_are_groups_of_their_own():
    rows = row(0.9), row(0.0, dataset="word_problems"), row(0.7, method="Dr.GRPO", dataset="gsm8k")
    assert [line[:4] for line in groups(*rows)] == [
        ("Dr.GRPO", 1, 1, pytest.approx(70.0)),
        ("ExGRPO on chains", 1, 1, pytest.approx(90.0)),
        ("ExGRPO on word_problems", 1, 1, 0.0),
    ]
    assert len(groups(*rows, name="Data")) == 3


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (("/data/a/rollouts", "/data/texts"), ["rollouts", "texts"]),
        (("/data/a/rollouts", "/data/b/rollouts"), ["/data/a/rollouts", "/data/b/rollouts"]),
        (("gsm8k", "org/name"), ["gsm8k", "org/name"]),
    ],
)
def test_data_is_called_by_the_end_of_its_path_where_that_tells_it_apart(paths, shown):
    rows = [row(0.5, dataset=path) for path in paths]
    assert [line[0] for line in groups(*rows)] == [f"ExGRPO on {name}" for name in shown]


def test_runs_of_an_unknown_method_have_no_mean_and_no_interval_leaves_zero_to_a_hundred():
    assert groups(row(0.5, method="unknown"), row(1.0, method="unknown")) == [("unknown", 2, 0, None, None, "")]
    assert groups(row(0.5), row(1.0)) == [("ExGRPO", 2, 2, 75.0, "0.0 to 100.0", "150")]
    assert groups(row(0.5, model="unknown-7b"), row(0.7, model="unknown-7b"), name="Model")[0][2] == 2
