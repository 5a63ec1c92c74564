from jobs.analysis.snowball import TimelineStep, share_timeline


def step(number, fresh=(), correct=(), replayed=(), inserted=(), retired=()):
    return TimelineStep(number, fresh, correct, replayed, inserted, retired)


def test_shares_follow_rollouts_successes_buffer_and_replays():
    marks = {1: True, 2: False, 3: False, 4: True}
    lines = share_timeline(
        [
            step(1, fresh=[1, 2], correct=[1], inserted=[(7, 1)]),
            step(2, fresh=[3, 4], correct=[3, 4], replayed=[1], inserted=[(8, 3), (8, 4)]),
            step(3, retired=[8]),
            step(4, retired=[7]),
        ],
        marks,
    )
    assert [line.rollouts for line in lines] == [0.5, 0.5, None, None]
    assert [line.successes for line in lines] == [1.0, 0.5, None, None]
    assert [line.buffer for line in lines] == [1.0, 2 / 3, 1.0, None]
    assert [line.replays for line in lines] == [None, 1.0, None, None]


def test_what_is_inserted_twice_counts_once_and_what_is_unknown_not_at_all():
    lines = share_timeline([step(1, fresh=[1, 9], replayed=[9], inserted=[(0, 1), (0, 1), (0, 9)])], {1: True})
    assert lines[0].buffer == 1.0
    assert lines[0].rollouts == 1.0
    assert lines[0].replays is None
