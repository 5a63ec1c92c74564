"""The recorder among verl's loggers: verl's own `Tracking`, and the method by which its trainer dumps rollouts."""

import pytest

from exgrpo_core.recording.lines import parse_trajectory
from tests.records import read_lines

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_metrics_and_dumped_rollouts_of_verl_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("EXGRPO_RUNS_ROOT", str(tmp_path / "runs"))
    from omegaconf import OmegaConf
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.utils.tracking import Tracking

    class Trainer(PPOTrainer):
        def __init__(self):
            self.logger = Tracking("project", "experiment", ["console", "exgrpo"], {"trainer": {"seed": 1}})
            self.config = OmegaConf.create({"trainer": {"rollout_data_dir": str(tmp_path / "dumps")}})
            self.global_steps = 2
            self._init_dump_executor()

    Trainer.__abstractmethods__ = frozenset()
    trainer = Trainer()
    rows = {"inputs": ["a", "a"], "outputs": ["b", "c"], "gts": [None, "c"], "scores": [0.0, 1.0]}
    columns = {"uid": ["q_0_0", "q_1_0"], "is_replayed": [False, True]}
    for folder in ("dumps", "validation"):
        trainer._dump_generations(**rows, reward_extra_infos_dict=columns, dump_path=str(tmp_path / folder))
    trainer._shutdown_dump_executor()
    trainer.logger.log({"critic/score/mean": 0.5}, step=2)
    trainer.logger.finish()
    (recorded,) = (tmp_path / "runs").glob("*/attempts/0001/record-0000-of-0001.jsonl.gz")
    first, second, metrics = read_lines(recorded)
    assert metrics["metrics"] == {"critic/score/mean": 0.5}
    facts = parse_trajectory(second)[1]
    assert ("answer" in parse_trajectory(first)[1], facts["answer"]) == (False, "c")
    assert (facts["group"], facts["reward"]) == ("q", 1.0)
    assert facts["extra"] == {"uid": "q_1_0", "is_replayed": True}
    assert '"finished"' in (recorded.parent / "outcome.json").read_text()
