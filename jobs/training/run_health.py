"""What a person would want to be woken for, as notices of steps; the end of a run whose sampler is another model."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np

from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.tasks.grading.boxed_answers import closes_thought
from exgrpo.jobs.tasks.grading.reward_function import Grade
from exgrpo_core.step_report import NUM_RECENT_STEPS, StepReport
from exgrpo_core.types import Question, Trajectory

VERL_MAX_GAP = 0.05
"""Mean nats between a token's log-probs where it is sampled and where it is trained on; bfloat16 differs by less."""
OTHER_WEIGHTS_GAP = 0.5
"""A mean gap above this is no matter of how numbers are computed, at any step and however it is corrected."""
NUM_FIRST_STEPS = 3
"""Steps at the start of each attempt whose gap ends it: weights are sent, then sent to a server that slept, then again
to one that slept after an update."""
_GAP = "generator/log_prob_gap"


class Reason(StrEnum):
    """Why a response earned nothing."""

    UNKNOWN_TOKENS = "tokens that the tokenizer does not know"
    TRUNCATED = "cut at the longest length"
    OPEN_THOUGHT = "no end of thinking"
    NO_BOX = "no answer in a box"
    NOT_GRADED = "not graded in time"
    WRONG = "a wrong answer"


_ADVICE = {
    Reason.UNKNOWN_TOKENS: "choose a model that was trained on such texts",
    Reason.TRUNCATED: "raise algorithm.max_response_tokens, or fine-tune on demonstrations that end",
    Reason.OPEN_THOUGHT: "ask for </think> in the prompt, or set data.requires_think_end to false",
    Reason.NO_BOX: "ask for a \\boxed{} in the prompt, or fine-tune on demonstrations first (sft)",
    Reason.NOT_GRADED: "look at the responses under Trajectories",
    Reason.WRONG: "choose easier questions, or fine-tune on demonstrations first (sft)",
}


class RunHealth:
    """Looks at the steps of one attempt in their order; the sampler gets the trained weights once in each."""

    def __init__(
        self,
        questions: Sequence[Question],
        unknown_token_id: int | None,
        max_gap: float,
        *,
        requires_think_end: bool,
        is_corrected: bool,
    ) -> None:
        self._unknown = unknown_token_id
        self._max_gap = max_gap
        self._requires_think_end = requires_think_end
        self._is_corrected = is_corrected
        self._at_start = unknown_token_notices(questions, unknown_token_id)
        self._num_steps = 0
        self._is_apart = False
        self._num_equal = 0
        self._num_unrewarded = 0
        self._reasons: Counter[Reason] = Counter()

    def look_at(self, report: StepReport) -> None:
        """Add to a step's notices what is wrong since it, each once as long as it lasts."""
        self._num_steps += 1
        report.notices += self._at_start
        self._at_start = []
        report.notices += [*self._reward_notices(report), *self._gap_notices(report)]

    def check_gap(self, report: StepReport) -> None:
        """End a run whose sampler and trainer are apart in the step that was looked at last.

        Raises:
            TrainingError: They are by more than numbers explain, or are not corrected in one of the first steps.
        """
        if self._ends_run(report):
            is_small = report.metrics[_GAP] <= OTHER_WEIGHTS_GAP
            remedy = "set algorithm.sampler_correction" if is_small else "resume from an earlier checkpoint"
            raise TrainingError(
                f"step {report.step}: {self._describe(report)}; the sampler has other weights or computes otherwise: "
                f"leave out verl.overrides that change how either computes, choose another model, or {remedy}."
            )

    def _ends_run(self, report: StepReport) -> bool:
        gap = report.metrics.get(_GAP)
        if gap is None:
            return False
        is_early = self._num_steps <= NUM_FIRST_STEPS and not self._is_corrected and not _is_ahead(report)
        return not gap <= (self._max_gap if is_early else OTHER_WEIGHTS_GAP)

    def _gap_notices(self, report: StepReport) -> Iterator[str]:
        gap = report.metrics.get(_GAP)
        if gap is None or _is_ahead(report):
            return
        was_apart, self._is_apart = self._is_apart, not gap <= self._max_gap
        if self._is_apart and not was_apart and not self._ends_run(report):
            advice = "" if self._is_corrected else "set algorithm.sampler_correction, or "
            yield f"{self._describe(report)}; {advice}resume from an earlier checkpoint."

    def _describe(self, report: StepReport) -> str:
        return (
            f"After weight exchange {self._num_steps} of this attempt, sampled tokens have other log-probs where they "
            f"are trained on (mean gap {report.metrics[_GAP]:.3g} nats, expected at most {self._max_gap:g})"
        )

    def _reward_notices(self, report: StepReport) -> Iterator[str]:
        fresh = [(group.question, item) for group in report.groups for item in group.trajectories]
        if not fresh:
            return
        if any(item.reward > 0.0 for _, item in fresh):
            self._num_unrewarded, self._reasons = 0, Counter()
        else:
            self._num_unrewarded += 1
            self._reasons.update(self._reason(question, item) for question, item in fresh)
        has_difference = not all(group.has_equal_rewards for group in report.groups)
        self._num_equal = 0 if has_difference else self._num_equal + 1
        if self._num_unrewarded == NUM_RECENT_STEPS:
            reason, count = self._reasons.most_common(1)[0]
            yield (
                f"Most seen reason for no reward: {reason} ({count:,} of {self._reasons.total():,} rollouts); "
                f"{_ADVICE[reason]}."
            )
        elif self._num_equal == NUM_RECENT_STEPS > self._num_unrewarded:
            yield (
                "All rollouts of each question earn the same: choose harder or easier questions, or raise "
                "algorithm.rollouts_per_question."
            )

    def _reason(self, question: Question, item: Trajectory) -> Reason:
        if self._unknown is not None and self._unknown in np.concatenate([question.prompt_ids, item.token_ids]):
            return Reason.UNKNOWN_TOKENS
        if item.verdict in {Grade.TIMEOUT, Grade.CRASH}:
            return Reason.NOT_GRADED
        if item.is_truncated and item.verdict != Grade.WRONG:
            return Reason.TRUNCATED
        if item.verdict != Grade.UNPARSED:
            return Reason.WRONG
        is_open = self._requires_think_end and not closes_thought(item.text)
        return Reason.OPEN_THOUGHT if is_open else Reason.NO_BOX


def _is_ahead(report: StepReport) -> bool:
    """Tell whether tokens are of another policy, since they were generated ahead: they differ as they should."""
    return any(item.is_ahead for group in report.groups for item in group.trajectories)


def unknown_token_notices(questions: Sequence[Question], unknown_token_id: int | None) -> list[str]:
    """Return a notice on the share of tokens in prompts that stand for what the tokenizer does not know."""
    if unknown_token_id is None:
        return []
    counts = [int(np.count_nonzero(question.prompt_ids == unknown_token_id)) for question in questions]
    num_unknown, num_tokens = sum(counts), sum(question.prompt_ids.size for question in questions)
    if not num_unknown:
        return []
    return [
        f"{num_unknown / num_tokens:.1%} of the prompts' tokens, in {sum(map(bool, counts)):,} of {len(counts):,} "
        "questions, are unknown to the model's tokenizer, so the model cannot read them; "
        f"{_ADVICE[Reason.UNKNOWN_TOKENS]}."
    ]
