"""A recorded run whose groups, entropies, buffer and replays are chosen by hand, for analyses."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import BufferEvent, BufferEventKind, StepReport
from exgrpo_core.types import Experience, Question, Replay, RolloutGroup, Trajectory

CODE_TEXT = "```python\nprint(9)\n```\n\\boxed{9}"
PLAIN_TEXT = "so \\boxed{9}"


@dataclass
class Response:
    """One rollout; ids count up over the run."""

    entropy: float = 0.1
    is_correct: bool = True
    is_valid: bool | None = None
    has_code: bool | None = False
    nll: float = 0.1
    text: str = ""
    num_tokens: int = 4


@dataclass
class Step:
    """One step: groups of responses by question, and what the buffer did.

    Replays are (id, rollout step) by question; an id below 0 is that of an external response.
    """

    groups: dict[int, list[Response]]
    inserted: Sequence[tuple[int, int]] = ()
    retired: Sequence[int] = ()
    evicted: Sequence[tuple[int, int]] = ()
    replayed: dict[int, tuple[int, int]] = field(default_factory=dict)


def question(index):
    prompt_ids, details = np.array([1, index], np.int32), {"question": f"Q{index}"}
    return Question(index, f"q{index}", prompt_ids, f"prompt {index}", "9", details)


def record_steps(runs_root, steps, run_id="trained", *, first_step=1, **parts):
    """Record one attempt with these steps; a run that is there already gets another attempt."""
    try:
        run = RunDirectory.open(runs_root, run_id)
    except ValueError:
        run = RunDirectory.create(runs_root, TrainSpec(name=run_id), run_id=run_id, **parts)
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions([question(index) for index in range(4)], "training")
    number = 0
    for item, step in enumerate(steps, start=first_step):
        groups = []
        for index, responses in step.groups.items():
            made = [_trajectory(response, index, number + offset, item) for offset, response in enumerate(responses)]
            number += len(made)
            replays = (_replay(index, *step.replayed[index]),) if index in step.replayed else ()
            advantages = np.zeros(len(made) + len(replays), np.float32)
            groups.append(RolloutGroup(question(index), made, replays, advantages))
        changes = [BufferEvent(BufferEventKind.INSERTED, index, entry, 1, 1) for index, entry in step.inserted]
        changes += [BufferEvent(BufferEventKind.RETIRED, index, None, 1, None) for index in step.retired]
        changes += [BufferEvent(BufferEventKind.EVICTED, index, entry, 1, 1) for index, entry in step.evicted]
        recorder.step(StepReport(item, True, groups, buffer_events=changes))
    recorder.close()
    return run


def _trajectory(own, index, trajectory_id, step):
    size = own.num_tokens
    return Trajectory(
        question_index=index,
        token_ids=(np.arange(size) % 50).astype(np.int32),
        log_probs=np.full(size, -own.nll, np.float32),
        reward=float(own.is_correct),
        text=own.text or (CODE_TEXT if own.has_code else PLAIN_TEXT),
        verdict="correct" if own.is_correct else "wrong",
        is_valid=own.is_valid,
        has_code=own.has_code,
        entropies=np.full(size, own.entropy, np.float32),
        trajectory_id=trajectory_id,
        rollout_step=step,
    )


def _replay(index, trajectory_id, rollout_step):
    tokens, values = np.arange(4, dtype=np.int32), np.full(4, -0.1, np.float32)
    stored = Experience(trajectory_id, trajectory_id, index, rollout_step, 1.0, tokens, values)
    return Replay(stored, values, -values, is_external=trajectory_id < 0)
