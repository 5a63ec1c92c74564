import shutil
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import streamlit as st

from exgrpo.app.components.studies import study_matrix
from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest import events
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import list_runs
from exgrpo.db.statistics import MeanInterval
from exgrpo.jobs.actions.studies.comparison import ComparedRow, comparison_table, reading
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, key_from_tags, load_study, wanted_keys
from exgrpo.jobs.actions.studies.study_results import StudyResults
from exgrpo.jobs.execution.supervisor.indexing import ingest_all, open_fresh_index
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo_core.recording.run_status import RunStatus
from tests.app import recorded
from tests.app.page_texts import has_text, tables, texts
from tests.jobs.actions.studies.recorded import record_run

pytestmark = pytest.mark.slow


def key(cell, seed, study="repo"):
    return RunKey(study, Scale.CHAINS, cell, seed)


@pytest.fixture(scope="session")
def study_root(tmp_path_factory):
    """A runs root with two finished seeds of one cell of the RePO study, one of the other, and one that failed."""
    root = tmp_path_factory.mktemp("study") / "runs"
    study = load_study("repo")
    for seed, (repo, exgrpo) in enumerate(((4, 6), (5, 8))):
        record_run(root, study, key("repo", seed), repo)
        record_run(root, study, key("exgrpo-re", seed), exgrpo, RunStatus.FAILED if seed else RunStatus.FINISHED)
    with open_fresh_index(root, None):
        pass
    return root


@pytest.mark.usefixtures("study_shared")
def test_the_study_and_scale_that_have_the_newest_run_open_first_and_any_other_where_the_address_says_so(open_page):
    page = open_page("methods", view="Studies")
    assert ["".join(page.query_params[name]) for name in ("study", "scale")] == ["repo", "chains"]
    assert {"repo", "exgrpo-re"} <= {*tables(page)[0].value["Cell"]}
    page = open_page("methods", view="Studies", study="main-table")
    assert "".join(page.query_params["study"]) == "main-table"
    assert "repo" not in {*tables(page)[0].value["Cell"]}


@pytest.fixture
def study_runs(runs_root, study_root):
    shutil.copytree(study_root, runs_root, dirs_exist_ok=True)
    recorded.beat(runs_root, datetime.now(UTC))
    return runs_root


@pytest.fixture
def study_shared(study_root, share):
    share(study_root)


def test_studies_are_shown_before_anything_ran(open_page):
    page = open_page("methods", view="Studies")
    assert set(tables(page)[0].value["State"]) == {"missing"}
    assert has_text(page, "sigma = 1 has two readings")
    assert has_text(page, "`exgrpo eval`")
    assert not has_text(page, "The address asks for")
    assert has_text(open_page("methods", view="Studies", study="nonsense"), "The address asks for study=nonsense")
    assert "No run has finished yet" in texts(
        open_page("methods", view="Studies", study="repo", part="Next to the paper")
    )
    page = open_page("methods", view="Studies", study="crossover")
    matrix = tables(page)[0]
    assert (len(matrix.value), "Paper's row" in matrix.value) == (300, False)
    assert page.button(key="launch").label == "Launch 200 of 7,200 missing runs"


def test_matrix_has_every_seed_and_launch_queues_what_is_missing_and_stop_all_ends_it(study_runs, open_page):
    before = {run.run_id for run in list_run_directories(study_runs)}
    few = open_page("methods", view="Studies", study="repo", cells="repo", **{"seeds-chains": "3"})
    assert few.button(key="launch").label == "Launch 1 missing run"
    page = open_page("methods", view="Studies", study="repo", **{"seeds-chains": "3"})
    rows = tables(page)[0].value.set_index("Cell").to_dict("index")
    assert rows["repo"] | {"Paper's row": ""} == {
        "Paper's row": "", "State": "missing, 2/3 seeds",
        "Seed 0": ["finished"], "Seed 1": ["finished"], "Seed 2": ["missing"],
    }  # fmt: skip
    assert rows["exgrpo-re"]["State"] == "failed, 1/3 seeds"
    assert rows["exgrpo-re"]["Seed 1"] == ["failed"]
    assert page.get("progress")[0].proto.text.startswith("3 of 6 runs finished")
    assert page.button(key="launch").label == "Launch 3 missing runs"
    page.button(key="launch").click().run()
    new = [run for run in list_run_directories(study_runs) if run.run_id not in before]
    assert sorted(key_from_tags(run.job_spec().tags).cell for run in new) == ["exgrpo-re", "repo"]
    (resumed,) = [entry.run_id for entry in Journal(study_runs).entries() if entry.kind is JournalKind.RESUME_ASKED]
    assert resumed in before
    assert ingest_all(study_runs, None)
    st.cache_data.clear()
    page.run()
    assert page.button(key="launch").label == "Nothing is missing"
    page.button(key="stop-study").click().run()
    assert all(run.stop_requested() for run in new)


