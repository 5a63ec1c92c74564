"""Every hyperparameter of ExGRPO: meaning, paper symbol, unit, range and where its default comes from."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from exgrpo_core.errors import FieldError, Mistake

GAUSSIAN = "gaussian"
"""The paper's question selection: Algorithm 2 with Gaussian bucket weights."""
LOWEST_ENTROPY = "lowest_entropy"
"""The paper's trajectory selection."""
POLICY_SHAPING = "policy_shaping"
"""The paper's off-policy correction."""
CLIP = "clip"
"""PPO's clipped objective (Eq. CLIP)."""
MAX_SEED = 2**53 - 1
"""The largest that browsers, torch and databases all keep exactly."""


def clip_limits(epsilon: float, epsilon_high: float | None) -> tuple[float, float]:
    """Return the lowest and the highest ratio of Eq. CLIP; the upper epsilon may differ (clip-higher: DAPO, Eq. 10)."""
    return 1.0 - epsilon, 1.0 + (epsilon if epsilon_high is None else epsilon_high)


class LossAggregation(StrEnum):
    """How token terms of one trajectory add up."""

    MAX_LENGTH = "max_length"
    """Sum over tokens / max response length (Dr.GRPO, the paper's choice)."""
    TOKEN_MEAN = "token_mean"
    """Mean over the trajectory's tokens (GRPO, Eq. 3's 1/|o|)."""


class Clipping(StrEnum):
    """Where Eq. CLIP is applied to fresh trajectories."""

    BEFORE_START = "before_start"
    """Until the delayed start opens; none after it (the paper's table of hyperparameters)."""
    ALWAYS = "always"
    NEVER = "never"


class SamplerCorrection(StrEnum):
    """What is done where the sampler's probabilities differ from the training model's (verl on vLLM)."""

    NONE = "none"
    """Nothing, as in the paper; the gap is a metric."""
    TRUNCATE = "truncate"
    """Fresh tokens weigh pi_old / mu, at most `sampler_ratio_limit` (verl's `rollout_is: token`)."""
    REJECT = "reject"
    """They weigh pi_old / mu, and 0 outside of 1 / limit to the limit (with verl's `rollout_rs: token`)."""


class RewardKind(StrEnum):
    """What a reward means."""

    BINARY = "binary"
    CONTINUOUS = "continuous"


class ZeroCorrectRule(StrEnum):
    """What happens to a buffered question that is later solved 0 of K times."""

    BUCKET_ZERO = "bucket_zero"
    """It moves to bucket 0, which is never drawn (Algorithm 2 runs k = 1..K)."""
    KEEP_BUCKET = "keep_bucket"
    """It keeps its bucket (the authors' code)."""


class LogProbRefresh(StrEnum):
    """When the stored log-probs pi_past of a trajectory are replaced by newer ones."""

    NEVER = "never"
    """They stay those of the policy that wrote it first (the paper)."""
    ON_DUPLICATE = "on_duplicate"
    """When the same tokens are generated again."""
    ON_REPLAY = "on_replay"
    """When it is replayed, by those of the policy before that update."""


class RetiredRule(StrEnum):
    """What happens to retired questions."""

    PERMANENT = "permanent"
    """Never drawn again as fresh, unless nothing else is left."""
    REDRAW = "redraw"
    """Out of the buffer but still in the fresh stream."""
    NEVER = "never"
    """No question retires: solved ones stay in the buffer and in the fresh stream (other methods than the paper's)."""
    ALWAYS = "always"
    """As permanent, in on-policy training too (a control: otherwise an on-policy run draws solved questions again)."""


@dataclass(frozen=True, slots=True)
class CorrectnessRange:
    """A range of correctness rates for masked GRPO (Eq. MaskGRPO), in [0, 1]."""

    low: float
    high: float
    includes_low: bool
    includes_high: bool

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= self.high <= 1.0:
            raise ValueError(f"expected 0 <= low <= high <= 1, got low={self.low}, high={self.high}")


