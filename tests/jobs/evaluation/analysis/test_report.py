import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.jobs.evaluation.analysis.report import analyse_run, find_calibration, summarize_judge
from exgrpo.jobs.evaluation.judging.calibration import LabelledVotes, group_votes
from tests.db.queries.test_judging import ingest_job, job_of_votes
from tests.db.recorded_runs import ingest_run
from tests.jobs.evaluation.judging.chain_runs import PROBLEM, WRITINGS, record_chains

pytestmark = pytest.mark.slow

KINDS = ["valid", "lucky", "wrong", "code"]


@pytest.fixture
def database(tmp_path):
    opened = open_database(None, tmp_path)
    yield opened
    opened.close()


def test_a_run_is_analysed_by_the_oracles_verdicts_without_a_judge(database, tmp_path):
    ingest_run(database, record_chains(tmp_path, [KINDS, ["valid", "wrong", "wrong", "wrong"]]))
    analysis = analyse_run(database, "trained")
    assert (analysis.judge, analysis.calibration, analysis.corrected) == ("oracle", None, ())
    code = {(line.group, line.has_code): line for line in analysis.code}
    assert (code["medium", False].num_judged, code["medium", False].cot_correctness) == (2, 0.5)
    assert code["medium", True].mean_entropy == pytest.approx(0.8)
    assert code["hard", False].cot_correctness == 1.0
    validity = {line.group: line for line in analysis.validity}["all"]
    assert (validity.num_valid, validity.num_invalid, validity.entropy_auc) == (2, 2, 1.0)
    assert [line.rollouts for line in analysis.code_shares] == [0.25, 0.0]
    assert [line.successes for line in analysis.code_shares] == [pytest.approx(1 / 3), 0.0]
    [case] = analysis.cases
    assert (case.question, case.truth) == (PROBLEM, "9")
    assert (case.low.text, case.high.text) == (WRITINGS["valid"], WRITINGS["code"])
    assert (case.low.is_valid, case.high.is_valid, case.high.entropy) == (True, False, pytest.approx(0.8))


def test_rates_are_corrected_by_the_newest_calibration_of_the_same_judge(database, tmp_path):
    ingest_run(database, record_chains(tmp_path, [KINDS]))
    ingest_job(database, job_of_votes(tmp_path, [("1/0", 0, "valid", None)]))
    assert analyse_run(database, "trained", "voted").corrected == ()
    labelled = [(str(number), None, "valid" if number < 9 else "invalid", number < 9) for number in range(20)]
    ingest_job(database, job_of_votes(tmp_path, labelled, source="labelled.jsonl", run_id="calibrated"))
    analysis = analyse_run(database, "trained", "voted")
    assert (analysis.judge, analysis.calibration.sensitivity.value) == ("judge", 1.0)
    validity = {line.group: line for line in analysis.validity}["all"]
    assert (validity.num_valid, validity.num_invalid) == (1, 0)
    line = {(line.group, line.has_code): line.rate for line in analysis.corrected}["medium", False]
    assert (line.value, line.observed.num_items) == (1.0, 1)
    assert find_calibration(database, "another judge", "cot-judge-1") is None
    summary = summarize_judge(database, "calibrated")
    assert (summary["num_valid"], summary["calibration"].specificity.value) == (9, 1.0)


def test_votes_are_put_together_by_item():
    votes = [("a", True, "valid"), ("b", False, "invalid"), ("a", True, "unjudged")]
    assert group_votes(votes) == [LabelledVotes(True, ("valid", "unjudged")), LabelledVotes(False, ("invalid",))]
