"""Parts of replay methods by name: built in, and from outside the workbench where its owner allows it."""

import dataclasses
import importlib.metadata
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import exgrpo_core.strategies
from exgrpo_core.config import ExGRPOConfig, LogProbRefresh, RetiredRule
from exgrpo_core.errors import FieldError, InputError
from exgrpo_core.methods import loading
from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.methods.loading import (
    ALLOWED_CODE_VARIABLE,
    CODE_FOLDER_VARIABLE,
    KINDS,
    QUESTIONS,
    TRAJECTORIES,
    build_part,
    describe,
    find_mistakes,
    find_part,
    load_code,
    names_of,
)
from exgrpo_core.methods.ranges import Share

MODULE = "tests.exgrpo_core.methods.outside_rules"
SHORTEST = f"{MODULE}:Shortest"


def config(**changes):
    return dataclasses.replace(ExGRPOConfig(), **changes)


def outside(**changes):
    return config(trajectory_selection=SHORTEST, strategy_settings={"least_tokens": 2.0}, **changes)


def test_every_built_in_part_names_its_sources_and_is_tried_by_a_test():
    files = Path(inspect.getfile(exgrpo_core.strategies)).parent.glob("[!_]*.py")
    assert all("Source: " in (import_module(f"exgrpo_core.strategies.{path.stem}").__doc__ or "") for path in files)
    assert all(describe(setting, name).endswith(".") for setting in KINDS for name in names_of(setting))
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("*.py"))
    untried = [name for setting in KINDS for name in names_of(setting) if f'"{name}"' not in tests]
    assert not untried, f"METHODS of tests/exgrpo_core/strategies/replay_methods.py: add {untried}."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question_selection": "gausian"}, "question_selection: there is no 'gausian'; did you mean gaussian?"),
        ({"trajectory_selection": "zzz"}, "trajectory_selection: there is no 'zzz'; expected one of "),
        ({"strategy_settings": {"decay": 1.0}}, "the chosen strategies have no setting decay; remove it."),
        ({"strategy_settings": {"bucket_center": 1.0}}, "have no setting bucket_center; remove it."),
        (
            {"question_selection": "trl_replay", "refresh": LogProbRefresh.ON_REPLAY},
            "refresh: expected never, since trl_replay replays groups of one step.",
        ),
        ({"question_selection": "trinity", "experience_ratio": 1.0}, "experience_ratio: expected less than 1, since "),
        (
            {"replays_per_group": 8},
            "replays_per_group: expected less than 8, since gaussian replays them in the place of some of 8 rollouts, "
            "got 8.",
        ),
        (
            {"question_selection": "fresh_per", "replays_per_group": 3, "candidate_budget": 2},
            "candidate_budget: expected at least 3 or null, since a group replays 3 of its candidates "
            "(replays_per_group), got 2.",
        ),
        (
            {"off_policy_correction": "masked", "fresh_objective": "masked", "strategy_settings": {"ratio_limit": 1}},
            "strategy_settings.ratio_limit: expected a number above 1, got 1.",
        ),
        (
            {"question_selection": "bapo", "strategy_settings": {"least_rate": 0.5}},
            "strategy_settings.most_rate: expected at least least_rate, which is 0.5, got 0.25.",
        ),
        ({"question_selection": "dyjr"}, "expected jensen_shannon, since dyjr reinforces no replayed token."),
        ({"question_selection": "repair_window"}, "retired: expected never, since repair_window reviews questions"),
        (
            {"question_selection": "repair_window", "retired": RetiredRule.NEVER, "buffer_capacity": 100},
            "buffer_capacity: expected null, since repair_window reviews questions however long they wait.",
        ),
        (
            {"question_selection": "repair_window", "retired": RetiredRule.NEVER, "buffer_age": 9},
            "buffer_age: expected null, since repair_window reviews questions however long they wait.",
        ),
        (
            {"question_selection": "nexgrpo"},
            "trajectory_selection: expected boundary_failure, since nexgrpo replays failures only.",
        ),
        ({"trajectory_selection": SHORTEST}, "is code from outside the workbench, which this machine does not run;"),
    ],
)
def test_what_cannot_be_built_is_one_sentence_that_names_the_setting(changes, message):
    (mistake,) = find_mistakes(config(**changes))
    assert message in mistake


def test_only_numbers_that_begin_with_least_and_most_are_a_pair(monkeypatch):
    names = ("at_least_rate", "at_most_rate", "least_least_rate", "most_least_rate", "most_most_rate")
    part = dataclasses.make_dataclass("Apart", [(name, Share, 0.5) for name in names])
    part.name = "apart"
    monkeypatch.setattr(loading, "find_part", lambda *_: part)
    lower = {"at_most_rate": 0.25, "most_most_rate": 0.25}
    assert build_part(QUESTIONS, config(strategy_settings=lower)).at_most_rate == 0.25
    with pytest.raises(FieldError, match="most_least_rate: expected at least least_least_rate"):
        build_part(QUESTIONS, config(strategy_settings={"most_least_rate": 0.25}))


