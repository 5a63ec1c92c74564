from app.components.widgets.curves import KEYS, pass_rates
from app.requests import REWARD_PARTS
from db.rows.runs import EvaluationRow


def score(step, question_set):
    return EvaluationRow(step, question_set, 30, 8, 0.25 + step / 100, 0.01, 0.5)


def test_benchmarks_scored_during_training_have_a_curve_each_beside_held_out_questions():
    rows = [score(step, name) for step in (0, 10) for name in ("training", "held_out", "aime24", "amc")]
    curves = {trace.name: list(trace.y) for trace in pass_rates({}, rows).data}
    assert curves == {name: [0.25, 0.35] for name in ("Held-out Avg@8", "aime24 Avg@8", "amc Avg@8")}
    colours = {trace.line.color for trace in pass_rates({}, rows).data}
    assert len(colours) == 3


def test_a_benchmark_with_a_title_is_named_by_it():
    assert [trace.name for trace in pass_rates({}, [score(0, "mine")], titles={"mine": "My sums"}).data] == [
        "My sums Avg@8"
    ]


def test_every_part_of_a_reward_has_a_curve():
    assert {f"reward/{part}" for part in REWARD_PARTS} <= {*KEYS}
