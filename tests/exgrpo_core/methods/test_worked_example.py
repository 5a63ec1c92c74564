"""The methods that `docs/methods.md` writes, as a reader would use them."""

import itertools
import re
import shlex
from pathlib import Path

import pytest

import exgrpo_core
from exgrpo.jobs.actions.studies.sweeps import sweep_of_file
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import SpecError, load_preset
from tests.exgrpo_core.builders import small_config
from tests.exgrpo_core.toy_runs import run

DOCUMENT = Path(exgrpo_core.__file__).parents[1] / "docs/methods.md"


def blocks(language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The folder with `mine.py`, whose module a run can load."""
    (tmp_path / "mine.py").write_text("\n\n".join(blocks("python")))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EXGRPO_ALLOWED_CODE", "mine")
    return tmp_path


def test_the_documents_methods_run_as_they_are_printed(written):
    config = small_config(
        question_selection="mine:HardestFirst",
        trajectory_selection="mine:Shortest",
        strategy_settings={"most_draws": 1.0},
    )
    state, _, reports = run(written, config, 12)
    chosen = [item for report in reports for item in report.selections]
    assert any(item.num_tokens.size > 1 for item in chosen)
    assert all(item.num_tokens[list(item.chosen)] == item.num_tokens.min() for item in chosen)
    assert state.replay_buffer.history.num_draws.max() == 1


def test_the_documents_command_its_refusal_and_its_sweep_are_as_printed(written):
    command, refusal, *_ = blocks("")
    words = shlex.split(command)
    settings = [value for option, value in itertools.pairwise(words) if option == "--set"]
    spec = apply_settings(load_preset(words[words.index("--preset") + 1]), settings)
    assert (spec.name, spec.num_steps, spec.algorithm.strategy_settings) == ("rare first 3", 8, {"preference": 3.0})
    config = small_config(question_selection="mine:RareFirst", strategy_settings={"preference": 3.0})
    _, _, reports = run(written, config, 12)
    assert any(report.selections for report in reports)
    with pytest.raises(SpecError) as refused:
        apply_settings(spec, ["preference=-1"])
    assert str(refused.value) == refusal.strip()
    (sweep,) = blocks("yaml")
    (written / "preferences.yaml").write_text(sweep)
    study = sweep_of_file(written / "preferences.yaml")
    assert [cell.name for cell in study.cells] == ["preference-0", "preference-1", "preference-3"]
    assert study.seeds == (0, 1, 2)
