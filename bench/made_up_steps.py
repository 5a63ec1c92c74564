"""Made-up step reports of a given size, for measuring what recording and ingesting them costs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from exgrpo_core.step_report import METRICS, BufferEvent, BufferEventKind, StepReport
from exgrpo_core.types import Question, RolloutGroup, Trajectory

K = 8
VOCABULARY = 151_000
_NUM_WORDS = 20_000
_MOST_TOKENS = 8192
_SPREAD = 0.8


@dataclass(frozen=True, slots=True)
class StepSize:
    """Questions a step, K rollouts each, and the mean length of a response, in tokens; a word is 1.3 tokens."""

    num_questions: int
    mean_tokens: int


class StepMaker:
    """Makes reports with ragged responses (lognormal, at most 8,192 tokens) of words drawn by Zipf's law."""

    def __init__(self, size: StepSize, seed: int = 1) -> None:
        self._size = size
        self._rng = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        self._words = ["".join(self._rng.choice(letters, 2 + i % 9)) for i in range(_NUM_WORDS)]
        self._next_id = 0

    def reports(self, num_steps: int) -> Iterator[StepReport]:
        """Yield that many steps, numbered from 1; two of five responses are correct."""
        for step in range(1, num_steps + 1):
            groups = [self._group(item, step) for item in range(self._size.num_questions)]
            events = [
                BufferEvent(BufferEventKind.INSERTED, trajectory.question_index, trajectory.trajectory_id, None, 3)
                for group in groups
                for trajectory in group.trajectories
                if trajectory.reward
            ]
            metrics = {key: float(self._rng.random()) for key in METRICS}
            yield StepReport(step, is_replay_open=True, groups=groups, buffer_events=events, metrics=metrics)

    def _group(self, index: int, step: int) -> RolloutGroup:
        question = Question(index, f"id{index}", np.array([1], dtype=np.int32), f"Question {index}?", str(index))
        advantages = self._rng.normal(size=K).astype(np.float32)
        return RolloutGroup(question, [self._trajectory(index, step) for _ in range(K)], advantages=advantages)

    def _trajectory(self, index: int, step: int) -> Trajectory:
        draw = self._rng.lognormal(np.log(self._size.mean_tokens) - _SPREAD**2 / 2, _SPREAD)
        length = int(np.clip(draw, 4, _MOST_TOKENS))
        token_ids = np.minimum(self._rng.zipf(1.3, length), VOCABULARY - 1).astype(np.int32)
        words = [self._words[i % _NUM_WORDS] for i in token_ids[: int(length / 1.3)].tolist()]
        is_correct = self._rng.random() < 0.4
        self._next_id += 1
        return Trajectory(
            question_index=index,
            token_ids=token_ids,
            log_probs=-self._rng.random(length, dtype=np.float32),
            reward=float(is_correct),
            text=f"{' '.join(words)} \\boxed{{{index}}}",
            verdict="correct" if is_correct else "wrong",
            is_truncated=length == _MOST_TOKENS,
            entropies=self._rng.random(length, dtype=np.float32),
            trajectory_id=self._next_id,
            rollout_step=step,
        )
