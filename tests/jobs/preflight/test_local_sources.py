from pathlib import Path

import pytest

from exgrpo_core.config import ExGRPOConfig
from jobs.preflight.local_sources import resolve_source, with_absolute_sources
from jobs.specs.train import DataSpec, ModelSpec, SpecError, TrainSpec


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The caller's folder, with a data file and a model's folder in it."""
    (tmp_path / "questions.jsonl").write_text("{}")
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("source", ["models/tiny", "./models/tiny", "models/tiny/", "~/models/tiny"])
def test_path_is_meant_from_the_callers_folder(folder, source):
    assert resolve_source("model.source", source) == str(folder / "models" / "tiny")


@pytest.mark.parametrize("source", ["chains", "chains-warm", "gpt2", "Qwen/Qwen2.5-Math-7B", "org/data.v2"])
def test_hub_name_and_what_is_made_here_stay_as_they_are(folder, source):
    (folder / "chains").mkdir()
    assert resolve_source("data.source", source) == source


@pytest.mark.parametrize(
    "source", ["/nowhere/model", "./gone", "../gone", "~/gone", "gone.parquet", "data/gone.jsonl", "a/b/c", "gone/"]
)
@pytest.mark.usefixtures("folder")
def test_path_that_leads_nowhere_is_refused_with_its_field(source):
    with pytest.raises(SpecError) as refused:
        resolve_source("model.source", source)
    assert refused.value.fields == ("model.source",)


def test_every_local_file_of_a_specification_is_named_absolutely(folder):
    spec = TrainSpec(
        model=ModelSpec(source="models/tiny"),
        data=DataSpec(source="questions.jsonl"),
        external_experience=Path("questions.jsonl"),
        algorithm=ExGRPOConfig(uses_external_experience=True),
    )
    absolute = with_absolute_sources(spec)
    data = folder / "questions.jsonl"
    assert (absolute.model.source, absolute.data.source) == (str(folder / "models" / "tiny"), str(data))
    assert absolute.external_experience == data


@pytest.mark.usefixtures("folder")
def test_missing_file_of_trajectories_is_refused_whatever_its_name():
    algorithm = ExGRPOConfig(uses_external_experience=True)
    with pytest.raises(SpecError) as refused:
        with_absolute_sources(TrainSpec(external_experience=Path("gone"), algorithm=algorithm))
    assert refused.value.fields == ("external_experience",)
