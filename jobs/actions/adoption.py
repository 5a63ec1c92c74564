"""Adopting the rollout dumps of a stock verl run: a run directory whose samples can be browsed."""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from db.rows.spec_fields import ADOPTED_ENGINE, ADOPTED_TAG, ADOPTED_TOKEN_DATA, UNKNOWN
from exgrpo_core.bounded_json import open_plain, parse_json
from exgrpo_core.errors import InputError
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question, RolloutGroup, Trajectory
from jobs.actions.archive import staging_folder
from jobs.grading.reward_function import Grade
from jobs.recording.file_recorder import FileRecorder
from jobs.runs.attempts import write_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal, JournalKind
from jobs.specs.train import RecordingSpec, TrainSpec, parse_spec
from jobs.tasks.questions import build_question, hash_question

_MAX_SCORE = sys.float_info.max
_STEP_FILE = re.compile(r"[0-9]{1,9}\.jsonl")


class DumpError(InputError, ValueError):
    """A dump that cannot be read; one sentence names the file, and the line if one is wrong."""


@dataclass(frozen=True, slots=True)
class DumpedRollout:
    """One line: the decoded prompt and response, the gold answer, the score, and verl's name of the question."""

    group: str
    """Rollouts of one question in one step share it."""
    prompt: str
    response: str
    answer: str
    score: float


@dataclass(frozen=True, slots=True)
class DumpedStep:
    """One file; `bad_lines` are sentences on lines that are no rollouts."""

    step: int
    rollouts: list[DumpedRollout]
    bad_lines: list[str]


def read_dump(folder: Path) -> Iterator[DumpedStep]:
    """Yield the dump's steps in order.

    Raises:
        DumpError: There is no dump, it is one of validation, or a file cannot be read.
    """
    if not folder.is_dir():
        raise DumpError(f"{folder}: expected the folder that trainer.rollout_data_dir named.")
    files = _step_files(folder)
    if not files:
        raise DumpError(f"{folder}: has no rollout dumps (1.jsonl, 2.jsonl, ...); name the folder that has.")
    if _step_of(files[0]) == 0:
        raise DumpError(f"{files[0]}: step 0 has no rollouts of training; validation dumps cannot be adopted.")
    for path in files:
        yield _read_step(path)


def last_step(folder: Path) -> int:
    """Return the last step of a dump by the names of its files, 1 where there is none."""
    return max([1, *map(_step_of, _step_files(folder))])


def _step_files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("*.jsonl") if _STEP_FILE.fullmatch(path.name)), key=_step_of)


def _step_of(path: Path) -> int:
    return int(path.stem)


def _read_step(path: Path) -> DumpedStep:
    rollouts, bad_lines = [], []
    try:
        with open_plain(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    rollouts.append(_parse(line, _step_of(path)))
                except ValueError as error:
                    bad_lines.append(f"{path.name}, line {number}: {error}")
    except OSError as error:
        raise DumpError(f"{path}: cannot be read ({error.strerror}).") from None
    return DumpedStep(_step_of(path), rollouts, bad_lines)


def _parse(line: bytes, step: int) -> DumpedRollout:
    try:
        row = parse_json(line)
    except ValueError:
        raise ValueError("is not a whole line of JSON.") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, got {type(row).__name__}.")
    if row.get("step", step) != step:
        raise ValueError(f"step: expected {step}, as the file is named, got {row['step']!r}.")
    prompt, response, score = _text(row, "input"), _text(row, "output"), row.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= _MAX_SCORE:
        raise ValueError(f"score: expected a number, got {str(score)[:40]!r}.")
    answer = row.get("gts")
    return DumpedRollout(
        group=_group_of(row.get("uid"), prompt),
        prompt=prompt,
        response=response,
        answer="" if answer is None else str(answer),
        score=float(score),
    )


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str):
        raise ValueError(f"{field}: expected a text, got {str(value)[:40]!r}.")
    return value


def _group_of(uid: object, prompt: str) -> str:
    """Return the question's part of verl's `{question}_{rollout}_{output}`; older dumps have the prompt only."""
    parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
    return parts[0] if len(parts) == 3 else prompt


