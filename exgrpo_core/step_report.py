"""What one step did: what the recorder writes and pages show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from exgrpo_core.types import Float32Array, Int64Array, RolloutGroup, SeenMiniBatch

NUM_RECENT_STEPS = 20
"""Steps in a row without reward, or without a difference between rollouts, after which a run is in bad health."""
_METRICS: dict[str, tuple[str, str]] = {
    "reward/mean": ("Mean reward", "mean reward of fresh rollouts"),
    "reward/pass_at_1": ("Batch Pass@1", "share of fresh rollouts that are correct"),
    "reward/pass_at_1_fresh": (
        "Fresh Pass@1",
        "share of the rollouts of fresh questions that are correct: comparable between methods",
    ),
    "reward/pass_at_1_replayed": (
        "Replayed Pass@1",
        "share of the fresh rollouts (K-1 in the paper's method) of replayed questions that are correct",
    ),
    "reward/pass_at_k": ("Batch Pass@K", "share of questions with a correct trajectory, the replayed one counted"),
    "reward/answer": ("Reward part: answer", "mean reward of the answers, a part of the reward before its weight"),
    "reward/format": ("Reward part: format", "mean of the part that rewards any answer in a box"),
    "reward/random": ("Reward part: random", "mean of the part that rewards at random"),
    "reward/code_1": ("Reward part: first code", "mean of the first part by code of the user's own"),
    "reward/code_2": ("Reward part: second code", "mean of the second such part"),
    "reward/code_3": ("Reward part: third code", "mean of the third such part"),
    "reward/failed": (
        "Failed calls of reward code",
        "share of calls of such code that raised, were late or gave no number, which counts as 0",
    ),
    "policy/entropy": ("Entropy of fresh rollouts", "mean token entropy of fresh rollouts at rollout time, nats"),
    "response/mean_tokens": ("Mean response length", "mean length of fresh responses, tokens"),
    "response/max_tokens": ("Longest response", "longest fresh response, tokens"),
    "response/truncated_share": ("Truncated responses", "share of fresh responses cut at the length limit"),
    "buffer/num_questions": ("Questions in the buffer", "questions in the replay buffer"),
    "buffer/num_drawable": ("Questions that may be drawn", "questions in a bucket that may be drawn"),
    "buffer/num_trajectories": ("Stored trajectories", "stored trajectories of buffered questions"),
    "buffer/num_tokens": ("Stored tokens", "tokens in the segments, retired questions included"),
    "buffer/num_retired": ("Retired questions", "questions in the retired set"),
    "buffer/num_in_data": ("Questions of the data set", "questions of the data set, |D|"),
    "buffer/ever_solved_share": (
        "Questions stored or retired",
        "share of the data set in buffer or retired set",
    ),
    "buffer/memory_bytes": ("Buffer memory", "bytes of memory of the replay buffer's index"),
    "buffer/file_bytes": ("Buffer files", "bytes of stored trajectories in the buffer's files"),
    "batch/questions_left": (
        "Questions left in mini-batches",
        "questions of a mini-batch with a policy gradient, mean over the step's mini-batches: not masked (masked "
        "GRPO), and with rollouts of different reward",
    ),
    "batch/questions_left_min": ("Fewest questions left in a mini-batch", "fewest such questions in one mini-batch"),
    "batch/equal_rewards": ("Groups of equal rewards", "groups whose rewards are all equal, which have no gradient"),
    "replay/num_replayed": ("Replayed trajectories", "replayed trajectories in the batch"),
    "replay/share": ("Experiential share of the batch", "share of experiential groups in the batch"),
    "replay/num_candidates": ("Candidates scored", "stored trajectories scored this step"),
    "replay/shortfall": ("Replay shortfall", "experiential slots that rho asked for and the buffer could not fill"),
    "replay/age_mean": (
        "Mean age of replayed trajectories",
        "mean steps done since the replayed trajectories were generated, or their log-probs refreshed; steps that "
        "a resume did again count twice",
    ),
    "replay/age_max": ("Greatest age of replayed trajectories", "largest such age, steps"),
    "replay/draws_per_question": ("Draws per question", "mean draws so far of the questions drawn this step"),
    "replay/entropy_chosen": (
        "Entropy of chosen trajectories",
        "their mean token entropy under the current policy, nats",
    ),
    "replay/entropy_rejected": ("Entropy of candidates not chosen", "mean token entropy of those not chosen, nats"),
    "replay/nll_chosen": ("NLL of chosen trajectories", "their mean -log pi under the current policy, nats"),
    "experience/num_inserted": ("Trajectories added", "trajectories added to the buffer"),
    "experience/num_duplicates": ("Duplicates not stored", "successes whose tokens were already stored"),
    "experience/num_refreshed": ("Log-probs refreshed", "stored trajectories whose log-probs newer ones replaced"),
    "ratio/replayed_mean": ("Mean ratio of replayed tokens", "mean ratio of replayed tokens, pi_theta / pi_past"),
    "ratio/replayed_max": ("Largest ratio of replayed tokens", "largest such ratio"),
    "ratio/replayed_ess": ("Effective sample size of replayed tokens", "of their ratios over their number, in (0, 1]"),
    "ratio/shaped_mean": ("Mean f(w) of replayed tokens", "mean f(w) of replayed tokens"),
    "ratio/fresh_mean": ("Mean ratio of fresh tokens", "mean ratio of fresh tokens, pi_theta / pi_old"),
    "ratio/fresh_max": ("Largest ratio of fresh tokens", "largest such ratio"),
    "ratio/clip_share": ("Clipped fresh tokens", "share of fresh tokens on which CLIP takes the clipped branch"),
    "replay/gradient_weight_mean": ("Gradient weight of replayed tokens", "mean f'(w) w before the update; fresh: 1"),
    "replay/gradient_weight_p10": ("Gradient weight, 10% quantile", "its 10% quantile"),
    "replay/gradient_weight_median": ("Gradient weight, median", "its median"),
    "replay/gradient_weight_p90": ("Gradient weight, 90% quantile", "its 90% quantile"),
    "replay/gradient_weight_young": ("Gradient weight, younger half", "its mean over replays younger than the median"),
    "replay/gradient_weight_old": ("Gradient weight, older half", "its mean over all older ones"),
    "variance/weight_mean": (
        "Mean trajectory weight, E[W]",
        "mean weight W of replayed trajectories before the update",
    ),
    "variance/weight_max": ("Largest trajectory weight, M", "largest such weight: M"),
    "variance/shaped_weight_mean": (
        "Mean shaped weight, E[f(W)]",
        "mean f(W) of replayed trajectories before the update",
    ),
    "variance/bound_general": ("Variance bound A", "A: bound on the variance of a mixed group's gradient"),
    "variance/bound_general_loose": ("Variance bound A'", "A': as A, with W replaced by its largest value M"),
    "variance/bound_independent": ("Variance bound B", "B: bound for rollouts that are uncorrelated within a group"),
    "variance/bound_independent_loose": ("Variance bound B'", "B': as B, with W replaced by its largest value M"),
    "loss/policy": ("Policy loss", "policy term of the loss"),
    "loss/entropy_bonus": ("Entropy bonus", "entropy bonus: coefficient times mean token entropy"),
    "loss/kl": ("KL penalty", "KL penalty: coefficient times mean k3 estimate"),
    "loss/total": ("Total loss", "loss that was differentiated"),
    "loss/sft": ("SFT loss", "mean -log pi of demonstrations' response tokens, nats (supervised fine-tuning)"),
    "optim/gradient_norm": ("Gradient norm", "norm of the gradient before clipping, mean over updates"),
    "optim/num_skipped": ("Skipped mini-batches", "mini-batches left out, since their loss or gradient was not finite"),
    "optim/num_updated_tokens": ("Updated tokens", "response tokens that went through the backward pass"),
    "generator/log_prob_gap": ("Gap of generator and trainer, mean", "mean |difference| of a token's log-probs, nats"),
    "generator/log_prob_gap_max": ("Gap of generator and trainer, largest", "largest such gap, nats"),
    "generator/weight_mean": (
        "Sampler correction, mean weight",
        "mean weight of fresh tokens that corrects for the sampler, pi_old / mu within its limit",
    ),
    "generator/limited_share": ("Sampler correction, limited tokens", "share of truncated or rejected fresh tokens"),
    "tokens/generated": ("Generated tokens of a step", "response tokens generated this step"),
    "tokens/replayed": ("Replayed tokens of a step", "response tokens of trajectories replayed this step"),
    "tokens/generated_total": ("Generated tokens so far", "response tokens generated so far"),
    "rollouts/fresh_total": ("Fresh rollouts so far", "fresh rollouts so far"),
    "rollouts/failed_groups": (
        "Questions left out after failed rollouts",
        "questions with a rollout that failed twice",
    ),
    "seconds/rollout": ("Time of rollout and grading", "generation and grading"),
    "seconds/score": ("Time of scoring candidates", "scoring of candidates"),
    "seconds/update": ("Time of the update", "forward, backward and optimizer"),
    "seconds/other": ("Other time", "all other work of the step"),
    "seconds/step": ("Time of a step", "whole step"),
    "system/gpu_use": ("GPU use", "mean share of time in which the node's GPUs computed, of samples every 15 s"),
    "system/gpu_memory_gib": ("GPU memory", "largest memory in use on the node's GPUs together, GiB"),
    "system/process_memory_gib": (
        "Process memory",
        "largest resident memory of the worker and the processes that it started, GiB; on verl those of the driver",
    ),
    "system/process_cores": ("Processor use", "mean processor cores that the worker's process kept busy"),
}
"""Every metric key that a step may record: its label, then its meaning and unit. They are declared here alone."""
METRICS = {key: meaning for key, (_, meaning) in _METRICS.items()}
"""What each metric means."""
METRIC_LABELS = {key: label for key, (label, _) in _METRICS.items()}
"""What people call each metric, in lists and over charts."""
SHARES = frozenset({
    "reward/pass_at_1", "reward/pass_at_1_fresh", "reward/pass_at_1_replayed", "reward/pass_at_k", "reward/failed",
    "response/truncated_share", "buffer/ever_solved_share", "replay/share", "ratio/clip_share",
    "generator/limited_share", "system/gpu_use",
})  # fmt: skip
"""Metrics that are shares, in [0, 1]."""


class BufferEventKind(StrEnum):
    """What happened to a question or trajectory of the buffer."""

    INSERTED = "inserted"
    DUPLICATE = "duplicate"
    MOVED = "moved"
    REPLAYED = "replayed"
    RETIRED = "retired"
    EVICTED = "evicted"
    REVIEWED = "reviewed"


class BufferEvent(NamedTuple):
    """One change of the buffer. Buckets are numbers of correct rollouts; None means outside the buffer.

    `trajectory_id` is the trajectory's for inserted, duplicate (the stored one's), replayed and evicted, else None.
    A question leaves the buffer with its last trajectory: an evicted one's `bucket_to` is None then.
    """

    kind: BufferEventKind
    question_index: int
    trajectory_id: int | None
    bucket_from: int | None
    bucket_to: int | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The choice for one drawn question: every candidate with its scores, and those chosen.

    Arrays are aligned, one entry a candidate; `scores` are the estimator's values (lower is chosen; NaN where the
    estimator does not score). `entropies` and `nlls` are means over response tokens under the current policy.
    """

    question_index: int
    bucket: int
    trajectory_ids: Int64Array
    rollout_steps: Int64Array
    num_tokens: Int64Array
    entropies: Float32Array
    nlls: Float32Array
    scores: Float32Array
    chosen: tuple[int, ...]
    """Positions of the chosen candidates in the arrays: one in the paper's method."""


@dataclass(frozen=True, slots=True)
class BucketCount:
    """One bucket at the moment when questions were drawn in a step."""

    bucket: int
    num_questions: int
    probability: float
    num_drawn: int
    overflow: int
    """Draws that Algorithm 2 gave this bucket beyond its size and moved to others."""


@dataclass(slots=True)
class StepReport:
    """Everything one step did. `step` counts from 1; `groups` are fresh and experiential groups after the update."""

    step: int
    is_replay_open: bool
    groups: list[RolloutGroup]
    buckets: list[BucketCount] = field(default_factory=list)
    selections: list[Selection] = field(default_factory=list)
    buffer_events: list[BufferEvent] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    drawn_questions: set[int] = field(default_factory=set)
    """Questions that were drawn for replay, without those that had a group in the step before they were drawn."""
    random_state: Mapping[str, Any] | None = None
    """State of the random generator (PCG64) before the step is planned."""
    mini_batches: list[SeenMiniBatch] = field(default_factory=list)
    """What the update saw, of the mini-batches that it did not skip, from engines that tell."""
