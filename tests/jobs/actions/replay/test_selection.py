import dataclasses

import numpy as np
import pytest

from exgrpo.db.rows.replays import SelectionRow
from exgrpo.db.rows.runs import CandidateRow
from exgrpo.db.rows.spec_fields import algorithm_settings
from exgrpo.jobs.actions.replay import other_settings
from exgrpo.jobs.actions.replay.facts import Outcome
from exgrpo.jobs.actions.replay.selection import check_choice, check_tokens

IDS = [5, 6, 7]
ENTROPIES = [0.25, 0.5, 0.75]
LOG_PROBS = [-0.5, -1.0, -1.5]
BEHAVIOR = [-0.5, -1.0, -2.0]
REPLAYED = {"token_ids": IDS, "entropies": ENTROPIES, "log_probs": LOG_PROBS, "behavior_log_probs": BEHAVIOR}
AT_ROLLOUT = {"token_ids": IDS, "entropies": ENTROPIES, "log_probs": BEHAVIOR, "behavior_log_probs": None}
RATIO = float(np.mean(np.exp([0.0, 0.0, 0.5])))
SELECTION = SelectionRow(4, 2, 11, 11, 3, 0.5, -1.0, RATIO, 1.6, "file", "birth")


def candidate(number, entropy, nll, is_chosen):
    return CandidateRow(3, 4, 2, number, 1, 3, entropy, nll, entropy, is_chosen)


CANDIDATES = [candidate(10, 0.6, 0.4, is_chosen=False), candidate(11, 0.5, 1.0, is_chosen=True)]


def broken(checks):
    return [check.compared for check in checks if check.outcome is Outcome.DIFFERS]


def choice(selection=SELECTION, candidates=CANDIDATES, estimator="lowest_entropy", num_wanted=1):
    rule = other_settings.selector_of(algorithm_settings({}), estimator)
    return broken(check_choice(selection, candidates, rule, num_wanted))


def tokens(selection=SELECTION, chosen=CANDIDATES[1], replayed=REPLAYED, at_rollout=AT_ROLLOUT):
    return broken(check_tokens(selection, chosen, replayed, at_rollout))


def test_choice_that_is_not_the_estimators_argmin_is_found():
    assert choice() == tokens() == []
    assert set(choice(estimator="lowest_nll")) == {"score of a candidate", "best score is chosen"}
    assert set(choice(estimator="highest_entropy")) == {"score of a candidate", "best score is chosen"}
    assert choice(estimator="random") == []


def test_another_number_chosen_and_another_replayed_are_found():
    both = [dataclasses.replace(row, is_chosen=True) for row in CANDIDATES]
    assert choice(candidates=both) == choice(num_wanted=2) == ["number chosen"]
    assert choice(candidates=both, num_wanted=2) == []
    assert choice(dataclasses.replace(SELECTION, replayed_trajectory_id=10)) == ["replayed is the chosen"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"entropies": [0.25, 0.5, 0.7]}, ["entropy", "entropy that chose"]),
        ({"log_probs": [-0.5, -1.0, -1.4]}, ["NLL", "importance ratio", "NLL that chose"]),
        ({"behavior_log_probs": [-0.5, -1.0, -1.9]}, ["importance ratio", "same log-probs as at rollout"]),
        ({"token_ids": [5, 6]}, ["one value for each token"]),
        ({"entropies": [-0.25, 0.5, 1.25]}, ["possible values"]),
    ],
)
def test_tokens_that_contradict_the_record_are_found(change, names):
    assert tokens(replayed=REPLAYED | change) == names


def test_missing_tokens_are_a_violation_and_missing_births_are_not():
    assert tokens(replayed=None) == ["tokens"]
    assert tokens(at_rollout=None) == []
    checks = check_tokens(SELECTION, CANDIDATES[1], REPLAYED, None)
    assert checks[-1].outcome is Outcome.UNKNOWN
    # A run may replace stored log-probs by newer ones.
    other = AT_ROLLOUT | {"log_probs": [-5.0] * 3}
    assert tokens(at_rollout=other) == ["same log-probs as at rollout"]
    checks = check_tokens(SELECTION, CANDIDATES[1], REPLAYED, other, has_new_log_probs=True)
    assert broken(checks) == []


def test_half_precision_of_stored_entropies_is_no_violation():
    halved = np.array([0.1234567, 0.3456789, 0.5678901])
    recorded = dataclasses.replace(SELECTION, mean_entropy=float(halved.mean()))
    chosen = dataclasses.replace(CANDIDATES[1], entropy=float(halved.mean()))
    stored = REPLAYED | {"entropies": halved.astype(np.float16).tolist()}
    assert tokens(recorded, chosen, stored) == []
