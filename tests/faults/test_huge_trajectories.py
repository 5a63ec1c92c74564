"""Trajectories of sizes that nobody expects: the pages that show them answer all the same."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import app
from app import settings
from app.components.trajectories.trajectory_detail import PARTS
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question, RolloutGroup, Trajectory
from jobs.recording.file_recorder import FileRecorder
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.train import RecordingSpec, TrainSpec
from jobs.supervisor.open_index import ingest_all

pytestmark = [pytest.mark.fault_row(11), pytest.mark.long_fault, pytest.mark.timeout(1200)]

TEXT_BYTES = {False: 8 * 2**20, True: 50 * 2**20}
NUM_TOKENS = {False: 200_000, True: 1_000_000}
NUM_ROLLOUTS = {False: 4_000, True: 100_000}
MAX_SECONDS = 2.0
QUESTION = Question(0, "huge", np.array([1, 2], np.int32), "How large?", "9", {})


def make_trajectory(number: int, text: str, num_tokens: int = 4) -> Trajectory:
    return Trajectory(
        question_index=0,
        token_ids=(np.arange(num_tokens) % 50).astype(np.int32),
        log_probs=np.full(num_tokens, -0.1, np.float32),
        reward=float(number % 2),
        text=text,
        verdict="correct" if number % 2 else "wrong",
        is_valid=None,
        has_code=None,
        entropies=np.full(num_tokens, 0.1, np.float32),
        trajectory_id=number,
        rollout_step=1,
    )


def record(runs_root: Path, run_id: str, steps: list[list[Trajectory]]) -> None:
    run = RunDirectory.create(runs_root, TrainSpec(name=run_id), run_id=run_id)
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions([QUESTION], "training")
    for step, members in enumerate(steps, start=1):
        group = RolloutGroup(QUESTION, members, (), np.zeros(len(members), np.float32))
        metrics = {"reward/mean": 0.5, "seconds/step": 1.0}
        recorder.step(StepReport(step, is_replay_open=False, groups=[group], metrics=metrics))
    recorder.close()
    write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")


@pytest.fixture(scope="module")
def huge_root(tmp_path_factory: pytest.TempPathFactory, is_long: bool) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("huge")
    words = "the same words again and again $x^2$ \\boxed{9} "
    text = words * (TEXT_BYTES[is_long] // len(words))
    record(root, "large", [[make_trajectory(1, text), make_trajectory(2, text), make_trajectory(3, "small")]])
    line = "t" * NUM_TOKENS[is_long]
    record(root, "long", [[make_trajectory(1, line, NUM_TOKENS[is_long]), make_trajectory(2, "small")]])
    numbers = iter(range(NUM_ROLLOUTS[is_long]))
    record(root, "many", [[make_trajectory(number, f"text {number}") for number in numbers]])
    assert ingest_all(root, None)
    yield root
    shutil.rmtree(root)


def open_page(name: str, **query: str) -> AppTest:
    page = AppTest.from_file(str(Path(app.__file__).parent / "main.py"), default_timeout=120)
    for key, value in query.items():
        page.query_params[key] = value
    return page.switch_page(f"app_pages/{name}.py").run()


PAGES = (
    ("runs", {}),
    ("run", {}),
    ("trajectories", {}),
    ("trajectories", {"q": "words"}),
    *(("trajectories", {"trajectory": "1", "part": part}) for part in PARTS),
    ("trajectories", {"trajectory": "1", "mathematics": "true"}),
    ("replay_buffer", {}),
)


@pytest.mark.parametrize("run_id", ["large", "long", "many"])
def test_pages_of_huge_trajectories_answer(huge_root, run_id, is_long, figure):
    settings.configure(settings.AppSettings(huge_root))
    slowest, by_the_clock = ("", 0.0), 0.0
    open_page("trajectories", run="long")  # what a server loads once
    for name, query in PAGES:
        st.cache_data.clear()
        began_at, clock = time.process_time(), time.monotonic()
        page = open_page(name, run=run_id, **query)
        seconds, by_the_clock = time.process_time() - began_at, max(by_the_clock, time.monotonic() - clock)
        assert not page.exception, (name, query, page.exception)
        slowest = max(slowest, (" ".join([name, *query.values()]), seconds), key=lambda found: found[1])
        size = sum(len(str(element.value)) for kind in ("code", "markdown", "text") for element in page.get(kind))
        assert size < 2_000_000, f"{name} {query} sends {size:,} characters"
    figure(f"slowest page of {run_id}", f"{slowest[1]:.2f} s of processor time ({slowest[0]})")
    figure(f"longest wait for a page of {run_id}", f"{by_the_clock:.2f} s by the clock")
    assert slowest[1] < MAX_SECONDS or not is_long, slowest