def test_running_seed_is_shown_and_not_launched_again(study_runs, open_page):
    database = open_database(None, study_runs)
    (failed,) = list_runs(database, RunFilter(statuses=("failed",)))
    events.set_status(database, failed.run_id, "running", "", attempt=1, at=datetime.now(UTC))
    database.close()
    page = open_page("methods", view="Studies", study="repo", **{"seeds-chains": "2"})
    rows = tables(page)[0].value.set_index("Cell").to_dict("index")
    assert rows["exgrpo-re"]["State"] == "running, 1/2 seeds"
    assert page.get("progress")[0].proto.text == "3 of 4 runs finished · 1 running"
    assert page.button(key="launch").label == "Nothing is missing"


def test_one_run_of_each_cell_that_has_begun_is_compared():
    def cell(name, *steps):
        runs = tuple(None if step is None else SimpleNamespace(run_id=f"{name}-{step}", step=step) for step in steps)
        return study_matrix.CellState(name, (), (), (), runs)

    cells = [cell("a", None, 5), cell("b", 0, 0), cell("c", 7, 9)]
    assert study_matrix.one_run_of_each_cell(cells) == ["a-5", "c-7"]


def test_a_study_leads_to_the_comparison_of_its_cells(runs_root, open_page):
    recorded.record(runs_root, recorded.FINISHED, recorded.ON_POLICY)
    for run_id, cell_name in (("run-finished", "exgrpo"), ("run-on-policy", "on-policy")):
        for tag in key(cell_name, 0, study="ablations").tags:
            Journal(runs_root).append(JournalKind.TAGGED, run_id, tag=tag)
    with open_fresh_index(runs_root, None):
        pass
    page = open_page("methods", view="Studies", study="ablations")
    link = next(link for link in page.get("page_link") if link.proto.label == "Compare the cells")
    assert "runs=run-on-policy%2Crun-finished" in link.proto.query_string


def test_a_study_without_a_baseline_shows_no_differences(runs_root, open_page):
    study = load_study("mini-batch-counts")
    record_run(runs_root, study, key("masked-easy", 0, study.name), 4)
    with open_fresh_index(runs_root, None):
        pass
    page = open_page("methods", view="Studies", study=study.name, part="Next to the paper")
    assert list(tables(page)[0].value) == ["Cell", "Seeds"]
    row = ComparedRow("tab", "", "Easy", "Size", "masked-easy", "21.2", None, MeanInterval(2.0, 0.1, (2.0,)), None, 1)
    [beside] = comparison_table([row], by_column=False)
    assert list(beside) == ["Paper's row", "Cell", "Paper, Size", "Yours", "Lowest seed", "Seeds"]
    assert reading(StudyResults(study, Scale.CHAINS, (), ())) == ""


def test_the_papers_scale_shows_its_cost_and_says_why_this_machine_cannot_run_it(runs_root, open_page):
    page = open_page("methods", view="Studies", study="ablations", scale="paper", cells="rho-25,rho-75")
    assert has_text(page, "2 runs take about 414 H100 hours, a coarse estimate.")
    assert page.code[0].value == "exgrpo study run ablations --scale paper --cells rho-25,rho-75"
    page.button(key="launch").click().run()
    assert has_text(page, "Not queued: ")
    assert not list_run_directories(runs_root)


def test_changes_of_every_new_run_are_in_estimate_command_and_runs(runs_root, open_page, monkeypatch):
    monkeypatch.setattr(
        "exgrpo.jobs.actions.preflight.machine_fit.shutil.disk_usage", lambda _: SimpleNamespace(free=10**13)
    )
    page = open_page("methods", view="Studies", study="ablations", scale="paper", cells="rho-25")
    page.text_area(key="study-settings").set_value("nonsense").run()
    assert has_text(page, "expected key=value")
    changes = "verl.ray.address=http://127.0.0.1:8265\nnum_steps=70"
    page.text_area(key="study-settings").set_value(changes).run()
    assert page.code[0].value.endswith("--set verl.ray.address=http://127.0.0.1:8265 --set num_steps=70")
    page.button(key="launch").click().run()
    specs = [run.job_spec() for run in list_run_directories(runs_root)]
    assert sorted(spec.kind for spec in specs) == ["eval", "train"]
    assert [spec.num_steps for spec in specs if spec.kind == "train"] == [70]
    page = open_page("methods", view="Studies", study="mini-batch-counts", scale="paper", cells="masked-easy")
    page.text_area(key="study-settings").set_value("num_steps=1").run()
    assert has_text(page, "1 run takes less than an H100 hour, a coarse estimate.")


