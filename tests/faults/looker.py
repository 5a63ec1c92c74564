"""Every command that reads, every query, frames and every page, run on one runs root; prints those that failed."""

import inspect
import sys
import traceback
from itertools import cycle
from pathlib import Path

from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from app import settings
from app.page_list import PLACES
from jobs.cli.main import app
from jobs.queries.frames import open_run
from jobs.queries.table import QUERIES

MAIN_SCRIPT = Path(settings.__file__).parent / "main.py"
WORDS = {"trajectory_id": "0", "mark": "odd", "name": "repo"}


def commands_of(runs_root: Path, folder: Path, run_ids: list[str]) -> list[list[str]]:
    """Return the words of each command."""
    found = [["runs"], ["runs", "--json"], ["db", "rebuild"], ["verify"], ["doctor"], ["bin", "list"]]
    found += [["backup", str(folder / "all.tar")], ["study", "status", "ablations"]]
    for run_id in run_ids:
        found += [["show", run_id], ["logs", run_id], ["verify", run_id], ["clone", run_id]]
        found += [["export", run_id, str(folder / f"{run_id}.tar.gz")]]
    # Each query on another run: they differ after the door through which all enter.
    for run_id, (name, function) in zip(cycle(run_ids), QUERIES.items(), strict=False):
        items = inspect.signature(function).parameters.values()
        needed = [
            item.name for item in items if item.default is item.empty and item.name not in {"database", "runs_root"}
        ]
        found.append(["query", name, *(WORDS.get(item, run_id) for item in needed)])
    return [[*words, "--runs-root", str(runs_root)] for words in found]


def main(runs_root: Path, folder: Path) -> int:
    """Look at everything; damaged runs may be refused in a sentence, but nothing ends with a traceback."""
    run_ids = sorted(path.name for path in runs_root.glob("run-*"))
    failed = 0
    for words in commands_of(runs_root, folder, run_ids):
        result = CliRunner(env={"NO_COLOR": "1"}).invoke(app, words)
        if "Traceback" in result.output or "Unexpected" in result.output or "No such" in result.output:
            failed += 1
            sys.stdout.write(f"{words} {result.output[-1000:]}\n")
    for run_id in run_ids:
        open_run(runs_root / run_id).metrics()
    settings.configure(settings.AppSettings(runs_root))
    for name, query in PLACES:
        page = AppTest.from_file(str(MAIN_SCRIPT), default_timeout=120)
        page.query_params.update({"run": run_ids[-1], **query})
        page.switch_page(f"app_pages/{name}.py").run()
        if page.exception:
            failed += 1
            sys.stdout.write(f"{name} {query} {page.exception}\n")
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
    except Exception:  # noqa: BLE001 - the test prints it
        traceback.print_exc()
        sys.exit(1)
