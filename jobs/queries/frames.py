"""A run's records as pandas frames, for notebooks: `open_run("runs/RUN").trajectories()`."""

from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from exgrpo.db.queries.trajectory_list import iterate_whole
from exgrpo.db.queries.whole_tables import whole_table
from exgrpo.db.rows.trajectories import TrajectoryFacets, extra_names, spread_extra
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import RunDirectory


@dataclass(frozen=True)
class RunFrames:
    """One run; each method reads the files again, so a running run grows. `docs/data.md` explains the columns."""

    path: Path
    database_url: str | None = None

    def trajectories(self) -> pd.DataFrame:
        """Return one row a fresh trajectory, oldest first, with the columns of `exgrpo query trajectories --whole`."""
        with open_fresh_index(self.path.parent, self.database_url) as database:
            batches = iterate_whole(database, TrajectoryFacets(run_id=self.path.name), None)
            rows = [asdict(row) for batch in batches for row in batch][::-1]
        return pd.DataFrame.from_records(spread_extra(rows, extra_names(rows)))

    def questions(self) -> pd.DataFrame:
        """Return one row per question, with its prompt and its answer."""
        return self._frame("questions")

    def replays(self) -> pd.DataFrame:
        """Return one row a replayed trajectory and step."""
        return self._frame("replays")

    def metrics(self) -> pd.DataFrame:
        """Return one row a step and one column a metric."""
        rows = self._frame("metrics")
        return rows.pivot(index="step", columns="name", values="value") if len(rows) else rows

    def buffer(self) -> pd.DataFrame:
        """Return one row a change of the replay buffer, in their order."""
        return self._frame("buffer_changes")

    def candidates(self) -> pd.DataFrame:
        """Return one row a candidate for replay, with its scores and whether it was chosen."""
        return self._frame("candidates")

    def replay(self, step: int) -> pd.DataFrame:
        """Return one row for each comparison of a step that is executed again, as `exgrpo replay` prints them."""
        with open_fresh_index(self.path.parent, self.database_url) as database:
            return pd.DataFrame(map(asdict, replay_step(database, self.path.parent, self.path.name, step)))

    def evaluations(self) -> pd.DataFrame:
        """Return one row an evaluation on the held-out or training questions."""
        return self._frame("evaluations")

    def scores(self) -> pd.DataFrame:
        """Return one row a benchmark and scheme of an evaluation's job."""
        return self._frame("benchmark_scores")

    def _frame(self, table: str) -> pd.DataFrame:
        with open_fresh_index(self.path.parent, self.database_url) as database:
            return pd.DataFrame.from_records(whole_table(database, self.path.name, table))


def open_run(path: str | Path, database_url: str | None = None) -> RunFrames:
    """Return the frames of the run whose folder this is; `database_url` where its database is not the root's SQLite.

    Raises:
        RunDirectoryError: It is no folder of a run.
    """
    run = RunDirectory.open(Path(path).absolute().parent, Path(path).name)
    return RunFrames(run.path, database_url)