def test_state_of_a_cell_names_what_is_under_way_before_what_broke():
    study = load_study("repo")
    keys = wanted_keys(study, Scale.CHAINS, study.cells[:1], 3)

    def state(*states):
        cell = study_matrix.CellState("c", (), tuple(keys), states, (None,) * 3)
        return cell.state, cell.words

    assert state("finished", "running", "failed") == ("running", "running, 1/3 seeds")
    assert state("finished", "failed", "missing") == ("failed", "failed, 1/3 seeds")
    assert state("finished", "finished", "finished") == ("finished", "finished")
    assert state("queued", "missing", "missing") == ("queued", "queued")


@pytest.mark.usefixtures("study_shared")
@pytest.mark.parametrize(
    ("column", "name", "value"), [("Seed 1", "run", ""), ("Cell", "q", "study:repo scale:chains cell:repo")]
)
def test_a_click_in_the_matrix_leads_to_a_seeds_run_or_to_the_cells_runs(open_page, column, name, value):
    page = open_page("methods", view="Studies", study="repo", **{"seeds-chains": "2"})
    matrix = tables(page)[0]
    row = list(matrix.value["Cell"]).index("repo")
    matrix.open(page, row, column)
    assert not [element.value for element in page.title if element.value == "Methods"]
    assert page.query_params[name] in (value, [value]) or not value


def test_a_sweep_is_written_checked_and_launched_like_a_study(runs_root, open_page):
    recorded.record(runs_root, recorded.FINISHED)
    page = open_page("methods", view="Studies")
    page.session_state["new-sweep"] = True
    page.run()
    page.text_input(key="sweep-name").set_value("Mu sweep")
    assert "Bucket center \N{MIDDLE DOT} \u03bc mu \N{MIDDLE DOT} algorithm.bucket_center" in (
        page.multiselect(key="sweep-fields").options
    )
    page.multiselect(key="sweep-fields").set_value(["algorithm.bucket_center", "seed"]).run()
    page.text_input(key="sweep-values-algorithm.bucket_center").set_value("0.25, 7")
    page.text_input(key="sweep-values-seed").set_value("4").run()
    page.button(key="keep-sweep").click().run()
    assert has_text(page, "a correctness rate in [0, 1]")
    page.text_input(key="sweep-values-algorithm.bucket_center").set_value("0.25, 0.75").run()
    page.button(key="keep-sweep").click().run()
    assert page.query_params["study"] == "mu-sweep"
    assert page.button(key="launch").label == "Launch 2 missing runs"
    assert not page.session_state["new-sweep"]  # it was over the page that it opened
    for is_open, view in ((False, "Studies"), (False, "Paper"), (True, "Studies")):
        page.session_state["new-sweep"] = is_open
        page.query_params["view"] = view
        page.run()
    assert page.text_input(key="sweep-name").value == "Mu sweep"
    assert page.text_input(key="sweep-values-algorithm.bucket_center").value == "0.25, 0.75"
    page.text_input(key="sweep-name").set_value("rates")
    page.multiselect(key="sweep-fields").set_value(["optim.learning_rate", "seed"]).run()
    page.text_input(key="sweep-values-optim.learning_rate").set_value("1e-4, 2e-4").run()
    assert page.text_input(key="sweep-values-seed").value == "4"
    page.button(key="keep-sweep").click().run()
    assert page.query_params["study"] == "rates"
    page.session_state["new-sweep"] = True
    page.run().button(key="clear-sweep").click().run()
    assert (page.text_input(key="sweep-name").value, page.multiselect(key="sweep-fields").value) == ("sweep", [])
    (runs_root / "workbench" / "sweeps" / "cut.json").write_text('{"name":')
    page.run()
    assert has_text(page, "cut.json")
    assert page.button(key="launch").label == "Launch 2 missing runs"
    page.button(key="launch").click().run()
    tags = [key_from_tags(run.job_spec().tags) for run in list_run_directories(runs_root)]
    cells = ("learning-rate-1e-4", "learning-rate-2e-4")
    assert {RunKey("rates", Scale.OWN, cell, 4) for cell in cells} <= {*tags}
