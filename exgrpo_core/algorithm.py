"""Algorithm 1 of the paper, top to bottom: one step of ExGRPO on any engine.

Two things differ from the printed listing; neither changes a result. Candidates are scored after the rollouts, not
before: the policy does not change in between, and generators can sleep while they are scored. Experience is collected
after the policy update, since neither reads the other.
"""

from collections.abc import Collection

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.methods.columns import QuestionColumns
from exgrpo_core.methods.loading import build_sampler
from exgrpo_core.methods.protocols import Placement, QuestionSampler
from exgrpo_core.policy_optimization.advantages import assign_advantages
from exgrpo_core.policy_optimization.batch_check import check_mini_batches
from exgrpo_core.policy_optimization.gradient_weight import gradient_weight_metrics
from exgrpo_core.policy_optimization.mixed_batch import build_mini_batches
from exgrpo_core.policy_optimization.sampler_correction import sampler_metrics
from exgrpo_core.policy_optimization.variance import variance_metrics
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step.metrics import PhaseClock, batch_pass_rate, mini_batch_metrics, step_metrics
from exgrpo_core.step.rebucketing import collect_experience
from exgrpo_core.step.rollouts import draw_after_rollouts, draw_replays, place_groups, roll_out, trained_groups
from exgrpo_core.step.selection import choose_replays, list_candidates, score_candidates
from exgrpo_core.step_report import BufferEvent, BufferEventKind, StepReport


def exgrpo_step(state: ExGRPOState, engine: PolicyEngine, config: ExGRPOConfig) -> StepReport:
    """Do one training step and return what happened (Algorithm 1; plain on-policy training where rho is 0).

    Raises:
        ValueError: The engine broke its contract (wrong number of rollouts, misaligned arrays).
    """
    clock = PhaseClock()
    state.step += 1
    is_replay_open = state.delayed_start.is_open
    report = StepReport(step=state.step, is_replay_open=is_replay_open, groups=[])

    # Phase 1, experience management: lines 4 to 8 and 16 on the buffer as it is at the start of the step.
    sampler = build_sampler(config)
    drawn = _draw_experience(state, config, sampler, report)
    fresh = _draw_fresh(state, config, drawn, report)

    # Line 23: K rollouts of fresh questions, K-1 where a trajectory will be replayed.
    with clock.phase("rollout"):
        fresh_groups, drawn_groups = roll_out(state, engine, config, sampler, fresh, drawn, report)
    state.number_trajectories([*fresh_groups, *drawn_groups])
    drawn |= draw_after_rollouts(state, config, sampler, fresh_groups, report)
    report.groups = place_groups(state, sampler, fresh_groups, drawn_groups, drawn)

    # Lines 9 to 15: score every candidate under the current policy, choose o*.
    candidates = list_candidates(state, config, sampler, report.groups, drawn)
    with clock.phase("score"):
        scores = score_candidates(engine, report.groups, candidates)
    choose_replays(state, config, report, candidates, scores, drawn)

    # Phase 2, experiential policy optimization: Eq. ExGRPO.
    assign_advantages(report.groups, config)
    trained = trained_groups(config, sampler, report.groups)
    mini_batches = build_mini_batches(trained, config, state.rng)
    check_mini_batches(mini_batches, config)
    with clock.phase("update"):
        update_metrics = engine.update(mini_batches, config.objective_settings(is_replay_open))

    # Lines 24 to 30 and 33: collect successes, retire solved questions.
    collect_experience(state, config, report)
    state.delayed_start.observe(batch_pass_rate(report.groups))
    if config.replays_experience:
        report.stored = state.commit(report)
    report.metrics |= step_metrics(state, config, report) | mini_batch_metrics(mini_batches)
    report.metrics |= variance_metrics(trained, config) | gradient_weight_metrics(trained, config)
    report.metrics |= sampler_metrics(report.groups, config)
    report.metrics |= update_metrics | clock.seconds()
    return report


def _draw_experience(
    state: ExGRPOState, config: ExGRPOConfig, sampler: QuestionSampler, report: StepReport
) -> dict[int, float]:
    """Lines 5 to 8: n = min(floor(rho B), |E|) questions; none before the delayed start."""
    is_drawn_now = sampler.placement in (Placement.REPLACE, Placement.GROUP)
    if not (config.replays_experience and report.is_replay_open and is_drawn_now):
        return {}
    columns = QuestionColumns(state.replay_buffer, state.step)
    return draw_replays(state, sampler, columns, config.num_experiential_wanted, report)


def _draw_fresh(state: ExGRPOState, config: ExGRPOConfig, drawn: Collection[int], report: StepReport) -> list[int]:
    """Line 17: B - n fresh questions, never one that is replayed in this step; retired ones as configured."""
    num_fresh = config.batch_size - len(drawn)
    reviewed = _draw_review(state, config, num_fresh, report)
    draw = state.stream.draw(num_fresh - len(reviewed), state.skipped_questions(config), {*drawn, *reviewed})
    if draw.ignored_skip:
        report.notices.append("Every question left is retired: fresh questions are drawn from all of the data set.")
    return reviewed + draw.question_indices


def _draw_review(state: ExGRPOState, config: ExGRPOConfig, num_fresh: int, report: StepReport) -> list[int]:
    """Retired review: every `review_interval` steps a share of S takes fresh slots."""
    if config.review_interval is None or state.step % config.review_interval != 0:
        return []
    retired = state.retired_set.sorted_members()
    num_reviewed = min(num_fresh, round(config.review_fraction * retired.size))
    reviewed = [int(index) for index in state.rng.choice(retired, num_reviewed, replace=False)]
    report.buffer_events += [BufferEvent(BufferEventKind.REVIEWED, index, None, None, None) for index in reviewed]
    return reviewed
