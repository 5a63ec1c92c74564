"""The what-if over all steps: by hand, and the mean of the possible draws of single steps."""

from dataclasses import replace

import numpy as np
import pytest

from app.components.replay_buffer import what_if_steps
from db.connections.opening import open_database
from db.queries import buffer
from db.queries.all_draws import all_draws
from db.rows.spec_fields import algorithm_settings
from jobs.actions.replay import other_settings
from jobs.actions.replay.other_settings import Candidate, RecordedDraw, Settings
from tests.app import played
from tests.exgrpo_core.builders import small_config

pytestmark = pytest.mark.slow

CONFIG = small_config(experience_ratio=0.5)
ALGORITHM = algorithm_settings({"algorithm": {"trajectory_selection": CONFIG.trajectory_selection}})
OWN = Settings(
    CONFIG.bucket_center, CONFIG.bucket_spread, CONFIG.experience_ratio, other_settings.selector_of(ALGORITHM)
)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    root = tmp_path_factory.mktemp("draws")
    played.play(root, played.FINISHED)
    database = open_database(None, root)
    yield database
    database.close()


def shares_of(draws, settings):
    return what_if_steps.changed_shares(draws, settings, CONFIG.batch_size, CONFIG.rollouts_per_question)


@pytest.mark.parametrize(
    "settings",
    [replace(OWN, spread=0.2), replace(OWN, estimator=other_settings.selector_of(ALGORITHM, "highest_entropy"))],
)
def test_share_is_the_mean_over_the_possible_draws_of_each_step(database, settings):
    run_id = played.FINISHED.run_id
    for step, share in list(zip(*shares_of(all_draws(database, run_id), settings), strict=True))[-3:]:
        rows, sizes = buffer.candidates(database, run_id, int(step)), buffer.buckets_at(database, run_id, int(step))
        members: dict[int, list[int]] = {}
        for index, bucket in buffer.state_at(database, run_id, int(step) - 1).buckets.items():
            members.setdefault(bucket, []).append(index)
        drawn = {row.question_index: row.bucket for row in rows}
        recorded = RecordedDraw(
            int(step), CONFIG.batch_size, CONFIG.rollouts_per_question, members, drawn,
            {row.bucket: row.probability for row in sizes},
        )  # fmt: skip
        chosen = {row.question_index: row.trajectory_id for row in rows if row.is_chosen}
        stays = {
            index: other_settings.rechoose(
                [
                    Candidate(row.trajectory_id, int(step), row.entropy, row.nll, row.num_tokens)
                    for row in rows
                    if row.question_index == index
                ],
                settings.estimator,
                chosen[index],
            ).trajectory_id
            == chosen[index]
            for index in drawn
        }
        same = [
            sum(stays[index] for index in other_settings.redraw(recorded, settings, seed).kept) for seed in range(400)
        ]
        assert share == pytest.approx(1 - np.mean(same) / len(drawn), abs=0.06)
