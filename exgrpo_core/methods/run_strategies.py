"""The strategies of one run, built once from its configuration, and the objective with its corrections."""

from dataclasses import dataclass

from exgrpo_core.config import CLIP, ExGRPOConfig, LossAggregation
from exgrpo_core.methods.loading import CORRECTION, FRESH, QUESTIONS, TRAJECTORIES, build_part
from exgrpo_core.methods.protocols import OffPolicyCorrection, QuestionSampler, TrajectorySelector


@dataclass(frozen=True, slots=True)
class ObjectiveSettings:
    """What the loss needs of a configuration; `clips_fresh` follows the delayed start.

    `correction` weighs replayed tokens, `fresh_objective` fresh ones where `clips_fresh`: None is Eq. CLIP.
    """

    clips_fresh: bool
    clip_epsilon: float
    clip_epsilon_high: float | None
    aggregation: LossAggregation
    max_response_tokens: int
    policy_loss_factor: float
    entropy_coefficient: float
    kl_coefficient: float
    correction: OffPolicyCorrection
    fresh_objective: OffPolicyCorrection | None


@dataclass(frozen=True, slots=True)
class RunStrategies:
    """What chooses questions and trajectories, and the objective before and after the delayed start opens."""

    question_sampler: QuestionSampler
    trajectory_selector: TrajectorySelector
    objective_before_start: ObjectiveSettings
    objective: ObjectiveSettings


def build_strategies(config: ExGRPOConfig) -> RunStrategies:
    """Return the strategies that a configuration names.

    Raises:
        InputError: One cannot be built; see `build_part`.
    """
    return RunStrategies(
        build_part(QUESTIONS, config),
        build_part(TRAJECTORIES, config),
        build_objective(config, is_replay_open=False),
        build_objective(config, is_replay_open=True),
    )


def build_objective(config: ExGRPOConfig, is_replay_open: bool) -> ObjectiveSettings:
    """Return the objective of steps before or after the delayed start opened."""
    return ObjectiveSettings(
        clips_fresh=config.clips_fresh(is_replay_open),
        clip_epsilon=config.clip_epsilon,
        clip_epsilon_high=config.clip_epsilon_high,
        aggregation=config.loss_aggregation,
        max_response_tokens=config.max_response_tokens,
        policy_loss_factor=config.policy_loss_factor,
        entropy_coefficient=config.entropy_coefficient,
        kl_coefficient=config.kl_coefficient,
        correction=build_part(CORRECTION, config),
        fresh_objective=None if config.fresh_objective == CLIP else build_part(FRESH, config),
    )
