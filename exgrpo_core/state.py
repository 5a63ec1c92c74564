"""Everything ExGRPO remembers between steps, saved and restored exactly."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exgrpo_core.bounded_json import read_json
from exgrpo_core.config import ExGRPOConfig, RetiredRule
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import FieldError
from exgrpo_core.experience_management.question_stream import QuestionStream, RetiredSet
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.experience_management.storage.append_file import ODD_CONTENT
from exgrpo_core.methods.loading import build_strategies
from exgrpo_core.types import UNASSIGNED, BoolArray, Experience, Question, RolloutGroup

if TYPE_CHECKING:
    from exgrpo_core.step.rollouts import StepRollouts

STATE_FILE = "experience.json"
MAX_STATE_BYTES = 1 << 30
"""More than the order of some million questions takes."""
BUFFER_FILE = "buffer.snapshot"


class StateError(ValueError):
    """A saved state that cannot be used; the message names the file and what is wrong."""


class DelayedStart:
    """A switch: it opens when one batch's Pass@1 is above `start_pass_rate`, and never closes again.

    Without a rate (None) it is open from the beginning.
    """

    def __init__(self, start_pass_rate: float | None) -> None:
        self._start_pass_rate = start_pass_rate
        self._is_open = start_pass_rate is None

    @property
    def is_open(self) -> bool:
        """Whether experience is collected and replayed."""
        return self._is_open

    def observe(self, pass_at_1: float) -> None:
        """Open the switch if one batch's Pass@1, in [0, 1], is above the rate."""
        if self._start_pass_rate is not None and pass_at_1 > self._start_pass_rate:
            self._is_open = True

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs."""
        return {"is_open": self._is_open}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved switch."""
        self._is_open = bool(state["is_open"])


class ExGRPOState:
    """E, S, the switch, the random generator and the stream of fresh questions of one run.

    `step` is the number of steps done. `external` maps question indices to trajectories from a file (LUFFY-style).
    `planned_ahead` is the next step, if its rollouts were begun.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        config: ExGRPOConfig,
        replay_buffer: ReplayBuffer,
        external: Mapping[int, Experience] | None = None,
    ) -> None:
        self.questions = questions
        self.replay_buffer = replay_buffer
        self.external = external or {}
        self.strategies = build_strategies(config)
        replay_buffer.history.keep_past_groups(self.strategies.method.num_past_groups)
        self.retired_set = RetiredSet(len(questions))
        self.delayed_start = DelayedStart(config.start_pass_rate)
        self.stream = QuestionStream(len(questions), config.seed)
        self.rng = np.random.Generator(np.random.PCG64(config.seed))
        self.step = 0
        self.next_trajectory_id = 0
        self.num_fresh_rollouts = 0
        self.num_generated_tokens = 0
        self.planned_ahead: StepRollouts | None = None

    @classmethod
    def create(
        cls,
        directory: Path,
        questions: Sequence[Question],
        config: ExGRPOConfig,
        external: Mapping[int, Experience] | None = None,
    ) -> "ExGRPOState":
        """Return the state before the first step; the buffer's segments go into `directory`.

        Raises:
            FieldError: Fewer questions than a batch holds.
        """
        if len(questions) < config.batch_size:
            raise FieldError(
                f"expected at most the questions to train on ({len(questions)}), got {config.batch_size}; lower it or "
                "give more questions.",
                "algorithm.batch_size",
            )
        buffer = ReplayBuffer(directory, len(questions), config.rollouts_per_question)
        return cls(questions, config, buffer, external)

    def skipped_questions(self, config: ExGRPOConfig) -> BoolArray:
        """Return which questions the stream of fresh ones skips: the retired, unless they may be redrawn.

        A plain on-policy run skips none unless its rule is `always`: its retired set is only shown.
        """
        if config.retired is RetiredRule.REDRAW or not (
            config.replays_experience or config.retired is RetiredRule.ALWAYS
        ):
            return np.zeros(len(self.questions), dtype=np.bool_)
        return self.retired_set.mask

    def take_planned(self) -> "StepRollouts | None":
        """Return the step that begins, if its rollouts were begun ahead."""
        planned, self.planned_ahead = self.planned_ahead, None
        return planned

    def number_trajectories(self, groups: Sequence[RolloutGroup]) -> None:
        """Give every fresh trajectory its id, step and policy version, in the order of the groups."""
        for group in groups:
            for trajectory in group.trajectories:
                trajectory.trajectory_id = self.next_trajectory_id
                trajectory.rollout_step = self.step
                if trajectory.policy_version == UNASSIGNED:
                    trajectory.policy_version = self.step - 1
                self.next_trajectory_id += 1
                self.num_fresh_rollouts += 1
                self.num_generated_tokens += trajectory.token_ids.size - trajectory.num_prefix_tokens

    def save(self, directory: Path) -> None:
        """Write the whole state into `directory` and seal the buffer's segments.

        The caller makes the directory appear under its final name in one step.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.replay_buffer.seal()
        self.replay_buffer.snapshot(directory / BUFFER_FILE)
        stream = self.stream.state_dict()
        if self.planned_ahead is not None:
            # The next step is planned again after a resume: fresh questions keep their turns.
            stream["deferred"] = [*self.planned_ahead.fresh_questions, *stream["deferred"]]
        content = {
            "questions": _fingerprint(self.questions),
            "step": self.step,
            "next_trajectory_id": self.next_trajectory_id,
            "num_fresh_rollouts": self.num_fresh_rollouts,
            "num_generated_tokens": self.num_generated_tokens,
            "rng": self.rng.bit_generator.state,
            "retired_set": self.retired_set.state_dict(),
            "delayed_start": self.delayed_start.state_dict(),
            "stream": stream,
        }
        write_whole(directory / STATE_FILE, json.dumps(content, default=_plain))

    @classmethod
    def restore(
        cls,
        segments: Path,
        saved: Path,
        questions: Sequence[Question],
        config: ExGRPOConfig,
        external: Mapping[int, Experience] | None = None,
    ) -> "ExGRPOState":
        """Return the state saved in `saved`, with segments in `segments`; its draws continue as if uninterrupted.

        A step that was planned ahead is planned again, its fresh questions first.

        Raises:
            StateError: The saved state is damaged or belongs to other questions.
            BufferCorruptionError: The buffer's snapshot or a segment is damaged.
        """
        path = saved / STATE_FILE
        buffer = ReplayBuffer.restore(segments, saved / BUFFER_FILE)
        try:
            content: dict[str, Any] = read_json(path, MAX_STATE_BYTES)
            if content["questions"] != _fingerprint(questions):
                raise StateError(f"{path}: was saved with other questions; resume with the data of that run.")
            state = cls(questions, config, buffer, external)
            for name in ("step", "next_trajectory_id", "num_fresh_rollouts", "num_generated_tokens"):
                setattr(state, name, int(content[name]))
            state.rng.bit_generator.state = content["rng"]
            state.retired_set.load_state_dict(content["retired_set"])
            state.delayed_start.load_state_dict(content["delayed_start"])
            state.stream.load_state_dict(content["stream"])
        except StateError:
            raise
        except (OSError, *ODD_CONTENT) as error:
            raise StateError(f"{path}: is missing or damaged ({error}); use an older checkpoint.") from error
        return state


def _fingerprint(questions: Sequence[Question]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for question in questions:
        digest.update(question.question_id.encode() + b"\n")
    return digest.hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"cannot save {type(value).__name__}")
