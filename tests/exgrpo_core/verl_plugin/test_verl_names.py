from exgrpo_core.step_report import METRICS
from exgrpo_core.verl_plugin.verl_names import VERL_NAMES, dumped_rows, named_as_in_verl
from tests.exgrpo_core.builders import group, replay


def test_renamed_metrics_are_ones_that_steps_have():
    assert VERL_NAMES.keys() <= METRICS.keys()
    metrics = {"reward/mean": 0.5, "replay/num_replayed": 3.0, "tokens/generated": 120.0, "seconds/step": 4.0}
    assert named_as_in_verl(metrics, num_gpus=2) == {
        "critic/score/mean": 0.5,
        "replay/num_replayed": 3.0,
        "tokens/generated": 120.0,
        "perf/time_per_step": 4.0,
        "perf/throughput": 15.0,
    }


def test_replayed_trajectories_are_among_the_dumped_ones_with_the_step_that_they_come_from():
    fresh, mixed = group(0, [1.0, 0.0]), group(1, [0.0], replay(1, [5, 6], [-1.0, -1.0], [-0.5, -0.5]))
    for trajectory in (*fresh.trajectories, *mixed.trajectories):
        trajectory.born_step = 4
    rows = dumped_rows([fresh, mixed])
    assert rows == {
        "inputs": [[1, 2, 0], [1, 2, 0], [1, 2, 1], [1, 2, 1]],
        "outputs": [[3, 4], [3, 5], [3, 4], [5, 6]],
        "gts": ["7"] * 4,
        "scores": [1.0, 0.0, 0.0, 1.0],
        "born_step": [4, 4, 4, 1],
        "is_replayed": [False, False, False, True],
    }
