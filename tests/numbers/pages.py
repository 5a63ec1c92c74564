"""Every view of every page that shows numbers of runs, with what derives them.

`python -m tests.numbers.pages [RUNS_ROOT]` says of each how many numbers it shows and how many are correct.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.numbers import of_buffer, of_jobs, of_paper, of_runs, of_scores, of_thoughts, of_trajectories, record, shown
from tests.numbers.checking import Expected, Tally, check
from tests.numbers.derived import Root

FILTERED = (
    ("", "", ""), ("Outcome", "outcome", "correct"), ("Outcome", "outcome", "wrong"),
    ("Replayed", "replayed", "never replayed"), ("Code", "code", "with code"),
)  # fmt: skip
"""Filters of trajectories: label, parameter of the address, and option."""
View = tuple[str, dict[str, str], Expected]
"""Page, address and what it should show."""


def _runs(root):
    yield "runs", {}, of_runs.runs_page(root)


def _run(root):
    for run_id in (record.CHAINS, record.ON_POLICY, record.STORIES, record.LEARNED):
        expected = of_runs.run_page(root.by_name[run_id])
        for view in ("Curves", "Configuration", "Log"):
            yield "run", {"run": run_id, "view": view}, expected
        yield "run", {"run": run_id, "view": "Configuration", "part": "Attempts"}, expected
    run = root.by_name[record.CHAINS]
    found = Expected(expected.tiles, texts=of_runs.files(run, "checkpoint"))
    found.tiles, found.texts = of_runs.run_page(run).tiles, [*of_runs.run_page(run).texts, *found.texts]
    yield "run", {"run": run.run_id, "view": "Log", "find": "Checkpoint"}, found


def _compare(root):
    ids = (record.CHAINS, record.ON_POLICY)
    yield "compare", {"runs": ",".join(ids)}, of_runs.compare_page([root.by_name[run_id] for run_id in ids])


def _buffer(root):
    names = ("Buckets", "Flow", "Ages and replays", "Over time", "Concentration", "Retired")
    for run_id in (record.CHAINS, record.STORIES):
        expected = of_buffer.buffer_page(root.by_name[run_id])
        for view in names:
            yield "run", {"view": "Buffer", "run": run_id, "part": view}, expected


def _step(root):
    for run_id in (record.CHAINS, record.STORIES):
        run = root.by_name[run_id]
        question = int(run.selections["question"].iloc[-1])
        expected = of_buffer.step_page(run, question)
        yield "run", {"view": "Step", "run": run_id, "question": str(question)}, expected


def _reasoning(root):
    for run_id in (record.CHAINS, record.STORIES):
        expected = of_thoughts.entropy_page(root, root.by_name[run_id])
        for view in ("Entropy", "Verdicts", "Judges"):
            yield "run", {"view": "Reasoning", "run": run_id, "part": view}, expected


def _snowball(root):
    for run_id in (record.CHAINS, record.STORIES):
        expected = of_thoughts.snowball_page(root.by_name[run_id])
        yield "run", {"view": "Reasoning", "run": run_id, "part": "Code"}, expected
        yield "run", {"view": "Reasoning", "run": run_id, "part": "Over steps", "window": "1"}, expected
        run = root.by_name[run_id]
        cases = of_thoughts.cases_of(run)
        yield "run", {"view": "Reasoning", "run": run_id, "part": "Cases"}, of_thoughts.cases_page(run, cases[:5])
    run = root.by_name[record.CHAINS]
    yield (
        "run",
        {"view": "Reasoning", "run": run.run_id, "part": "Saved cases"},
        of_thoughts.cases_page(run, saved_cases(run)),
    )


def _jobs(root):
    for name in record.EVALUATIONS:
        job = root.by_name[name]
        for view in ("Results", "Configuration", "Log"):
            yield "run", {"run": job.run_id, "view": view}, of_jobs.evaluation_page(job)
        query = {"run": job.run_id, "view": "Configuration", "part": "Attempts"}
        yield "run", query, of_jobs.evaluation_page(job)
    for name in (record.JUDGE, record.STORIES_JUDGE):
        job = root.by_name[name]
        yield "run", {"run": job.run_id, "view": "Results"}, of_jobs.judge_page(job)
    first, second = (root.by_name[name] for name in record.EVALUATIONS)
    for item, other in ((2, None), (0, first)):
        job, of_two = (first, {}) if other is None else (second, {"beside": first.run_id})
        query = {"run": job.run_id, "view": "Samples"} | of_two
        yield "run", query, of_jobs.samples_page(job, other)
        opened = of_jobs.samples_page(job, other, item)
        [(_, table)] = opened.tables.items()
        yield "run", query | {"item": table.index[item]}, opened


def _benchmarks(root):
    jobs = [root.by_name[name] for name in record.EVALUATIONS]
    expected = of_jobs.comparison(*jobs)
    lines = [of_scores.measured_line(job, root.by_name[record.CHAINS]) for job in jobs[::-1]]
    expected.tables |= of_scores.benchmark_tables(lines, record.BENCHMARK)
    expected.texts.append(f"{sum(not run.events for run in root.newest_first)} evaluation failed or lost")
    yield "benchmarks", {}, expected


def _trajectories(root):
    for run_id in (record.CHAINS, record.STORIES):
        run = root.by_name[run_id]
        listed = {"view": "Trajectories", "run": run_id}
        yield "run", listed, of_trajectories.list_page(run)
        yield "run", listed | {"list": "Questions"}, of_trajectories.questions_page(run)
        yield "run", listed | {"list": "Never solved"}, of_trajectories.questions_page(run, is_unsolved=True)
        for label, parameter, option in FILTERED:
            chosen = {"facets": "true", **({parameter: option} if parameter else {})}
            yield "run", listed | chosen, of_trajectories.filters_page(run, label, option)
        trajectory = int(run.replayed["trajectory_id"].mode()[0])
        opened = listed | {"trajectory": str(trajectory)}
        expected = of_trajectories.detail_page(root, run, trajectory)
        for part in ("Text", "Tokens", "Lineage", "Group", "Question"):
            yield "run", opened | {"part": part}, expected
        yield "run", opened | {"part": "Difference"}, of_trajectories.difference_page(root, run, trajectory)
    run = root.by_name[record.CHAINS]
    marked = {"view": "Trajectories", "run": run.run_id, "marked": record.MARK}
    yield "run", marked, of_trajectories.marked_page(run)


def _studies(root):
    for name in of_paper.PRINTING:
        yield (
            "methods", {"view": "Studies", "study": name, "part": "What the paper prints"}, of_paper.printed_page(name),
        )  # fmt: skip
    matrix, beside = of_paper.study_pages(root)
    yield "methods", {"view": "Studies", "study": record.STUDY}, matrix
    yield "methods", {"view": "Studies", "study": record.STUDY, "part": "Next to the paper"}, beside


def _paper(root):
    for query, expected in of_paper.paper_views(root):
        yield "methods", {"view": "Paper"} | query, expected
    yield "methods", {"view": "Replay methods"}, of_paper.methods_page()


def _system(root):
    overview, log = of_paper.system_pages(root)
    yield "system", {}, overview
    yield "system", {"view": "Audit log"}, log
    if shutil.which("nvidia-smi") is None:
        yield "system", {"view": "Machine"}, of_paper.machine_page(root)


def saved_cases(run):
    return of_thoughts.cases_of(run)[1::-1]


def prepare(path):
    """Record, keep two cases, tag the runs as those of a study, and ingest."""
    from exgrpo.db.rows.chains_of_thought import SavedCase
    from exgrpo.db.rows.trajectories import MarkedTrajectory
    from exgrpo.jobs.actions.annotations import mark_case, mark_trajectory
    from exgrpo.jobs.actions.run_actions import tag
    from exgrpo.jobs.execution.supervisor.indexing import rebuild_index

    if not any(path.glob("*/run.json")):
        record.record(path)
    if not (path / "workbench" / "workbench.db").exists():
        run = Root(path).by_name[record.CHAINS]
        for low, high in saved_cases(run):
            case = SavedCase(run.run_id, 1, int(low["trajectory_id"]), int(high["trajectory_id"]))
            mark_case(path, record.CASES, case)
        mark_trajectory(path, MarkedTrajectory(run.run_id, 1, record.MARKED, record.MARK, "as expected"))
        for run_id in record.SEEDS:
            for name in record.tags_of(run_id):
                tag(path, run_id, name)
    rebuild_index(path, None)
    return Root(path)


PAGES: dict[str, Callable[[Root], Iterator[View]]] = {
    "runs": _runs, "run": _run, "compare": _compare, "buffer": _buffer, "step": _step, "snowball": _snowball,
    "reasoning": _reasoning, "jobs": _jobs, "benchmarks": _benchmarks, "trajectories": _trajectories,
    "studies": _studies, "system": _system, "paper": _paper,
}  # fmt: skip


def check_page(root, views):
    tally = Tally()
    for page, query, expected in views(root):
        where = " ".join([page, *query.values()])
        if page == "run":
            expected = replace(expected, texts=[*expected.texts, *of_runs.HEAD])
        tally += check(where, shown.open_page(root.path, page, **query), expected)
    return tally


def _say(name, tally):
    sys.stdout.write(f"{name:20}{tally.num_shown:7} shown{tally.num_right:7} right{len(tally.wrong):5} wrong\n")
    sys.stdout.flush()


def _main(path):
    root, whole = prepare(path), Tally()
    for name, views in PAGES.items():
        tally = check_page(root, views)
        whole += tally
        _say(name, tally)
    _say("all", whole)
    sys.stdout.write("\n".join([*whole.wrong, *(f"not derived: {item}" for item in whole.not_derived)]) + "\n")
    return 1 if whole.wrong or whole.not_derived else 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "runs"))
