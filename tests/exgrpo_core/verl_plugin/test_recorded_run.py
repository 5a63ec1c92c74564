"""With one line more a stock run of verl is recorded while it trains, and the workbench's database has all of it."""

import pytest
from sqlalchemy import text

from jobs.execution.supervisor.open_index import open_fresh_index
from jobs.runs.directory import RunDirectory, list_run_directories
from jobs.runs.state import is_recorded, read_state
from tests.exgrpo_core.verl_plugin import stock_verl
from tests.exgrpo_core.verl_plugin.stock_verl import launch, make_environment, metrics_of
from tests.exgrpo_core.verl_plugin.test_stock_run import THREE_LINES

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3 * stock_verl.RUN_SECONDS)]

QUESTIONS = {
    "replayed": "select step, count(*) from replays group by step order by step",
    "scored": "select count(*) from candidates",
    "selected": "select count(*) from selections",
    "inserted": "select count(*) from buffer_changes where kind = 'inserted'",
    "texts": "select count(*) from trajectory_texts where length(text) > 0",
    "unknown": "select count(*) from replays r where not exists "
    "(select 1 from trajectories t where t.run_key = r.run_key and t.trajectory_id = r.trajectory_id)",
    "asked": "select count(*) from questions where length(prompt_text) > 0",
    "steps": "select step, count(*) from steps group by step",
}


def rows_of(runs):
    with open_fresh_index(runs, None) as database, database.read() as connection:
        return {name: [*map(tuple, connection.execute(text(query)))] for name, query in QUESTIONS.items()}


def test_the_run_directory_has_buffer_selections_and_lineage_and_goes_on_with_a_resumed_run(tmp_path):
    python, runs = make_environment(tmp_path / "environment"), tmp_path / "runs"
    settings = stock_verl.write_inputs(tmp_path)
    lines = (*THREE_LINES, f"+exgrpo.record_to={runs}")
    done = launch(python, tmp_path, settings | {"trainer.total_epochs": 2, "trainer.save_freq": 3}, lines)
    assert done.returncode == 0, done.stdout[-5000:]
    metrics = metrics_of(tmp_path)
    (run,) = list_run_directories(runs)
    state = read_state(run)
    assert (state.status, state.attempt, is_recorded(run.attempt_path(1))) == ("finished", 1, True)
    assert (run.spec().algorithm.batch_size, run.spec().num_steps) == (4, 4)
    found = rows_of(runs)
    assert dict(found["replayed"])[3] == metrics[3]["replay/num_replayed"] > 0
    assert found["unknown"] == [(0,)]
    assert found["asked"] == [(stock_verl.NUM_QUESTIONS,)]
    for name in ("scored", "selected", "inserted", "texts"):
        assert found[name][0][0] > 0, name

    done = launch(python, tmp_path, settings | {"trainer.total_training_steps": 5, "trainer.save_freq": -1}, lines)
    assert done.returncode == 0, done.stdout[-5000:]
    resumed = RunDirectory(run.path)
    assert [folder.run_id for folder in list_run_directories(runs)] == [run.run_id]
    assert (read_state(resumed).status, resumed.attempts()) == ("finished", [1, 2])
    assert [step for step, _ in rows_of(runs)["replayed"]][-1] == 5
