import pytest

from exgrpo.db.rows.runs import UnknownRunError
from exgrpo.jobs.queries.frames import RunFrames, open_run
from exgrpo.jobs.runs.directory import RunDirectoryError
from tests.app import played
from tests.jobs.cli.invoked import printed_json
from tests.records import lines_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    return root / "play-finished"


def test_replays_are_those_of_the_files(run):
    assert len(open_run(run).replays()) == len(lines_of(run, "replay")) > 0


def test_the_frame_of_trajectories_and_the_query_have_the_same_columns_and_values(run):
    rows = printed_json(run.parent, "query", "trajectories", run.name, "--whole", "--limit", "10000")
    frame = open_run(run).trajectories()
    assert [*frame] == [*rows[0]]
    assert {"messages", "tools", "file", "code_rules", "has_python_block", "num_replays", "prompt"} <= {*frame}
    assert frame.astype(object).where(frame.notna(), None).to_dict("records") == rows[::-1]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError):
        open_run(tmp_path)


def test_a_run_that_the_index_does_not_have_is_refused_instead_of_shown_without_rows(run):
    with pytest.raises(UnknownRunError):
        RunFrames(run.parent / "play-unknown").trajectories()
