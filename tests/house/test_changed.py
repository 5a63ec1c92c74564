from pathlib import Path

import pytest

from tests.changed import ALGORITHM, ALWAYS, ORACLE, ImportGraph, pick_tests


@pytest.fixture(scope="module")
def graph():
    return ImportGraph()


@pytest.mark.parametrize(
    ("changed", "picked"),
    [
        ("exgrpo_core/policy_optimization/objective.py", {"tests/exgrpo_core/policy_optimization/test_objective.py"}),
        ("exgrpo_core/step/selection.py", {"tests/exgrpo_core/step", ALGORITHM}),
        ("jobs/training/engines/embedded/engine.py", {"tests/jobs/training/engines/embedded/test_engine.py"}),
        ("jobs/specs/train.py", {"tests/jobs/specs/test_train.py", "tests/jobs/execution/worker/test_worker.py"}),
        ("app/app_pages/compare.py", {"tests/app/app_pages/test_compare.py", ORACLE}),
        ("jobs/specs/presets/chains/chains-exgrpo.yaml", {"tests/jobs/actions/test_branching.py"}),
        ("bench/weight.py", {"tests/bench/test_weight.py"}),
        ("tests/db/conftest.py", {"tests/db"}),
        ("tests/postgres.py", {"tests/db/connections/test_opening.py"}),
    ],
)
def test_a_change_runs_the_tests_that_import_it_and_those_in_its_place(graph, changed, picked):
    assert Path(changed).is_file()
    assert {ALWAYS} | picked <= pick_tests([Path(changed)], graph)


def test_a_test_that_is_gone_is_not_run(graph):
    assert pick_tests([Path("tests/db/test_that_is_gone.py")], graph) == {ALWAYS}


def test_a_change_of_one_document_runs_the_tests_of_the_repository_and_no_others(graph):
    assert pick_tests([Path("README.md")], graph) == {ALWAYS}
