import subprocess

import pytest
import torch

from jobs.preflight.dry_run import first_look
from jobs.pretrained.sources import CACHE_VARIABLE
from jobs.specs.train import ModelSpec, TrainSpec
from tests.jobs.engines.tiny_models import build_model, tiny_tokenizer


def save(folder, broken=False):
    model = build_model("llama")
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.inf if broken else 0.5
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


@pytest.mark.slow
def test_a_look_is_told_before_the_start_and_remembered_until_the_files_change(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "model"
    spec = TrainSpec(model=ModelSpec(source=str(folder)))
    save(folder, broken=True)
    assert "no finite numbers (in lm_head.weight)" in first_look(spec)
    save(folder)
    found = first_look(spec)
    assert "differ by" in found
    with monkeypatch.context() as without_programs:
        without_programs.setattr(subprocess, "run", None)
        assert first_look(spec) == found


def test_models_that_are_not_here_and_those_of_verl_are_not_looked_at(tmp_path):
    assert first_look(TrainSpec(model=ModelSpec(source="hub/name"))) is None
    save(tmp_path)
    assert first_look(TrainSpec(engine="verl", model=ModelSpec(source=str(tmp_path)))) is None
