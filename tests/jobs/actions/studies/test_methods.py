import subprocess
import sys

import pytest

from exgrpo.jobs.actions.studies.definition import RunKey, Scale, load_study, spec_of, wanted_keys
from exgrpo.jobs.actions.studies.study_report import render_report
from exgrpo.jobs.actions.studies.study_results import StudyResults, read_results
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.recording.event_reader import iterate_events
from exgrpo_core.methods.loading import methods
from tests.jobs.actions.studies.recorded import record_run
from tests.jobs.actions.studies.test_study_report import Outline

STUDY = load_study("methods")
BUDGET = 12_000


def read(runs_root, num_seeds) -> StudyResults:
    with open_fresh_index(runs_root, None) as database:
        return read_results(database, STUDY, Scale.CHAINS, wanted_keys(STUDY, Scale.CHAINS, STUDY.cells, num_seeds))


def test_every_method_is_a_cell_with_five_seeds_that_ends_at_the_same_tokens():
    keys = wanted_keys(STUDY, Scale.CHAINS, STUDY.cells, None)
    assert len(keys) == 5 * (1 + len(methods()))
    specs = {key.cell: spec_of(STUDY, key) for key in keys}
    assert len({spec.max_generated_tokens for spec in specs.values()}) == 1
    assert {spec.max_generated_tokens for spec in specs.values()} != {None}
    assert specs["on-policy"].algorithm.experience_ratio == 0.0
    for about in methods().values():
        chosen = specs[about.cell].algorithm
        assert {name: getattr(chosen, name) for name in about.settings} == about.settings
        assert chosen.start_pass_rate is None
    assert {STUDY.baseline_of(cell) for cell in STUDY.cells} == {None, "on-policy"}


def test_the_report_tells_differences_from_chance_by_holm_s_correction(tmp_path):
    counts = {"on-policy": (4, 5, 4, 5, 4), "fifo-replay": (7, 8, 8, 8, 7), "vcrl": (5, 4, 5, 4, 5)}
    for cell, correct in counts.items():
        for seed, count in enumerate(correct):
            record_run(tmp_path, STUDY, RunKey("methods", Scale.CHAINS, cell, seed), count)
    text = " ".join(Outline(render_report(read(tmp_path, 5), 105)).texts)
    # By hand: pairs of fifo-replay are 3, 3, 4, 3, 3 of 10 questions, so t is 3.2 / (sqrt(.2) / sqrt(5)) = 16.
    assert "Higher than the baseline: fifo-replay." in text
    assert "Not distinguishable from it: vcrl." in text
    assert "cells compared: 2" in text
    # By hand: Student's t with 4 degrees of freedom is 2.776, times 10 sqrt(.2 / 5) is 5.6.
    assert "+32.0 \N{PLUS-MINUS SIGN} 5.6" in text


@pytest.mark.slow
def test_two_methods_train_to_the_same_tokens_and_the_figures_are_those_of_their_trajectories(tmp_path):
    words = [sys.executable, "-m", "exgrpo.jobs.cli", "study", "run", "methods", "--seeds", "1"]
    words += ["--cells", "on-policy,fifo-replay", "--runs-root", str(tmp_path)]
    changes = [f"max_generated_tokens={BUDGET}", "validation.samples_per_question=2", "model.demonstrator_errors=null"]
    changes += ["data.modulus=10", "data.max_operations=10"]
    words += [word for change in changes for word in ("--set", change)]
    subprocess.run(words, check=True, capture_output=True, timeout=600)
    results = read(tmp_path, 1)
    for run in list_run_directories(tmp_path):
        cell = results.result_of(next(tag[5:] for tag in run.spec().tags if tag.startswith("cell:")))
        figures = cell.seeds[0].figures
        lengths = {event["trajectory_id"]: event["num_tokens"] for event in iterate_events(run, "trajectory")}
        steps = list(iterate_events(run, "step"))
        replayed = [
            change["trajectory_id"]
            for event in steps for change in event["buffer_events"] if change["kind"] == "replayed"
        ]  # fmt: skip
        num_generated, num_replayed = sum(lengths.values()), sum(lengths[item] for item in replayed)
        last = sum(event["num_tokens"] for event in iterate_events(run, "trajectory") if event["step"] == len(steps))
        assert num_generated - last < BUDGET <= num_generated
        assert figures["Generated tokens"] == num_generated
        assert figures["Steps"] == len(steps)
        assert figures["Replayed tokens (%)"] == pytest.approx(100 * num_replayed / (num_generated + num_replayed))
        stored = [change["kind"] for event in steps for change in event["buffer_events"]].count("inserted")
        assert figures["Peak of the buffer (trajectories)"] == stored
        assert [event["step"] for event in iterate_events(run, "checkpoint")] == [len(steps)]
        scored = [event for event in iterate_events(run, "evaluation") if event["question_set"] == "held_out"]
        assert [event["step"] for event in scored] == [0, len(steps)]
    fifo, on_policy = (results.result_of(name).seeds[0].figures for name in ("fifo-replay", "on-policy"))
    assert fifo["Replayed tokens (%)"] > 0 == on_policy["Replayed tokens (%)"]
    assert fifo["Steps"] > on_policy["Steps"]
