"""Hostile texts on a terminal: no escape sequence, direction override or mark-up of theirs is obeyed."""

import csv
import io
import re

import pytest
from typer.testing import CliRunner

from app.components.widgets.data_table import as_csv, as_latex, as_markdown
from db.rows.display_names import escape_control_characters
from jobs.cli.main import app
from tests.security import hostile

pytestmark = pytest.mark.slow

CLI = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "200"})
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
COMMANDS = (
    "runs --all", f"show {hostile.RUN}", f"logs {hostile.RUN}", f"query trajectories {hostile.PLAYED}",
    f"query trajectory {hostile.PLAYED} 1", "query marks", "query scores", "query journal",
    f"query candidates {hostile.PLAYED}", f"query verdicts {hostile.THOUGHTS}", f"case find {hostile.THOUGHTS}",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile") / "runs"
    with pytest.MonkeyPatch.context() as monkeypatch:
        hostile.build(root, monkeypatch)
    return root


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(runs_root, words):
    result = CLI.invoke(app, [*words.split(), "--runs-root", str(runs_root)])
    assert result.exit_code == 0, result.output
    assert OBEYED.findall(result.output) == []


def test_exported_tables_hold_no_formula_markup_or_control_character():
    rows = [{"text": text, text: 1} for text in hostile.PAYLOADS]
    lines = [row[0] for row in csv.reader(io.StringIO(as_csv([{"text": text} for text in hostile.PAYLOADS])))]
    assert [line for line in lines if line.startswith(("=", "+", "-", "@", "\t", "\r"))] == []
    for written in (as_csv(rows), as_markdown(rows), as_latex(rows)):
        assert OBEYED.findall(written) == []
    assert re.findall(r"(?<!\\)[<\[]", as_markdown(rows)) == []
    assert re.findall(r"\\(href|url|def|input|includegraphics)\b", as_latex(rows)) == []
    assert escape_control_characters("=1") == "=1"
