import pytest

from exgrpo.jobs.runs.control import Phase, stop_grace

PAPER = {Phase.STEP: 150.0, Phase.EVALUATION: 300.0, Phase.CHECKPOINT: 400.0}


@pytest.mark.parametrize(
    ("phase", "seconds", "grace"),
    [
        (None, {}, 120.0), (Phase.STEP, {Phase.STEP: 1.0, Phase.CHECKPOINT: 2.0}, 120.0),
        (Phase.EVALUATION, PAPER, 2 * 850.0), (None, {Phase.STEP: 150.0}, 2 * 150.0 + 1200.0),
        (Phase.STEP, {}, 2 * 1200.0), (Phase.CHECKPOINT, {}, 1200.0), (Phase.ANSWERS, {}, 1200.0),
        (Phase.ANSWERS, {Phase.ANSWERS: 400.0}, 800.0), (None, {Phase.ANSWERS: 400.0}, 800.0),
    ],
)  # fmt: skip
def test_grace_covers_recent_times_and_what_was_never_measured(phase, seconds, grace):
    assert stop_grace(phase, seconds, 120.0) == grace
