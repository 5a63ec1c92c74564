from db.rows.selections import age


def test_a_replay_of_a_step_that_is_done_again_has_no_age():
    assert (age(7, 4), age(5, 5), age(5, 7)) == (3, None, None)
