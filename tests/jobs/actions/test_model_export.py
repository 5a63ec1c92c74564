import os
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from exgrpo.jobs.actions.model_export import export_model
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.runs.checkpoints import save_checkpoint
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.engines.embedded.lora import LoraSettings
from exgrpo.jobs.training.engines.embedded.model import load_policy, train_adapters
from exgrpo.jobs.training.engines.embedded.state_files import save_engine
from exgrpo.jobs.training.engines.embedded.update import OptimSettings, PolicyOptimizer
from tests.jobs.training.chat_model import CHAT_TEMPLATE, make_chat_model

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory.open(tmp_path / "runs", queue_job(tmp_path / "runs", TrainSpec(name="mine")))
    save_checkpoint(run.checkpoints_path, 5, write_policy)
    return run


def write_policy(checkpoint) -> None:
    make_chat_model(checkpoint.policy)
    for name in ("optimizer.safetensors", "sampler.safetensors", "engine.json"):
        (checkpoint.policy / name).write_bytes(b"of training")


def test_exported_folder_loads_in_transformers_as_the_checkpoint_does(run, tmp_path):
    folder = export_model(run.path.parent, "mine@last", tmp_path / "model")
    policy = next(run.checkpoints_path.iterdir()) / "policy"
    model, saved = (AutoModelForCausalLM.from_pretrained(path) for path in (folder, policy))
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), saved.parameters(), strict=True))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert not {"optimizer.safetensors", "sampler.safetensors", "engine.json"} & {
        path.name for path in folder.iterdir()
    }
    assert (folder / "config.json").stat().st_nlink == 1


def test_adapters_are_merged(run, tmp_path):
    base = make_chat_model(tmp_path / "base")
    policy = load_policy(str(base), torch.device("cpu"))
    train_adapters(
        policy, LoraSettings(rank=2, alpha=4, target_modules=("q_proj", "down_proj"), base=str(base)), seed=0
    )
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    optimizer = PolicyOptimizer(policy.model, OptimSettings(learning_rate=1e-3))
    save_checkpoint(run.checkpoints_path, 6, lambda to: save_engine(to.policy, policy, optimizer, torch.Generator()))
    folder = export_model(run.path.parent, "mine@6", tmp_path / "model")
    exported, unchanged = (AutoModelForCausalLM.from_pretrained(path) for path in (folder, base))
    ids = torch.tensor([[5, 17, 3, 40]])
    with torch.no_grad():
        adapted, merged, before = (model(ids).logits for model in (policy.model, exported, unchanged))
    torch.testing.assert_close(merged, adapted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(merged, before, atol=1e-2)
    assert AutoTokenizer.from_pretrained(folder).chat_template == CHAT_TEMPLATE
    assert not list(folder.glob("adapter*"))


def test_disk_that_fills_leaves_nothing(run, tmp_path, monkeypatch):
    def refuse_weights(source, target):
        if os.fspath(source).endswith("model.safetensors"):
            raise OSError(28, "No space left on device")
        return copy_file(source, target)

    copy_file = shutil.copyfile
    monkeypatch.setattr("exgrpo.jobs.actions.model_export.shutil.copyfile", refuse_weights)
    with pytest.raises(CommandError, match="No space left on device"):
        export_model(run.path.parent, "mine@5", tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_what_is_no_checkpoint_and_a_folder_that_exists_are_refused(run, tmp_path):
    (tmp_path / "there").mkdir()
    for target, name in (("mine", "model"), ("mine@7", "model"), ("mine@5", "there")):
        with pytest.raises(CommandError):
            export_model(run.path.parent, target, tmp_path / name)
    assert not list((tmp_path / "there").iterdir())
