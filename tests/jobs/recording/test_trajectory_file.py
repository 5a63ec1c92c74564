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
    with pytest.raises(UnreadableFileError, match=rf"^{path}: cannot be read \(.+\); use another copy of the run\.$"):
        read(path)


def test_questions_without_details_are_refused_with_a_sentence(tmp_path):
    pq.write_table(pa.table({"question_index": [0]}), tmp_path / "questions.parquet")
    with pytest.raises(UnreadableFileError, match="details of a question: expected JSON fields"):
        read_questions(tmp_path / "questions.parquet")


@pytest.mark.parametrize(
    "columns",
    [
        {"token_ids": [[-1, 2]]},
        {"token_ids": [[1, None]]},
        {"token_ids": [["a", "b"]]},
        {"token_ids": [7]},
        {"token_ids": [[1, 2]], "entropies": [[0.5]]},
    ],
)
def test_values_of_tokens_that_no_run_writes_are_refused_with_a_sentence(tmp_path, columns):
    path = tmp_path / "step-00000001.parquet"
    pq.write_table(pa.table({"trajectory_id": [1], "is_replayed": [False]} | columns), path)
    with pytest.raises(UnreadableFileError, match=r"cannot be read \(.+\); use another copy of the run\.$"):
        read_token_data(path, 1)


@pytest.mark.parametrize("details", ["[1]", "null", "5", '"x"', '{"question":5}', "{", "[" * 200_000, None, 7])
def test_details_of_a_question_that_no_run_writes_are_refused_with_a_sentence(tmp_path, details):
    path = tmp_path / "questions-training.parquet"
    pq.write_table(pa.table({"question_index": [0], "details": ['{"question":"1 + 1"}']}), path)
    assert read_questions(path)["questions"] == [{"question_index": 0, "details": {"question": "1 + 1"}}]
    pq.write_table(pa.table({"question_index": [0], "details": [details]}), path)
    with pytest.raises(UnreadableFileError, match=rf"^{path}: cannot be read \(details of a question: expected JSON"):
        read_questions(path)