MAX_ROLLOUTS = 1024
"""Most rollouts per question: pages draw a bar for each number of correct ones."""
EASY = CorrectnessRange(0.75, 1.0, includes_low=True, includes_high=False)
MEDIUM = CorrectnessRange(0.25, 0.75, includes_low=False, includes_high=True)
HARD = CorrectnessRange(0.0, 0.25, includes_low=False, includes_high=True)


@dataclass(frozen=True, slots=True)
class ExGRPOConfig:
    """Hyperparameters of one run; the defaults are the paper's (section 5.1 and its table of hyperparameters)."""

    batch_size: int = 128
    """B: questions per step. At least 1."""
    mini_batch_size: int = 64
    """Questions per optimizer step; divides B."""
    rollouts_per_question: int = 8
    """K: trajectories in a group. 2 to 1,024."""
    max_prompt_tokens: int = 1024
    """Longest prompt, in tokens; a longer one is refused before training."""
    max_response_tokens: int = 8192
    """Longest response, in tokens; also the divisor of `max_length` loss aggregation."""
    temperature: float = 1.0
    """Sampling temperature of rollouts; log-probs are at this temperature. Above 0."""

    experience_ratio: float = 0.5
    """rho: largest share of experiential groups in a step, in [0, 1]; 0 is on-policy training."""
    bucket_center: float = 0.5
    """mu: correctness rate at which bucket weights peak, in [0, 1]."""
    bucket_spread: float = 1.0
    """sigma: standard deviation of the bucket weights in units of correctness rate. Above 0 (authors' code: 1/8)."""
    question_selection: str = GAUSSIAN
    """Which questions are replayed: a replay method's name, or `module:Class` where this machine allows it."""
    trajectory_selection: str = LOWEST_ENTROPY
    """Which stored trajectory is replayed: a trajectory selector's name, or `module:Class`."""
    off_policy_correction: str = POLICY_SHAPING
    """How much a replayed token counts: an off-policy correction's name, or `module:Class`."""
    strategy_settings: dict[str, float] = field(default_factory=dict)
    """Numbers that only the chosen strategies know, each in its range."""
    replays_per_group: int = 1
    """Stored trajectories that an experiential group replays, at most; 1 in the paper. At least 1."""
    candidate_budget: int | None = None
    """Most trajectories of a question to score per step, at least 2: new ones, then lowest entropy. None scores all."""
    buffer_capacity: int | None = None
    """Most trajectories in the replay buffer; the oldest groups leave first. At least K; None is no limit."""
    buffer_age: int | None = None
    """Most steps from a trajectory's rollout or refresh to its last replay. At least 1; None is no limit."""
    recent_steps: int = 10
    """Age limit of `recent` question selection, in steps. At least 1."""
    start_pass_rate: float | None = 0.35
    """Delayed start: collection and replay begin when Pass@1 of one batch is above this, in [0, 1]. None: at once."""
    zero_correct: ZeroCorrectRule = ZeroCorrectRule.BUCKET_ZERO
    """Where a buffered question goes when it is solved 0 of K times."""
    refresh: LogProbRefresh = LogProbRefresh.NEVER
    """When stored log-probs, the denominators of replay's ratios, are replaced by newer ones."""
    retired: RetiredRule = RetiredRule.PERMANENT
    """Whether solved questions may come back as fresh ones."""
    review_interval: int | None = None
    """Steps between reviews of retired questions; None is no review (paper's ablation: 25)."""
    review_fraction: float = 0.1
    """Share of the retired questions that a review puts in place of fresh questions, in (0, 1]."""
    reward_kind: RewardKind = RewardKind.BINARY
    """Binary correctness or a reward model's score."""
    spread_epsilon: float = 1e-6
    """epsilon of the min-max scaling of within-question reward spread (continuous rewards). Above 0."""
    uses_external_experience: bool = False
    """As in LUFFY: a fresh group replays its question's trajectory of the file, with behavior probability 1."""

    normalize_by_std: bool = False
    """Divide advantages by the group's standard deviation (GRPO); off is Dr.GRPO."""
    loss_aggregation: LossAggregation = LossAggregation.MAX_LENGTH
    """How token terms of a trajectory add up."""
    policy_loss_factor: float = 1.0
    """Factor on the policy term; the paper presets use 64, the authors' scale per rank. Above 0."""
    clipping: Clipping = Clipping.BEFORE_START
    """Where Eq. CLIP applies to fresh trajectories."""
    clip_epsilon: float = 0.2
    """epsilon of Eq. CLIP, in (0, 1)."""
    clip_epsilon_high: float | None = None
    """Upper epsilon where it differs from the lower one: clip-higher (DAPO: 0.28). Above 0 or null."""
    fresh_objective: str = CLIP
    """Objective of fresh tokens when `clipping` applies: `clip`, or the name of an off-policy correction."""
    shapes_policy: bool = True
    """f(w) = w / (w + beta) on replayed tokens; off leaves w unclipped."""
    shaping_beta: float = 0.1
    """beta of policy shaping. Above 0."""
    corrects_importance: bool = True
    """Compute w* with the probabilities of the policy that wrote the trajectory. Off: with the current old ones."""
    sampler_correction: SamplerCorrection = SamplerCorrection.NONE
    """How a difference between sampler and trainer is corrected, for fresh tokens and for stored trajectories."""
    sampler_ratio_limit: float = 2.0
    """Limit of pi_old / mu. Above 1; verl's default."""
    rollouts_ahead: bool = False
    """Generate the next step's rollouts during the update (one step off-policy), on verl with GPUs for generation."""
    mask_range: CorrectnessRange | None = None
    """Masked GRPO: groups outside this range of correctness rates get no policy gradient."""
    entropy_coefficient: float = 0.001
    """Weight of the entropy bonus, a token mean over the mini-batch. At least 0."""
    kl_coefficient: float = 0.0
    """Weight of the KL penalty towards the initial policy (k3 estimator). At least 0."""
    seed: int = 0
    """Seed of question order, bucket draws and trajectory draws."""

    def __post_init__(self) -> None:
        mistakes = [
            Mistake(f"expected {expected}, got {getattr(self, field_name)}.", field_name)
            for is_good, field_name, expected in self._rules()
            if not is_good
        ]
        if mistakes:
            raise FieldError("\n".join(mistakes), mistakes=mistakes)

    def _rules(self) -> list[tuple[bool, str, str]]:
        """Every rule as (is met, field, what was expected)."""
        is_continuous = self.reward_kind is RewardKind.CONTINUOUS
        return [
            (self.batch_size >= 1, "batch_size", "at least 1 question"),
            (
                1 <= self.mini_batch_size <= self.batch_size and self.batch_size % self.mini_batch_size == 0,
                "mini_batch_size",
                f"a divisor of batch_size ({self.batch_size})",
            ),
            (
                2 <= self.rollouts_per_question <= MAX_ROLLOUTS,
                "rollouts_per_question",
                f"2 to {MAX_ROLLOUTS:,}, since a group compares rollouts, and each number of correct ones is a bucket",
            ),
            (self.max_prompt_tokens >= 1, "max_prompt_tokens", "at least 1 token"),
            (self.max_response_tokens >= 1, "max_response_tokens", "at least 1 token"),
            (0.0 < self.temperature < math.inf, "temperature", "a finite number above 0"),
            (0.0 <= self.experience_ratio <= 1.0, "experience_ratio", "a share in [0, 1]"),
            (self.replays_per_group >= 1, "replays_per_group", "at least 1 trajectory"),
            (0.0 <= self.bucket_center <= 1.0, "bucket_center", "a correctness rate in [0, 1]"),
            (0.0 < self.bucket_spread < math.inf, "bucket_spread", "a finite number above 0"),
            (self.candidate_budget is None or self.candidate_budget >= 2, "candidate_budget", "at least 2 or null"),
            (
                self.candidate_budget is None or self.trajectory_selection == LOWEST_ENTROPY,
                "candidate_budget",
                "null, since only trajectory_selection: lowest_entropy can rank candidates before scoring them",
            ),
            (self.recent_steps >= 1, "recent_steps", "at least 1 step"),
            (
                self.buffer_capacity is None or self.buffer_capacity >= self.rollouts_per_question,
                "buffer_capacity",
                f"null or at least {self.rollouts_per_question}, the trajectories of one group (rollouts_per_question)",
            ),
            (self.buffer_age is None or self.buffer_age >= 1, "buffer_age", "at least 1 step or null"),
            (
                not (self.limits_buffer and self.rollouts_ahead),
                "rollouts_ahead",
                "false, since a step that is planned ahead could replay what buffer_capacity or buffer_age removes",
            ),
            (
                self.start_pass_rate is None or 0.0 <= self.start_pass_rate <= 1.0,
                "start_pass_rate",
                "a rate in [0, 1] or null",
            ),
            (
                not (is_continuous and self.start_pass_rate is not None),
                "start_pass_rate",
                "null, since continuous rewards have no Pass@1",
            ),
            (
                not (is_continuous and self.mask_range is not None),
                "mask_range",
                "null, since continuous rewards have no correctness rate",
            ),
            (
                not (self.mask_range is not None and self.experience_ratio > 0.0),
                "mask_range",
                "null, since masked GRPO is on-policy (set experience_ratio to 0 to use it)",
            ),
            (self.review_interval is None or self.review_interval >= 1, "review_interval", "at least 1 step or null"),
            (
                not (self.review_interval is not None and self.retired is RetiredRule.REDRAW),
                "review_interval",
                "null, since redrawn retired questions come back anyway",
            ),
            (
                not (self.review_interval is not None and self.experience_ratio == 0.0),
                "review_interval",
                "null, since it is part of replay (set experience_ratio above 0)",
            ),
            (0.0 < self.review_fraction <= 1.0, "review_fraction", "a share in (0, 1]"),
            (0.0 < self.spread_epsilon < math.inf, "spread_epsilon", "a finite number above 0"),
            (0.0 < self.policy_loss_factor < math.inf, "policy_loss_factor", "a finite number above 0"),
            (0.0 < self.clip_epsilon < 1.0, "clip_epsilon", "a number in (0, 1)"),
            (
                self.clip_epsilon_high is None or 0.0 < self.clip_epsilon_high < math.inf,
                "clip_epsilon_high",
                "a finite number above 0 or null",
            ),
            (1.0 < self.sampler_ratio_limit < math.inf, "sampler_ratio_limit", "a finite number above 1"),
            (
                not (self.rollouts_ahead and self.sampler_correction is SamplerCorrection.NONE),
                "sampler_correction",
                "truncate or reject, since rollouts_ahead trains on rollouts of the policy before",
            ),
            (0.0 < self.shaping_beta < math.inf, "shaping_beta", "a finite number above 0"),
            (0.0 <= self.entropy_coefficient < math.inf, "entropy_coefficient", "a finite number of at least 0"),
            (0.0 <= self.kl_coefficient < math.inf, "kl_coefficient", "a finite number of at least 0"),
            (0 <= self.seed <= MAX_SEED, "seed", f"a whole number from 0 to {MAX_SEED}"),
        ]

    @property
    def replays_experience(self) -> bool:
        """Whether the run collects and replays its own experience."""
        return self.experience_ratio > 0.0

    @property
    def limits_buffer(self) -> bool:
        """Whether trajectories leave the replay buffer by number or by age."""
        return self.buffer_capacity is not None or self.buffer_age is not None

    @property
    def num_experiential_wanted(self) -> int:
        """floor(rho B): experiential groups per step when the buffer can fill them."""
        # 0.29 * 100 is 28.999... in binary: the epsilon keeps the floor of the decimal number.
        return math.floor(self.experience_ratio * self.batch_size + 1e-9)

    def clips_fresh(self, is_replay_open: bool) -> bool:
        """Return whether fresh tokens are clipped in a step before or after the delayed start opened."""
        return self.clipping is Clipping.ALWAYS or (
            self.clipping is Clipping.BEFORE_START and not (is_replay_open and self.replays_experience)
        )
