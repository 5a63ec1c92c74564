import io
import subprocess
import sys
from contextlib import redirect_stdout
from types import SimpleNamespace

import pytest
import torch

from exgrpo.jobs.actions.preflight import looks
from exgrpo.jobs.actions.preflight.looks import first_look, look_folder, remembered_look
from exgrpo.jobs.specs.train import ModelSpec, TrainSpec
from exgrpo.jobs.training.engines.embedded import first_look as program
from exgrpo.jobs.training.pretrained.sources import CACHE_VARIABLE
from tests.jobs.training.engines.tiny_models import build_model, tiny_tokenizer


def save(folder, broken=False):
    model = build_model("llama")
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.inf if broken else 0.5
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def in_this_process(command, **_):
    """Run the program of a look here, instead of in a process that loads torch again."""
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(io.StringIO()) as printed:
        patched.setattr(sys, "argv", command[3:])
        program.main()
    return SimpleNamespace(stdout=printed.getvalue())


@pytest.mark.slow
def test_a_good_look_is_remembered_until_the_files_change_and_a_bad_one_is_taken_again(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "model"
    spec = TrainSpec(model=ModelSpec(source=str(folder)))
    save(folder, broken=True)
    assert remembered_look(spec) is None
    with monkeypatch.context() as here:
        here.setattr(subprocess, "run", in_this_process)
        assert not first_look(spec).is_good
    assert remembered_look(spec) is None
    save(folder)
    assert remembered_look(spec) is None
    found = first_look(spec)
    assert found.is_good
    assert remembered_look(spec) == found
    with monkeypatch.context() as without_programs:
        without_programs.setattr(subprocess, "run", None)
        assert first_look(spec) == found


def test_models_that_are_not_here_and_those_of_verl_are_not_looked_at(tmp_path):
    assert first_look(TrainSpec(model=ModelSpec(source="hub/name"))) is None
    save(tmp_path)
    assert first_look(TrainSpec(engine="verl", model=ModelSpec(source=str(tmp_path)))) is None


def test_a_model_of_the_hub_is_looked_at_once_all_its_weights_are_here(tmp_path, monkeypatch):
    snapshot = tmp_path / "models--some--model" / "snapshots" / ("a" * 40)
    (tmp_path / "models--some--model" / "refs").mkdir(parents=True)
    (tmp_path / "models--some--model" / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    save(snapshot)
    spec = TrainSpec(model=ModelSpec(source="some/model"))
    assert look_folder(spec) == snapshot
    (snapshot / "model.safetensors").unlink()
    assert look_folder(spec) is None


@pytest.mark.slow
def test_of_a_model_beyond_this_machines_memory_architecture_and_files_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(looks, "_BYTES_PER_WEIGHT", 1e12)
    monkeypatch.setattr(subprocess, "run", in_this_process)
    save(tmp_path / "model", broken=True)
    spec = TrainSpec(model=ModelSpec(source=str(tmp_path / "model")))
    assert first_look(spec).is_good
    assert remembered_look(spec) is None
    (tmp_path / "model" / "tokenizer.json").unlink()
    assert not first_look(spec).is_good
