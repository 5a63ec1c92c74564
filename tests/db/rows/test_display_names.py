from db.rows.display_names import BATCH_PASS_RATE, FRESH_PASS_RATE, distinct_names, held_out_score, model_name
from exgrpo_core.step_report import METRIC_LABELS


def test_only_names_that_are_shared_carry_an_id():
    names = distinct_names(
        [("20260101-000000-aaaaaa", "double"), ("20260101-000001-bbbbbb", "double"), ("x-1", "single")]
    )
    assert list(names.values()) == ["double (aaaaaa)", "double (bbbbbb)", "single"]


def test_ids_that_end_alike_are_shown_whole():
    names = distinct_names([("left-1", "double"), ("right-1", "double"), ("other-2", "double")])
    assert list(names.values()) == ["double (left-1)", "double (right-1)", "double (2)"]


def test_held_out_score_is_named_with_its_number_of_samples():
    assert (held_out_score(), held_out_score(8)) == ("Held-out Avg@n", "Held-out Avg@8")


def test_scores_have_the_names_of_their_metrics():
    assert METRIC_LABELS["reward/pass_at_1"] == BATCH_PASS_RATE
    assert METRIC_LABELS["reward/pass_at_1_fresh"] == FRESH_PASS_RATE


def test_a_folders_model_is_named_by_the_end_of_its_path():
    assert (model_name("/models/small"), model_name("Qwen/Qwen2.5-7B")) == ("small", "Qwen/Qwen2.5-7B")
