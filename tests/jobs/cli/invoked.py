"""Commands run in this process, as a user types them."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from exgrpo.jobs.cli.main import app

WIDE = {"EXGRPO_RUNS_ROOT": "", "NO_COLOR": "1", "COLUMNS": "200"}


def exgrpo(runs_root: Path, *words: object, code: int = 0) -> str:
    """Return what a command prints; what it says on stderr if it ends with an exit `code` other than 0."""
    result = CliRunner(env=WIDE).invoke(app, [*map(str, words), "--runs-root", str(runs_root)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    return result.stdout if code == 0 else result.stderr


def printed_json(runs_root: Path, *words: object) -> Any:
    return json.loads(exgrpo(runs_root, *words, "--json"))
