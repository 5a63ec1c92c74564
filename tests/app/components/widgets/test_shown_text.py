"""Texts that are shown in part."""

from pathlib import Path

import pytest

from exgrpo.app import settings
from exgrpo.app.components.widgets.shown_text import command_for_all


@pytest.mark.parametrize(
    ("root", "is_view", "options"),
    [("/a/runs", False, ""), ("/a/runs", True, " --runs-root /a/runs"), ("/a b", True, " --runs-root '/a b'")],
)
def test_the_command_that_prints_all_names_the_runs_root_of_a_view(monkeypatch, root, is_view, options):
    here = settings.AppSettings(Path(root), is_view=is_view)
    monkeypatch.setattr(settings, "current", lambda: here)
    assert command_for_all() == f"`exgrpo query trajectory{options}`"
