"""The method that `docs/methods.md` writes, as a reader would use it."""

import re
from pathlib import Path

import exgrpo_core
from tests.exgrpo_core.builders import small_config
from tests.exgrpo_core.toy_runs import run

DOCUMENT = Path(exgrpo_core.__file__).parents[1] / "docs/methods.md"


def test_the_documents_methods_run_as_they_are_printed(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("EXGRPO_ALLOWED_CODE", "mine")
    config = small_config(
        question_selection="mine:HardestFirst",
        trajectory_selection="mine:Shortest",
        strategy_settings={"most_draws": 1.0},
    )
    state, _, reports = run(tmp_path, config, 12)
    chosen = [item for report in reports for item in report.selections]
    assert any(item.num_tokens.size > 1 for item in chosen)
    assert all(item.num_tokens[list(item.chosen)] == item.num_tokens.min() for item in chosen)
    assert state.replay_buffer.history.num_draws.max() == 1
