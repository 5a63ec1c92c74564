from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo_core.bounded_json import UnreadableFileError
from jobs.recording.trajectory_file import list_steps, read_questions, read_token_data, read_trajectories


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
