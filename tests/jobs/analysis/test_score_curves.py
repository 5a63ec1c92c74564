import pytest

from db.rows.chains_of_thought import Difficulty
from jobs.analysis.score_curves import by_difficulty, mean_curves, read_question_curves, read_score_curves
from tests.jobs.analysis.recorded_samples import append


def curves(run_path, scheme="paper"):
    return {curve.measure: curve for curve in read_score_curves(run_path, "sums", scheme)}


def test_each_measure_is_the_mean_over_questions(tmp_path):
    append(tmp_path / "run", "easy", [("4", -1.0), ("4", -2.0), ("5", -3.0)])
    append(tmp_path / "run", "hard", [("4", -9.0), ("7", -2.0), (" 7 ", -3.0)])
    drawn = curves(tmp_path / "run")
    assert drawn["pass@k"].values == pytest.approx((1 / 2, (1 + 2 / 3) / 2, 1))
    assert drawn["maj@k"].values == pytest.approx((1 / 2, (2 / 3 + 1 / 3) / 2, 1 / 2))
    assert drawn["best by log-prob"].values == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    assert drawn["best by reward"].values == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    assert drawn["pass@k"].low[0] == pytest.approx(1 / 3)
    assert drawn["pass@k"].high[0] == pytest.approx(2 / 3)
    assert curves(tmp_path / "run", "training")["pass@k"].values == (0, 0, 0)


def test_a_single_question_has_no_interval(tmp_path):
    append(tmp_path / "run", "hard", [("7", -1.0), ("4", -2.0)])
    (pass_at_k, *_) = curves(tmp_path / "run").values()
    assert (pass_at_k.values, pass_at_k.low, pass_at_k.high) == ((0.5, 1.0), (), ())


def test_answers_without_log_prob_have_no_curve_of_it(tmp_path):
    append(tmp_path / "run", "easy", [("4", None), ("5", -2.0)])
    drawn = curves(tmp_path / "run")
    assert drawn["best by log-prob"].values == ()
    assert drawn["pass@k"].values == (0.5, 1)


def test_newest_answers_count_and_questions_with_fewer_samples_do_not(tmp_path):
    append(tmp_path / "run", "a", [("5", None)])
    append(tmp_path / "run", "b", [("4", None)])
    append(tmp_path / "run", "a", [("4", None), ("", None)], attempt=2)
    assert curves(tmp_path / "run")["maj@k"].values == (0.5, 1)


def test_evaluation_without_answers_has_no_curves(tmp_path):
    assert read_score_curves(tmp_path, "sums", "paper") == []


def test_difficulty_is_the_models_mean_share_of_correct_answers_to_common_questions(tmp_path):
    for name, first, second in (("a", "44", "44"), ("b", "45", "44"), ("c", "45", "55"), ("d", "44", "")):
        append(tmp_path / "first", name, [(answer, None) for answer in first])
        if second:
            append(tmp_path / "second", name, [(answer, None) for answer in second])
    models = [read_question_curves(tmp_path / run, "sums", "paper") for run in ("first", "second")]
    groups = by_difficulty(models)
    # (1 + 1) / 2, (.5 + 1) / 2 = .75, (.5 + 0) / 2 = .25; "d" has one model's answers alone.
    assert groups == {Difficulty.EASY: ["a"], Difficulty.MEDIUM: ["b"], Difficulty.HARD: ["c"]}
    (pass_at_k, *_) = mean_curves([models[0][name] for name in groups[Difficulty.MEDIUM]])
    assert pass_at_k.values == (0.5, 1)
    assert mean_curves([]) == []
