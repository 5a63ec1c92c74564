"""Each rank's files: checked by the ranks themselves, and read by fewer and by more ranks."""

import subprocess
import sys

import pytest

from exgrpo_core.verl_plugin.rank_files import find_changed, num_ranks_of, write_checksums


@pytest.mark.slow
def test_training_continues_on_two_ranks_and_on_four_again_as_it_would_have_on_four(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=4"]
    done = subprocess.run(
        [*command, "-m", "tests.exgrpo_core.verl_plugin.toy_ranks", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_each_file_that_changed_is_found_by_one_rank_of_any_number(tmp_path):
    for rank in range(4):
        (tmp_path / f"model_world_size_4_rank_{rank}.pt").write_bytes(b"weights")
        write_checksums(tmp_path, 4, rank)
    assert num_ranks_of(tmp_path) == 4
    (tmp_path / "model_world_size_4_rank_1.pt").write_bytes(b"weightz")
    (tmp_path / "model_world_size_4_rank_2.pt").unlink()
    (tmp_path / "checksums_world_size_4_rank_3.json").write_text("[")
    for num_ranks in (1, 2, 3, 4, 8):
        changed = [name for rank in range(num_ranks) for name in find_changed(tmp_path, num_ranks, rank)]
        assert sorted(changed) == [
            "checksums_world_size_4_rank_3.json", "model_world_size_4_rank_1.pt", "model_world_size_4_rank_2.pt",
        ]  # fmt: skip
