"""Four ranks that train a model sharded by FSDP2, save it as verl does, and load it on two ranks and on four again."""

import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from exgrpo_core.verl_plugin.rank_files import find_changed, load_resharded, num_ranks_of, write_checksums


class Training:
    """A model of uneven sizes, its optimizer and a falling learning rate."""

    def __init__(self, mesh: DeviceMesh) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
        for module in [*self.model, self.model]:
            fully_shard(module, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0 / (1 + step))
        self.num_ranks, self.rank = mesh.size(), mesh.get_local_rank()

    def step(self) -> None:
        inputs = torch.linspace(-1.0, 1.0, 40).reshape(8, 5)
        self.model(inputs).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()

    def save(self, folder: Path) -> None:
        rng = {"cpu": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}  # as verl
        content = {
            "model": self.model.state_dict(),
            "optim": self.optimizer.state_dict(),
            "extra_state": {"lr_scheduler": self.scheduler.state_dict(), "rng": rng},
        }
        for name, value in content.items():
            torch.save(value, folder / f"{name}_world_size_{self.num_ranks}_rank_{self.rank}.pt")
        write_checksums(folder, self.num_ranks, self.rank)

    def load(self, folder: Path) -> None:
        num_saved = num_ranks_of(folder)
        assert num_saved is not None
        assert find_changed(folder, self.num_ranks, self.rank) == []
        load_resharded(folder, num_saved, self.model, self.optimizer, self.scheduler)

    def weights(self) -> list[torch.Tensor]:
        return [parameter.full_tensor().detach() for parameter in self.model.parameters()]


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    meshes = {num_ranks: DeviceMesh("cpu", list(range(num_ranks)), mesh_dim_names=("fsdp",)) for num_ranks in (2, 4)}
    for num_ranks in meshes:
        (folder / str(num_ranks)).mkdir(exist_ok=True)
    dist.barrier()
    whole = Training(meshes[4])
    whole.step()
    whole.save(folder / "4")
    dist.barrier()
    if dist.get_rank() < 2:
        fewer = Training(meshes[2])
        fewer.load(folder / "4")
        fewer.step()
        fewer.save(folder / "2")
    dist.barrier()
    more = Training(meshes[4])
    more.load(folder / "2")
    whole.step()
    for training in (more, whole):
        training.step()
    torch.testing.assert_close(more.weights(), whole.weights())
    assert more.scheduler.state_dict() == whole.scheduler.state_dict()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    # As Ray ends ranks. torch's caches hold the groups after `destroy_process_group`, and their threads would run on
    # while the interpreter ends, which now and then aborts the process.
    os._exit(0)