@pytest.mark.parametrize(
    "changes",
    [
        {"replays_per_group": 7}, {"replays_per_group": 3, "candidate_budget": 3},
        {"replays_per_group": 8, "experience_ratio": 0.0}, {"replays_per_group": 8, "question_selection": "repo"},
    ],
)  # fmt: skip
def test_replays_that_leave_a_rollout_or_take_no_place_are_allowed(changes):
    assert list(find_mistakes(config(**changes))) == []


def test_code_from_outside_runs_where_its_module_or_a_package_above_is_allowed(monkeypatch):
    columns = CandidateColumns(*np.zeros((2, 3), dtype=np.float32), np.array([1, 5, 3]))
    for allowed in (MODULE, "other, tests"):
        monkeypatch.setenv(ALLOWED_CODE_VARIABLE, allowed)
        assert list(find_mistakes(outside())) == []
        assert build_part(TRAJECTORIES, outside()).choose(columns, 1, np.random.default_rng(0))[0].tolist() == [2]
    for refused in ("", "tests.exgrpo_core.methods.outside", "test"):
        monkeypatch.setenv(ALLOWED_CODE_VARIABLE, refused)
        with pytest.raises(InputError):
            build_part(TRAJECTORIES, outside())


def test_an_entry_point_of_another_package_has_a_name_and_needs_the_same_permission(monkeypatch):
    entry = importlib.metadata.EntryPoint("shortest", SHORTEST, loading.ENTRY_POINTS)
    monkeypatch.setattr(loading, "entry_points", lambda name, **_group: [entry] if name == "shortest" else [])
    changed = dataclasses.replace(outside(), trajectory_selection="shortest")
    (mistake,) = find_mistakes(changed)
    assert "shortest is code from outside the workbench" in mistake
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    assert list(find_mistakes(changed)) == []
    assert find_part("trajectory_selection", "shortest").name == "shortest"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{MODULE}:Longest", "cannot be imported"),
        ("tests.nowhere:Rule", "cannot be imported"),
        (f"{MODULE}:TrajectorySelector", "expected a TrajectorySelector"),
        (f"{MODULE}:np", "expected a TrajectorySelector"),
        (f"{MODULE}:Nameless", "expected a TrajectorySelector with a name"),
    ],
)
def test_allowed_code_that_is_no_part_is_refused(monkeypatch, name, message):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    with pytest.raises(InputError, match=message):
        find_part("trajectory_selection", name)


@pytest.fixture
def modules_as_before():
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.usefixtures("modules_as_before")
def test_the_folder_of_the_start_has_allowed_modules_that_are_not_installed_and_no_others(tmp_path, monkeypatch):
    for module in ("own_rules", "own_others", "colorsys"):
        (tmp_path / f"{module}.py").write_text("WHOSE = 'the folder'\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "rules.py").write_text("import own_others\n")
    monkeypatch.setenv(CODE_FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(ModuleNotFoundError):
        import_module("own_rules")
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "own_rules, own_package.rules, colorsys")
    assert load_code("own_rules:WHOSE") == "the folder"
    with pytest.raises(InputError, match="No module named 'own_others'"):
        load_code("own_package.rules:WHOSE")
    with pytest.raises(InputError, match="no attribute 'WHOSE'"):
        load_code("colorsys:WHOSE")


@pytest.mark.usefixtures("modules_as_before")
@pytest.mark.parametrize(
    ("text", "reason"),
    [("def broken(:\n", r"SyntaxError: .*own_broken.py, line 1"), ("x = nothing\n", "NameError: name 'nothing'")],
)
def test_a_module_with_an_error_is_one_sentence_on_its_line(tmp_path, monkeypatch, text, reason):
    (tmp_path / "own_broken.py").write_text(text)
    monkeypatch.setenv(CODE_FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "own_broken")
    (mistake,) = find_mistakes(config(trajectory_selection="own_broken:Rule"))
    assert mistake.startswith("trajectory_selection: own_broken:Rule cannot be imported")
    assert re.search(reason, mistake)


def test_a_setting_of_a_class_without_the_decorator_or_without_a_default_is_told_what_it_needs(monkeypatch):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    (mistake,) = find_mistakes(config(trajectory_selection=SHORTEST))
    assert "strategy_settings.least_tokens" in mistake
    changes = {"trajectory_selection": f"{MODULE}:Undecorated", "strategy_settings": {"least_tokens": 1.0}}
    (mistake,) = find_mistakes(config(**changes))
    assert mistake.endswith(
        "no setting least_tokens; write @dataclass(frozen=True, slots=True) above the class that has it."
    )


@pytest.mark.usefixtures("modules_as_before")
def test_the_current_folder_is_that_of_the_start_where_nothing_started_the_process(tmp_path, monkeypatch):
    (tmp_path / "own_current.py").write_text("NUMBER = 3\n")
    monkeypatch.delenv(CODE_FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "own_current")
    monkeypatch.chdir(tmp_path)
    assert load_code("own_current:NUMBER") == 3


@pytest.mark.parametrize(
    "needs", [{"refresh": "never"}, {"refresh": ("never", "why", "more")}, ["refresh"], {"refresh": ("never", None)}]
)
def test_needs_of_another_shape_are_one_sentence(monkeypatch, needs):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    monkeypatch.setattr(f"{MODULE}.Shortest.needs", needs)
    (mistake,) = find_mistakes(outside())
    assert mistake.startswith("trajectory_selection: Shortest.needs: expected a dict of setting: (value, reason)")
