"""Why a candidate was chosen, in words, and the lowest entropy where some are not numbers."""

import math

import pytest

from exgrpo.app.components.replay_buffer.step_groups import Group, reason_of, table
from exgrpo.db.rows.runs import CandidateRow

NAN = math.nan


def candidates(entropies, scores=None):
    """Candidates 5, 6, ...; number 5 is chosen."""
    return [
        CandidateRow(9, 1, 2, 5 + place, 3, 10, entropy, 0.5, score, place == 0)
        for place, (entropy, score) in enumerate(zip(entropies, scores or entropies, strict=True))
    ]


@pytest.mark.parametrize(
    ("rule", "entropies", "scores", "words"),
    [
        ("lowest_entropy", (0.11, 0.3, 0.2), None, ", with an entropy of 0.110 nats against 0.200 or more of 2 others"),
        ("lowest_entropy", (0.11, NAN, 0.2), None, ", with an entropy of 0.110 nats against 0.200 or more of 1 other"),
        ("lowest_entropy", (0.11,), None, ", with an entropy of 0.110 nats"),
        ("highest_entropy", (0.3, 0.2), (-0.3, -0.2), " with a score of -0.3 against -0.2 or more of 1 other"),
        ("lowest_nll", (0.3, 0.2), (0.41, 0.5), " with a score of 0.41 against 0.5 or more of 1 other"),
        ("newest", (0.3, 0.2), (-8.0, -7.0), " with a score of -8 against -7 or more of 1 other"),
        ("random", (0.3, 0.2), (NAN, NAN), ""),
    ],
)
def test_the_reason_of_a_choice_is_the_rule_of_the_run(rule, entropies, scores, words):
    named = "" if rule == "lowest_entropy" else f" by the rule {rule}".replace("_", "\\_")
    comma = "," if named and words else ""
    assert reason_of(rule, candidates(entropies, scores), 5) == f"{named}{comma}{words}"


@pytest.mark.parametrize(
    ("entropies", "lowest"), [((0.1, NAN, 0.3, 0.2), 0.2), ((0.1, 0.2, NAN), 0.2), ((0.1, NAN), None), ((0.1,), None)]
)
def test_the_lowest_other_entropy_is_of_those_that_are_known(entropies, lowest):
    assert table([Group(1, candidates=candidates(entropies))], 9, {})["Lowest other"].tolist() == [lowest]
