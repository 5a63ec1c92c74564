from db.rows.display_names import distinct_names, held_out_score


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
