"""Every number that a page shows of recorded runs is derived again from their files."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_runs(derive):
    derive("runs", 30)


def test_run(derive):
    derive("run", 2000)


def test_compare(derive):
    derive("compare", 200)


def test_replay_buffer(derive):
    derive("replay_buffer", 500)


def test_selection_audit(derive):
    derive("selection_audit", 300)


def test_snowball(derive):
    derive("snowball", 500)


def test_entropy_and_judge(derive):
    derive("entropy_and_judge", 1500)


def test_results_of_jobs(derive):
    derive("jobs", 40)


def test_benchmarks(derive):
    derive("benchmarks", 250)


def test_trajectories(derive):
    derive("trajectories", 3000)


def test_studies(derive):
    derive("studies", 600)


def test_system(derive):
    derive("system", 50)


def test_paper(derive):
    derive("paper", 2000)
