"""A runs root that every query has something to say about."""

from pathlib import Path

from exgrpo.db.connections.opening import open_database
from tests.app import played
from tests.db.queries.test_judging import job_of_votes
from tests.db.recorded_scores import PARTS, event, record_scores
from tests.jobs.evaluation.judging.chain_runs import new_job, oracle_spec, record_chains, run_job

RUN = "play-finished"
KINDS = ["valid", "lucky", "wrong", "code"]


def seed(root: Path) -> Path:
    """Record a played run, a run of chains with the oracle's job and a calibrated judge's on it, and two evaluations.

    The second evaluation is better and was asked with another template.
    """
    played.play(root, played.FINISHED)
    record_chains(root, [KINDS, KINDS])
    run_job(new_job(root, oracle_spec()))
    labelled = [("a", None, "valid", True), ("b", None, "invalid", False), ("c", None, "valid", False)]
    job_of_votes(root, labelled, source="labelled.jsonl", run_id="calibrated")
    job_of_votes(root, [("1/0", 0, "valid", None)])
    database = open_database(None, root)
    record_scores(database, root, event([0, 2, 4]), run_id="eval-first")
    better = event([4, 2, 3], comparability=PARTS | {"template": "none"}, source_run_id=None, source_step=None)
    record_scores(database, root, better, event([1], benchmark="amc"), run_id="eval-second")
    database.close()
    return root
