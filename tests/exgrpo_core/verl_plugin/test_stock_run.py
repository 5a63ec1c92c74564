"""A user of stock verl installs `exgrpo-core`, turns replay on with three lines of configuration, and records the run
with one more."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text

from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.rollout_formats import verl_dumps
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource
from exgrpo.jobs.runs.state import is_recorded, read_state
from tests.exgrpo_core.verl_plugin import stock_verl
from tests.exgrpo_core.verl_plugin.stock_verl import imports, launch, make_environment, metrics_of, rollouts_of

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3 * stock_verl.RUN_SECONDS)]

LINES = (
    "trainer.v1.trainer_mode=exgrpo",
    "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
    "+exgrpo.start_pass_rate=null",
)
AHEAD = (
    "+exgrpo.rollouts_ahead=true", "+exgrpo.sampler_correction=truncate", "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
)  # fmt: skip
FIRST = {"trainer.total_epochs": 2, "trainer.save_freq": 4, "trainer.val_before_train": True}
SECOND = {"trainer.total_training_steps": 6, "trainer.save_freq": -1, "+ray_kwargs.ray_init.num_gpus": 2}
QUESTIONS = {
    "replayed": "select step, count(*) from replays group by step order by step",
    "scored": "select count(*) from candidates",
    "selected": "select count(*) from selections",
    "inserted": "select count(*) from buffer_changes where kind = 'inserted'",
    "texts": "select count(*) from trajectory_texts where length(text) > 0",
    "unknown": "select count(*) from replays r where not exists "
    "(select 1 from trajectories t where t.run_key = r.run_key and t.trajectory_id = r.trajectory_id)",
    "asked": "select count(*) from questions where length(prompt_text) > 0",
}


class Trained(NamedTuple):
    """The folder of a training that was started twice, its recorded runs, and verl's metrics of each start by step."""

    folder: Path
    runs: Path
    first: dict[int, dict[str, float]]
    resumed: dict[int, dict[str, float]]

    def replayed(self, step: int) -> list[dict[str, Any]]:
        return [row for row in rollouts_of(self.folder, step) if row["is_replayed"]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Trained:
    """Four steps, then two more from the checkpoint, whose rollouts are begun before the updates before them."""
    folder = tmp_path_factory.mktemp("stock")
    python, runs = make_environment(folder / "environment"), folder / "runs"
    assert not imports(python, "exgrpo")
    settings, metrics = stock_verl.write_inputs(folder), []
    for changes, lines in ((FIRST, LINES), (SECOND, (*LINES, *AHEAD))):
        done = launch(python, folder, settings | changes, [*lines, f"+exgrpo.record_to={runs}"])
        assert done.returncode == 0, done.stdout[-5000:]
        metrics.append(metrics_of(folder))
    return Trained(folder, runs, *metrics)


def test_replayed_trajectories_enter_the_updates_of_stock_verl(trained):
    metrics = trained.first
    assert any(name.startswith("val-core/toy/") for name in metrics[0])
    assert metrics[1]["replay/num_replayed"] == 0
    assert metrics[3]["replay/num_replayed"] > 0
    # The workers' losses saw replayed tokens, whose ratios are against the policy that generated them.
    assert 0.0 < metrics[3]["ratio/replayed_mean"] != 1.0
    assert {"critic/score/mean", "actor/grad_norm", "timing_s/gen", "timing_s/step"} <= metrics[3].keys()
    assert len(trained.replayed(3)) == metrics[3]["replay/num_replayed"]
    assert all(row["score"] == 1.0 and row["rollout_step"] < 3 for row in trained.replayed(3))
    source = RolloutSource(trained.folder / "rollouts")
    assert {step.step for step in verl_dumps.read(source)} == set(range(1, 7))
    assert source.bad.num == 0


def test_a_resumed_training_has_the_checkpoints_buffer_and_may_generate_ahead(trained):
    first, resumed = trained.first, trained.resumed
    assert resumed.keys() == {5, 6}
    # The rollouts of step 6 were begun before the update of step 5.
    assert resumed[5]["generator/log_prob_gap"] < 1e-4 < resumed[6]["generator/log_prob_gap"]
    assert resumed[5]["tokens/generated_total"] > first[4]["tokens/generated_total"]
    outputs = {(row["input"], row["output"]) for step in range(1, 5) for row in rollouts_of(trained.folder, step)}
    assert trained.replayed(5)
    assert {(row["input"], row["output"]) for row in trained.replayed(5)} <= outputs


def test_the_recorded_run_has_buffer_selections_and_lineage_and_goes_on_with_the_resumed_training(trained):
    (run,) = list_run_directories(trained.runs)
    assert (run.spec().algorithm.batch_size, run.spec().num_steps) == (4, 4)
    assert run.attempts() == [1, 2]
    assert [str(read_outcome(run.attempt_path(attempt)).status) for attempt in (1, 2)] == ["finished", "finished"]
    assert (read_state(run).status, is_recorded(run.attempt_path(1))) == ("finished", True)
    with open_fresh_index(trained.runs, None) as database, database.read() as connection:
        found = {name: [*map(tuple, connection.execute(text(query)))] for name, query in QUESTIONS.items()}
    for metrics in (trained.first, trained.resumed):
        for step in metrics.keys() - {0}:
            assert dict(found["replayed"]).get(step, 0) == metrics[step]["replay/num_replayed"]
    assert found["unknown"] == [(0,)]
    assert found["asked"] == [(stock_verl.NUM_QUESTIONS,)]
    for name in ("scored", "selected", "inserted", "texts"):
        assert found[name][0][0] > 0, name
