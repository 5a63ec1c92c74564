from functools import partial

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
