"""Every view of every page that shows numbers of runs, with what derives them.

`python -m tests.numbers.pages [RUNS_ROOT]` says of each how many numbers it shows and how many are right.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.numbers import of_buffer, of_jobs, of_runs, of_thoughts, of_trajectories, record, shown
from tests.numbers.checking import Expected, Tally, check
from tests.numbers.derived import Root

View = tuple[str, dict[str, str], Expected]
"""Page, address and what it should show."""


def _runs(root: Root) -> Iterator[View]:
    yield "runs", {}, of_runs.runs_page(root)


def _run(root: Root) -> Iterator[View]:
    for run_id in (record.CHAINS, record.ON_POLICY, record.STORIES, record.LEARNED):
        expected = of_runs.run_page(root.by_name[run_id])
        for view in ("Curves", "Replay buffer", "Attempts"):
            yield "run", {"run": run_id, "view": view}, expected


def _compare(root: Root) -> Iterator[View]:
    ids = (record.CHAINS, record.ON_POLICY)
    yield "compare", {"runs": ",".join(ids)}, of_runs.compare_page([root.by_name[run_id] for run_id in ids])


def _replay_buffer(root: Root) -> Iterator[View]:
    names = ("Buckets", "Flow", "Ages and replays", "Over time", "Concentration", "Retired", "What if")
    for run_id in (record.CHAINS, record.STORIES):
        expected = of_buffer.buffer_page(root.by_name[run_id])
        for view in names:
            yield "replay_buffer", {"run": run_id, "view": view}, expected


def _selection_audit(root: Root) -> Iterator[View]:
    for run_id in (record.CHAINS, record.STORIES):
        expected = of_buffer.audit_page(root.by_name[run_id])
        for view in ("Checks of a step", "Drawn against undrawn", "Weights and variance"):
            yield "selection_audit", {"run": run_id, "view": view}, expected


def _entropy_and_judge(root: Root) -> Iterator[View]:
    for run_id in (record.CHAINS, record.STORIES):
        expected = of_thoughts.entropy_page(root, root.by_name[run_id])
        for view in ("Entropy and validity", "Failures", "Policy entropy", "Verdicts", "Judges"):
            yield "entropy_and_judge", {"run": run_id, "view": view}, expected


def _snowball(root: Root) -> Iterator[View]:
    for run_id in (record.CHAINS, record.STORIES):
        expected = of_thoughts.snowball_page(root.by_name[run_id])
        yield "snowball", {"run": run_id, "view": "Code and entropy"}, expected
        yield "snowball", {"run": run_id, "view": "Over steps", "window": "1"}, expected


def _jobs(root: Root) -> Iterator[View]:
    for name in record.EVALUATIONS:
        job = root.by_name[name]
        yield "run", {"run": job.run_id, "view": "Results"}, of_jobs.evaluation_page(job)
    for name in (record.JUDGE, record.STORIES_JUDGE):
        job = root.by_name[name]
        yield "run", {"run": job.run_id, "view": "Results"}, of_jobs.judge_page(job)


def _benchmarks(root: Root) -> Iterator[View]:
    yield "benchmarks", {}, of_jobs.comparison(*(root.by_name[name] for name in record.EVALUATIONS))


def _trajectories(root: Root) -> Iterator[View]:
    for run_id in (record.CHAINS, record.STORIES):
        run = root.by_name[run_id]
        yield "trajectories", {"run": run_id}, of_trajectories.list_page(run)
        trajectory = int(run.replayed["trajectory_id"].mode()[0])
        expected = of_trajectories.detail_page(root, run, trajectory)
        for part in ("Text", "Tokens", "Lineage", "Group", "Question"):
            yield "trajectories", {"run": run_id, "trajectory": str(trajectory), "part": part}, expected


PAGES: dict[str, Callable[[Root], Iterator[View]]] = {
    "runs": _runs, "run": _run, "compare": _compare, "replay_buffer": _replay_buffer,
    "selection_audit": _selection_audit, "snowball": _snowball, "entropy_and_judge": _entropy_and_judge,
    "jobs": _jobs, "benchmarks": _benchmarks, "trajectories": _trajectories,
}  # fmt: skip


def check_page(root: Root, views: Callable[[Root], Iterator[View]]) -> Tally:
    """Open all views of a page and return the tally of them together."""
    tally = Tally()
    for page, query, expected in views(root):
        where = " ".join([page, *query.values()])
        tally += check(where, shown.open_page(root.path, page, **query), expected)
    return tally


def _say(name: str, tally: Tally) -> None:
    sys.stdout.write(f"{name:20}{tally.num_shown:7} shown{tally.num_right:7} right{len(tally.wrong):5} wrong\n")
    sys.stdout.flush()


def _main(path: Path) -> int:
    from jobs.supervisor.open_index import rebuild_index

    if not any(path.glob("*/run.json")):
        record.record(path)
    rebuild_index(path, None)
    root, whole = Root(path), Tally()
    for name, views in PAGES.items():
        tally = check_page(root, views)
        whole += tally
        _say(name, tally)
    _say("all", whole)
    sys.stdout.write("\n".join([*whole.wrong, *(f"not derived: {item}" for item in whole.not_derived)]) + "\n")
    return 1 if whole.wrong or whole.not_derived else 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "runs"))
