import dataclasses

import numpy as np
import pytest

from exgrpo.jobs.runs.checkpoints import list_steps
from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.state import ExGRPOState
from tests import records
from tests.jobs.training.engines.contract import score
from tests.jobs.training.engines.embedded.engines import CONFIG, SMALL, make_questions
from tests.jobs.training.engines.verl_ray.engines import open_engine
from tests.jobs.training.engines.verl_ray.runs import RUN_SECONDS, new_run, run_content, steps_of, work, work_until
from tests.verl_on_cpu import on_cpu

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(2 * RUN_SECONDS)]

AHEAD = {"rollouts_ahead": True, "sampler_correction": "truncate"}
CLOSE = 1e-4
"""Nats between two computations of a token's log-prob."""


def test_what_is_begun_before_an_update_is_written_by_the_policy_before_it(tmp_path):
    config = dataclasses.replace(CONFIG, **SMALL, **AHEAD)
    with open_engine(tmp_path, 2, num_generating=1, **SMALL, **AHEAD) as engine:
        engine.save(tmp_path / "saved")
        state = ExGRPOState.create(tmp_path / "buffer", make_questions(12), config)
        first, second = (exgrpo_step(state, engine, config, is_last=is_last) for is_last in (False, True))
        assert {item.policy_version for report in (first, second) for item in fresh_of(report)} == {0}
        assert first.metrics["generator/log_prob_gap"] < CLOSE
        assert second.metrics["generator/log_prob_gap"] > 10 * CLOSE
        engine.restore(tmp_path / "saved")
        for report in (first, second):
            scored = np.concatenate(score(engine, report.groups).log_probs)
            written = np.concatenate([item.sampler_log_probs for item in fresh_of(report)])
            assert np.abs(scored - written).mean() < CLOSE
        # The restored engine draws with its counter's seeds again, by the policy that it has now.
        state = ExGRPOState.create(tmp_path / "again", make_questions(12), config)
        again = exgrpo_step(state, engine, config, is_last=True)
        assert tokens_of(again) == tokens_of(first)


def test_a_run_records_versions_evaluates_and_begins_anew_after_a_stop(tmp_path):
    algorithm = run_content()["algorithm"] | AHEAD
    validation = {"interval": 2, "samples_per_question": 1, "num_training_questions": 2}
    run = new_run(tmp_path, algorithm=algorithm, verl=on_cpu(1, num_generating=1), num_steps=6, validation=validation)
    assert work_until(run, 2) == "stopped"
    (stopped_at,) = list_steps(run.checkpoints_path)
    assert work(run) == "finished"
    for step, event in steps_of(run).items():
        version = step - 1 if step in {1, stopped_at + 1} else step - 2
        versions = {row.get("extra", {}).get("policy_version", step - 1) for row in event["trajectories"]}
        assert versions == {version}, f"step {step}"
        assert "generator/weight_mean" in event["metrics"]
    last = steps_of(run)[6]
    row = next(row for row in last["trajectories"] if row["verdict"] == "correct")
    tokens = records.tokens_of(run.path, row["trajectory_id"])
    assert tokens["behavior_log_probs"] != pytest.approx(tokens["log_probs"], abs=CLOSE)


def fresh_of(report):
    return [item for group in report.groups for item in group.trajectories]


def tokens_of(report):
    return [item.token_ids.tolist() for item in fresh_of(report)]
