import numpy as np
import pytest

from exgrpo.jobs.actions.replay.facts import Outcome, Stage, summed_over
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo_core import recording

ADVANTAGES = (0.75, -0.25, -0.25, -0.25)
LENGTHS = (3, 5, 2, 8)
CONFIG = {"train": {"max_completion_length": 10, "epsilon": 0.1, "epsilon_high": 0.3}}
TOKEN_MEAN = -(0.75 * 3 - 0.25 * (5 + 2 + 8)) / 18
CONSTANT = -(0.75 * 3 - 0.25 * (5 + 2 + 8)) / 40
SEQUENCE_SUMS = -(0.75 * 3 - 0.25 * (5 + 2 + 8)) / 4


def aggregation(root, steps, config=CONFIG):
    """Record a step a dictionary, with its loss and with other fields of all trajectories, and return its row."""
    with recording.start("loop", config, root, run_id="loop") as run:
        for step, fields in enumerate(steps, start=1):
            columns = {"advantage": ADVANTAGES, "num_tokens": LENGTHS} | fields
            loss = columns.pop("loss", None)
            rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            given = [{"prompt": "q", "response": "7", "reward": row["advantage"]} | row for row in rows]
            run.log(step, {} if loss is None else {"loss": loss}, trajectories=given)
    with open_fresh_index(root, None) as database:
        rows = [row for step in range(1, len(steps) + 1) for row in replay_step(database, root, "loop", step)]
    assert {row.stage for row in rows} == {Stage.ADVANTAGES, Stage.LOSS}
    [row] = summed_over([row for row in rows if row.stage is Stage.LOSS])
    return row


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (TOKEN_MEAN, "mean over all tokens (DAPO; TRL's dapo and bnpo"),
        (float(np.float32(TOKEN_MEAN)) + 1e-7, "mean over all tokens (DAPO"),
        (round(TOKEN_MEAN, 4), "mean over all tokens (DAPO"),
        (-1e-9, "mean over sequences of the mean over tokens (GRPO"),
        (CONSTANT, "sum over tokens by train/max_completion_length of 10 and sequence (Dr.GRPO"),
        (SEQUENCE_SUMS, "mean over sequences of the sum over tokens (verl's"),
    ],
)
def test_aggregation_of_a_loss_is_named(tmp_path, loss, name):
    row = aggregation(tmp_path, [{"loss": loss}])
    assert row.outcome is Outcome.SAME
    assert row.note.startswith(f"Loss is the {name}")
    assert len(row.formulas) == 1


def test_one_step_that_tells_aggregations_apart_decides_for_all(tmp_path):
    equal = {"num_tokens": (10,) * 4, "advantage": (0.75, -0.25, -0.25, 0.25), "loss": -0.125}
    row = aggregation(tmp_path, [equal])
    assert (len(row.formulas), "cannot tell it from" in row.note) == (3, True)
    row = aggregation(tmp_path / "more", [equal, {"loss": CONSTANT}, {"advantage": (0.0,) * 4, "loss": 0.0}])
    assert (row.outcome, row.num_compared, len(row.formulas)) == (Outcome.SAME, 2, 1)
    assert (
        row.note
        == "Loss is the sum over tokens by train/max_completion_length of 10 and sequence (Dr.GRPO; TRL's dr_grpo)."
    )


def test_a_step_that_aggregates_otherwise_than_those_before_is_named(tmp_path):
    row = aggregation(tmp_path, [{"loss": TOKEN_MEAN}, {"loss": TOKEN_MEAN}, {"loss": CONSTANT}, {"loss": TOKEN_MEAN}])
    assert (row.outcome, row.step, row.num_different) == (Outcome.DIFFERS, 3, 1)
    assert row.note.startswith("No formula gives all steps: before step 3 it is mean over all tokens")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"loss": None}, "{'loss': value}"), ({"loss": 0.1, "advantage": (None,) * 4}, "'advantage': value"),
        ({"loss": 0.1, "num_tokens": (None,) * 4}, "'num_tokens': value"),
        ({"loss": 0.1}, "'update_log_probs': values"), ({"loss": 0.0, "advantage": (0.0,) * 4}, "Each advantage is 0"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_the_argument_that_records_it(tmp_path, fields, sentence):
    row = aggregation(tmp_path, [fields | {"reward": (1.0, 0.0, 0.0, 0.0)}])
    assert row.outcome is Outcome.UNKNOWN
    assert sentence in row.note


def test_log_probs_that_the_update_saw_go_into_the_loss_with_the_recorded_clip_range(tmp_path):
    old = [np.full(size, -1.0, dtype=np.float32) for size in LENGTHS]
    ratios = [np.array(values) for values in ([1.0, 1.5, 0.5], [0.5] * 5, [1.25, 1.0], [1.0] * 8)]
    new = [(array + np.log(of_one)).astype(np.float32) for array, of_one in zip(old, ratios, strict=True)]
    # 1 + 1.3 + .5 of the positive advantage; of the others at least .9, and at most what they are.
    terms = [-0.75 * 2.8, 0.25 * 4.5, 0.25 * 2.25, 0.25 * 8]
    fields = {"log_probs": old, "update_log_probs": new, "loss": sum(terms) / 18}
    assert aggregation(tmp_path, [fields]).note.startswith("Loss is the mean over all tokens")
    assert "KL penalty" in aggregation(tmp_path / "other", [fields | {"loss": TOKEN_MEAN}]).note
    # A range of whole numbers is one too: ratios from 1 to 2, where true is no number.
    whole = {"epsilon": 0, "epsilon_high": True, "clip_ratio_high": 1}
    fields["loss"] = (-0.75 * (1 + 1.5 + 0.5) + 0.25 * (5 + 2.25 + 8)) / 18
    assert aggregation(tmp_path / "whole", [fields], whole).note.startswith("Loss is the mean over all tokens")
