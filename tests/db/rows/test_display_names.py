from db.rows.display_names import distinct_names, held_out_score


def test_only_names_that_are_shared_carry_an_id():
    shown = distinct_names([("20260101-000000-aaaaaa", "twin"), ("20260101-000001-bbbbbb", "twin"), ("x-1", "single")])
    assert list(shown.values()) == ["twin (aaaaaa)", "twin (bbbbbb)", "single"]


def test_ids_that_end_alike_are_shown_whole():
    shown = distinct_names([("left-1", "twin"), ("right-1", "twin"), ("other-2", "twin")])
    assert list(shown.values()) == ["twin (left-1)", "twin (right-1)", "twin (2)"]


def test_held_out_score_is_named_with_its_number_of_samples():
    assert (held_out_score(), held_out_score(8)) == ("Held-out Avg@n", "Held-out Avg@8")
