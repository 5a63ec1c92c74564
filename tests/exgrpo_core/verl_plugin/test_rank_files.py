"""Each rank's files: checked by the ranks themselves, and read by fewer and by more ranks."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from exgrpo_core.verl_plugin.rank_files import (
    find_changed,
    load_resharded,
    num_ranks_of,
    remove_others,
    write_checksums,
)


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


def write_model(folder, num_ranks, model):
    for rank in range(num_ranks):
        torch.save(model.state_dict(), folder / f"model_world_size_{num_ranks}_rank_{rank}.pt")
        write_checksums(folder, num_ranks, rank)


@pytest.mark.parametrize("numbers", [(4, 2), (2, 4), (12, 2), (2, 12)])
def test_a_step_that_is_saved_by_another_number_of_ranks_has_its_files_alone(tmp_path, numbers):
    for num_ranks in numbers:
        remove_others(tmp_path, num_ranks)
        write_model(tmp_path, num_ranks, torch.nn.Linear(1, 1))
        (tmp_path / "fsdp_config.json").touch()
    assert num_ranks_of(tmp_path) == numbers[-1]
    assert len([*tmp_path.iterdir()]) == 2 * numbers[-1] + 1


def test_only_what_is_asked_for_is_read_of_another_number_of_ranks(tmp_path):
    saved, read = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    write_model(tmp_path, 2, saved)
    load_resharded(tmp_path, 2, read, None, None)
    assert torch.equal(read.weight, saved.weight)
    (tmp_path / "model_world_size_2_rank_0.pt").unlink()
    load_resharded(tmp_path, 2, None, None, None)


@pytest.mark.verl
@pytest.mark.filterwarnings("default")
def test_verls_setting_says_what_is_loaded_of_another_number_of_ranks(tmp_path):
    from exgrpo_core.verl_plugin.fsdp_engine import GpuEngine

    saved, engine = torch.nn.Linear(2, 2), object.__new__(GpuEngine)
    write_model(tmp_path, 2, saved)
    engine.module, engine.optimizer, engine.lr_scheduler = torch.nn.Linear(2, 2), None, None
    engine._is_offload_param = engine._is_offload_optimizer = False
    contents = SimpleNamespace(should_load_model=False, should_load_optimizer=False, should_load_extra=False)
    engine.checkpoint_manager = contents
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        engine.load_checkpoint(str(tmp_path))
        assert not torch.equal(engine.module.weight, saved.weight)
        contents.should_load_model = True
        engine.load_checkpoint(str(tmp_path))
        assert torch.equal(engine.module.weight, saved.weight)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.verl
@pytest.mark.filterwarnings("default")
def test_a_branch_trains_on_with_its_own_learning_rate_and_its_parents_moments(tmp_path):
    from exgrpo_core.verl_plugin.fsdp_engine import GpuEngine

    def optimizer_of(rate):
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.AdamW([weight], lr=rate, weight_decay=rate)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4)), weight

    class Loading(GpuEngine):
        def _load_saved(self, _path):
            self.optimizer.load_state_dict(saved.state_dict())
            self.lr_scheduler.load_state_dict(saved_schedule.state_dict())

    saved, saved_schedule, weight = optimizer_of(0.1)
    weight.grad = torch.ones(2)
    saved.step()
    saved_schedule.step()
    engine = object.__new__(Loading)
    engine.optimizer, engine.lr_scheduler, _ = optimizer_of(0.02)
    engine.load_checkpoint(str(tmp_path))
    (group,) = engine.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.02 * 2 / 4, 0.02)
    assert len(engine.optimizer.state) == 1
    engine.optimizer.step()
    engine.lr_scheduler.step()
    assert group["lr"] == pytest.approx(0.02 * 3 / 4)
