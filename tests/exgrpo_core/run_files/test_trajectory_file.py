from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.run_files.trajectory_file import (
    list_steps,
    read_questions,
    read_token_data,
    read_trajectories,
    rows_of_step,
    trajectory_table,
)
from tests.exgrpo_core.builders import group


@pytest.mark.parametrize("content", [None, b"", b"PAR1 is not all of it"])
@pytest.mark.parametrize(
    "read", [read_trajectories, list_steps, read_questions, partial(read_token_data, trajectory_id=1)]
)
def test_a_missing_or_damaged_file_is_one_sentence(tmp_path, read, content):
    path = tmp_path / "step-00000001.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableFileError, match=str(path)):
        read(path)


WHOLE = {"trajectory_id": [1], "is_replayed": [False], "token_ids": [[1, 2]]}
WHOLE |= {name: [[-0.5, -0.5]] for name in ("entropies", "log_probs", "behavior_log_probs")}


@pytest.mark.parametrize(
    "columns",
    [
        {"token_ids": [[-1, 2]]}, {"token_ids": [[1, None]]}, {"token_ids": [["a", "b"]]}, {"token_ids": [7]},
        {"entropies": [[0.5]]},
    ],
)  # fmt: skip
def test_values_of_tokens_that_no_run_writes_are_refused(tmp_path, columns):
    path = tmp_path / "step-00000001.parquet"
    pq.write_table(pa.table(WHOLE), path)
    assert read_token_data(path, 1)["token_ids"] == [1, 2]
    pq.write_table(pa.table(WHOLE | columns), path)
    with pytest.raises(UnreadableFileError):
        read_token_data(path, 1)


@pytest.mark.parametrize("details", ["[1]", "null", "5", '"x"', '{"question":5}', "{", "[" * 200_000, None, 7])
def test_details_of_a_question_that_no_run_writes_are_refused_with_a_sentence(tmp_path, details):
    path = tmp_path / "questions-training.parquet"
    pq.write_table(pa.table({"question_index": [0], "details": ['{"question":"1 + 1"}']}), path)
    assert read_questions(path)["questions"] == [{"question_index": 0, "details": {"question": "1 + 1"}}]
    pq.write_table(pa.table({"question_index": [0], "details": [details]}), path)
    with pytest.raises(UnreadableFileError):
        read_questions(path)


def test_a_part_of_the_reward_is_a_column_of_its_own(tmp_path):
    path, written = tmp_path / "step-00000004.parquet", group(0, [1.0, 0.0])
    written.trajectories[0].reward_parts = {"format": 1.0, "mine:code": 0.25}
    pq.write_table(trajectory_table([(4, [written])], lambda _: False), path)
    first, second = rows_of_step(read_trajectories(path), 4)["trajectories"]
    assert first["extra"] == {"reward/format": 1.0, "reward/mine:code": 0.25}
    assert second["extra"] == {"reward/format": None, "reward/mine:code": None}


def test_rollouts_generated_ahead_keep_the_version_and_log_probs_of_the_policy_that_wrote_them(tmp_path):
    path = tmp_path / "step-00000004.parquet"

    def write(version):
        """Write a group of step 4 that the policy after so many steps wrote."""
        written = group(0, [1.0, 0.0])
        for trajectory_id, item in enumerate(written.trajectories):
            item.trajectory_id, item.rollout_step, item.policy_version = trajectory_id, 4, version
            item.sampler_log_probs = item.log_probs - np.float32(0.25)
        pq.write_table(trajectory_table([(4, [written])], lambda item: item.reward == 1.0), path)
        return rows_of_step(read_trajectories(path), 4)["trajectories"]

    assert [row["extra"] for row in write(2)] == [{"policy_version": 2}] * 2
    assert read_token_data(path, 0)["behavior_log_probs"] == [-0.75, -0.75]
    assert read_token_data(path, 1)["behavior_log_probs"] is None
    assert [row.get("extra") for row in write(3)] == [None, None]
    assert read_token_data(path, 0)["behavior_log_probs"] is None
