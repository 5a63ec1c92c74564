import json
import os

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from exgrpo.jobs.evaluation.model_folder import link_model, merge_shards
from exgrpo.jobs.machine.engine_environments import EngineEnvironmentError, engine_python
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import RunDirectoryError
from exgrpo.jobs.training.engines.embedded.model import load_policy
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model


def test_a_copy_that_was_cut_short_leaves_no_model_and_the_next_one_is_whole(tmp_path, monkeypatch):
    policy, target = tmp_path / "policy", tmp_path / "run" / "model"
    policy.mkdir()
    for name in ("config.json", "model-1.safetensors", "model-2.safetensors"):
        (policy / name).write_text(name)
    with monkeypatch.context() as full_disk:
        full_disk.setattr("exgrpo.jobs.evaluation.model_folder.link_or_copy", refuse_the_last)
        with pytest.raises(OSError, match="No space"):
            link_model(policy, target)
    assert not target.exists()
    link_model(policy, target)
    assert sorted(path.name for path in target.iterdir()) == sorted(path.name for path in policy.iterdir())
    assert [path.name for path in target.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("base", ["../../../../elsewhere", "../../../../run2/model", "../../.."])
def test_adapters_bring_no_folder_from_outside_of_their_run(tmp_path, base):
    policy, elsewhere = tmp_path / "run" / "checkpoints" / "step-00000002" / "policy", tmp_path / "elsewhere"
    for folder in (policy, elsewhere, tmp_path / "run2" / "model"):
        folder.mkdir(parents=True)
    (elsewhere / "secret").write_text("text")
    (policy / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    with pytest.raises(RunDirectoryError, match="outside"):
        link_model(policy, tmp_path / "copy" / "model")
    assert not (tmp_path / "copy" / "model").exists()


def test_adapters_bring_the_model_that_their_run_keeps(tmp_path):
    policy, kept = tmp_path / "run" / "checkpoints" / "step-00000002" / "policy", tmp_path / "run" / "model"
    for folder in (policy, kept):
        folder.mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    (policy / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "../../../model"}))
    link_model(policy, tmp_path / "copy" / "model")
    assert (tmp_path / "copy" / "model" / "base" / "config.json").is_file()


def refuse_the_last(source: str, target: str) -> str:
    if source.endswith("2.safetensors"):
        raise OSError(28, "No space left on device")
    os.link(source, target)
    return target


@pytest.fixture
def shards(tmp_path):
    """The share of the only rank, as verl's workers write it, with a token that the model has no embedding for."""
    try:
        engine_python("verl")
    except EngineEnvironmentError as error:
        pytest.skip(str(error))
    folder = tmp_path / "workers"
    model = save_tiny_model(folder / "huggingface")
    weights = AutoModelForCausalLM.from_pretrained(model).state_dict()
    (model / "model.safetensors").unlink()
    torch.save(weights, folder / "model_world_size_1_rank_0.pt")
    (folder / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    return folder


@pytest.mark.verl
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_merged_shards_are_the_model(shards, tmp_path):
    merge_shards(shards, tmp_path / "model")
    weights = torch.load(shards / "model_world_size_1_rank_0.pt", weights_only=True)
    policy = load_policy(str(tmp_path / "model"), torch.device("cpu"))
    for name, tensor in policy.model.state_dict().items():
        assert torch.equal(tensor, weights[name].bfloat16().float()), name
    before = PreTrainedTokenizerFast.from_pretrained(shards / "huggingface")
    assert policy.tokenizer.encode("x = 5") == before.encode("x = 5")


@pytest.mark.verl
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_merger_that_fails_leaves_no_model(shards, tmp_path):
    (shards / "model_world_size_1_rank_0.pt").unlink()
    with pytest.raises(TrainingError):
        merge_shards(shards, tmp_path / "model")
    assert not (tmp_path / "model").exists()
