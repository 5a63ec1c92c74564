import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.jobs.evaluation.analysis.report import analyse_run, find_calibration, summarize_judge
from exgrpo.jobs.evaluation.judging.calibration import LabelledVotes, group_votes
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_runs import ingest_run
from tests.jobs.evaluation.judging.chain_runs import record_chains

pytestmark = pytest.mark.slow

KINDS = ["valid", "lucky", "wrong", "code"]


@pytest.fixture
def database(tmp_path):
    opened = open_database(None, tmp_path)
    yield opened
    opened.close()


def test_rates_are_corrected_by_the_newest_calibration_of_the_same_judge(database, tmp_path):
    ingest_run(database, record_chains(tmp_path, [KINDS]))
    ingest_job(database, job_of_votes(tmp_path, [("1/0", 0, "valid", None)]))
    assert analyse_run(database, "trained", "voted").corrected == ()
    labelled = [(str(number), None, "valid" if number < 9 else "invalid", number < 9) for number in range(20)]
    ingest_job(database, job_of_votes(tmp_path, labelled, source="labelled.jsonl", run_id="calibrated"))
    analysis = analyse_run(database, "trained", "voted")
    assert analysis.calibration.sensitivity.value == 1.0
    line = {(line.group, line.has_code): line.rate for line in analysis.corrected}["medium", False]
    assert (line.value, line.observed.num_items) == (1.0, 1)
    assert find_calibration(database, "another judge", "cot-judge-1") is None
    summary = summarize_judge(database, "calibrated")
    assert (summary["num_valid"], summary["calibration"].specificity.value) == (9, 1.0)


def test_votes_are_put_together_by_item():
    votes = [("a", True, "valid"), ("b", False, "invalid"), ("a", True, "unjudged")]
    assert group_votes(votes) == [LabelledVotes(True, ("valid", "unjudged")), LabelledVotes(False, ("invalid",))]
