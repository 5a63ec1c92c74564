"""How many files and functions of the project one thing enters: what a reader must follow to understand it.

Run `python -m bench.walks`, with a walk's name to see its files. `step` is one step of ExGRPO with replay on register
chains, the embedded engine's work included; `evaluation` goes from the form's fields to the queue, `check` from a
specification to the reasons against it, `launch` from there to the journal, `stop` from the click to the control file,
`runs` is that command when nothing is new, `chart` goes from recorded metrics to the figure, `page` from a rolled-out
step through recorder, files, ingest and query to the trajectory's page.
"""

import argparse
import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import streamlit as st
from streamlit.logger import set_log_level
from streamlit.testing.v1 import AppTest

from bench.chains_run import open_chains_run
from bench.made_up_steps import StepMaker, StepSize
from bench.recording import new_run
from exgrpo.app import settings
from exgrpo.app.components.widgets import curves
from exgrpo.app.queries.runs import metric_series
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.evaluations import plan_evaluation, resolve_evaluation
from exgrpo.jobs.actions.preflight.resolution import resolve
from exgrpo.jobs.actions.queueing import queue_checked, queue_job
from exgrpo.jobs.cli import runs
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.specs.train import load_preset

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("app", "db", "exgrpo_core", "jobs")
NUM_STEPS_BEFORE = 10
"""Steps in which the buffer fills."""
Walk = set[tuple[str, str]]


def walk(action: Callable[[], object]) -> Walk:
    """Return (file, function) of all that an action enters, in new threads too; imports are done before."""
    entered: Walk = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    inside = [(Path(file).resolve(), name) for file, name in entered.copy() if Path(file).is_relative_to(ROOT)]
    found = {(str(file.relative_to(ROOT)), name) for file, name in inside}
    return {(file, name) for file, name in found if file.split("/")[0] in PACKAGES and name != "<module>"}


def walk_step() -> Walk:
    """Walk a step that replays."""
    with open_chains_run("chains-exgrpo") as run:
        for _ in range(NUM_STEPS_BEFORE):
            run.step()
        return walk(run.step)


def walks_of_pages(root: Path) -> Iterator[tuple[str, Walk]]:
    """Yield the walks that begin or end at a page, each done twice: what the first remembers is no part of it."""
    settings.configure(settings.AppSettings(root))
    spec = load_preset("chains-on-policy").model_copy(update={"name": "walks"})
    run_id = queue_job(root, spec)
    yield "check", walk(lambda: resolve(spec, root))
    checked = resolve(spec, root)
    yield "launch", walk(lambda: queue_checked(root, checked))
    fields: dict[str, object] = {"benchmarks": [{"name": "math500"}]}

    def evaluate() -> None:
        queue_checked(root, resolve_evaluation(plan_evaluation(root, "some/model", fields, "form"), root))

    evaluate()
    yield "evaluation", walk(evaluate)
    yield "stop", walk(lambda: run_actions.stop(root, run_id))

    with contextlib.redirect_stdout(io.StringIO()):
        runs.runs(runs_root=root)
        yield "runs", walk(lambda: runs.runs(runs_root=root))

    recorded: list[str] = []

    def record() -> None:
        run, recorder = new_run(root)
        recorded.append(run.run_id)
        recorder.step(next(StepMaker(StepSize(2, 20)).reports(1)))
        recorder.close()
        ingest_all(root, None)
        page.query_params["run"] = run.run_id
        page.query_params["view"] = "Trajectories"
        page.query_params["trajectory"] = "0"
        page.run()
        if page.exception:
            raise RuntimeError(page.exception[0].value)

    page = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=120).switch_page("app_pages/run.py")
    record()
    yield "page", walk(record)

    def draw() -> None:
        st.cache_data.clear()
        chart = curves.CHARTS[0]
        curves.figure_of(chart, metric_series(recorded[0], [curve.key for curve in chart.curves]))

    draw()
    yield "chart", walk(draw)


def all_walks() -> dict[str, Walk]:
    """Return every walk by its name."""
    set_log_level("ERROR")  # else every cache outside a server warns of it
    with tempfile.TemporaryDirectory() as folder:
        return {"step": walk_step(), **dict(walks_of_pages(Path(folder)))}


def files_of(entered: Walk) -> list[str]:
    """Return the files that a walk enters."""
    return sorted({file for file, _ in entered})


def main() -> None:
    """Print how many files and functions each walk enters, and the files of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="walks whose files are printed")
    names = parser.parse_args().names
    for name, entered in all_walks().items():
        print(f"{name}: {len(files_of(entered))} files, {len(entered)} functions")
        for path in files_of(entered) if name in names else ():
            print(f"  {sum(file == path for file, _ in entered):4} {path}")


if __name__ == "__main__":
    main()