DATA_SOURCE = "verl"
_BINARY_SCORES = frozenset({-1.0, 0.0, 1.0})
_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_LOG_PROBS = np.empty(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Adoption:
    """The new run, the number of its steps and rollouts, and a sentence on each line that was skipped."""

    run_id: str
    num_steps: int
    num_rollouts: int
    bad_lines: list[str]


def adopt(folder: Path, runs_root: Path, name: str, model: str = UNKNOWN) -> Adoption:
    """Write the dumps of `folder` as a run that has ended, marked with the tag `adopted`, and return its counts.

    Texts, scores and steps are kept; tokens, log-probs and entropies are not in verl's dumps. Lines that are no
    rollouts are skipped and named. The run appears in `runs_root` once it is whole.

    Raises:
        DumpError: There is no dump, a file cannot be read, or not one line is a rollout.
        SpecError: The name cannot be a run's.
    """
    runs_root.mkdir(parents=True, exist_ok=True)
    with staging_folder(runs_root, "adopting") as staging:
        run = RunDirectory.create(staging, _spec(folder, name, model))
        attempt = run.claim_attempt()
        with closing(FileRecorder(run, attempt, RecordingSpec(token_data=ADOPTED_TOKEN_DATA))) as recorder:
            adopted = _record(read_dump(folder), recorder, run.run_id)
        if not adopted.num_rollouts:
            raise DumpError(
                f"{folder}: holds no rollouts; {'; '.join(adopted.bad_lines[:3]) or 'every file is empty.'}"
            )
        write_outcome(run.attempt_path(attempt), RunStatus.FINISHED, "")
        run.path.rename(runs_root / run.run_id)
    journal = Journal(runs_root)
    journal.append(JournalKind.IMPORTED, run.run_id, source=str(folder.resolve()))
    journal.append(JournalKind.TAGGED, run.run_id, tag=ADOPTED_TAG)
    return adopted


def _spec(folder: Path, name: str, model: str) -> TrainSpec:
    content = {
        "name": name,
        "engine": ADOPTED_ENGINE,
        "model": {"source": model},
        "data": {"source": str(folder.resolve()), "num_questions": None, "num_held_out": 0},
        "algorithm": {"experience_ratio": 0.0},
        "num_steps": last_step(folder),
        "recording": {"token_data": ADOPTED_TOKEN_DATA},
        "tags": [ADOPTED_TAG],
    }
    return parse_spec(content, "adopted run")


@dataclass(slots=True)
class _Bookkeeping:
    """Numbers questions and trajectories over all steps."""

    questions: dict[tuple[str, str], Question] = field(default_factory=dict)
    num_rollouts: int = 0

    def question(self, rollout: DumpedRollout) -> Question:
        key = (rollout.prompt, rollout.answer)
        if key not in self.questions:
            question_id = hash_question(DATA_SOURCE, *key)
            metadata = {"data_source": DATA_SOURCE}
            index = len(self.questions)
            self.questions[key] = build_question(index, question_id, rollout.prompt, rollout.answer, [], metadata)
        return self.questions[key]

    def trajectory(self, rollout: DumpedRollout, question: Question, step: int, is_binary: bool) -> Trajectory:
        verdict = (Grade.CORRECT if rollout.score >= 1.0 else Grade.WRONG).value if is_binary else ""
        self.num_rollouts += 1
        return Trajectory(
            question_index=question.index,
            token_ids=_NO_TOKENS,
            log_probs=_NO_LOG_PROBS,
            reward=rollout.score,
            text=rollout.response,
            verdict=verdict,
            trajectory_id=self.num_rollouts - 1,
            rollout_step=step,
        )


def _record(steps: Iterable[DumpedStep], recorder: FileRecorder, run_id: str) -> Adoption:
    books, bad_lines, num_steps = _Bookkeeping(), list[str](), 0
    recorder.status(RunStatus.RUNNING)
    for step in steps:
        bad_lines += step.bad_lines
        if step.rollouts:
            num_steps += 1
            recorder.step(_report(step, books))
    recorder.questions(list(books.questions.values()), "training")
    recorder.status(RunStatus.FINISHED)
    return Adoption(run_id, num_steps, books.num_rollouts, bad_lines)


def _report(step: DumpedStep, books: _Bookkeeping) -> StepReport:
    is_binary = all(rollout.score in _BINARY_SCORES for rollout in step.rollouts)
    groups: dict[str, RolloutGroup] = {}
    for rollout in step.rollouts:
        question = books.question(rollout)
        group = groups.setdefault(rollout.group, RolloutGroup(question, []))
        group.trajectories.append(books.trajectory(rollout, question, step.step, is_binary))
    scores = [rollout.score for rollout in step.rollouts]
    metrics = {"reward/mean": float(np.mean(scores)), "rollouts/fresh_total": float(books.num_rollouts)}
    if is_binary:
        metrics["reward/pass_at_1"] = float(np.mean([score >= 1.0 for score in scores]))
        metrics["reward/pass_at_k"] = float(np.mean([bool((group.rewards >= 1.0).any()) for group in groups.values()]))
    notices = [f"{len(step.bad_lines)} lines of the dump are no rollouts."] if step.bad_lines else []
    return StepReport(step.step, is_replay_open=False, groups=list(groups.values()), metrics=metrics, notices=notices)
