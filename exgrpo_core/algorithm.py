"""Algorithm 1 of the paper, top to bottom: one step of ExGRPO on any engine.

Two things differ from the printed listing; neither changes a result. Candidates are scored after the rollouts, not
before: the policy does not change in between, and generators can sleep while they are scored. Experience is collected
after the policy update, since neither reads the other.

With `rollouts_ahead`, which the paper does not have, results differ: a step's questions are drawn and its rollouts
begun in the step before, once that has its own rollouts. The policy that writes them lacks one step's update, the
buffer one step's experience.
"""

from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.engine import PolicyEngine
from exgrpo_core.policy_optimization.importance import sampler_metrics
from exgrpo_core.policy_optimization.mixed_batch import (
    assign_advantages,
    build_mini_batches,
    trained_groups,
    weigh_tokens,
)
from exgrpo_core.policy_optimization.replay_effects import gradient_weight_metrics, variance_metrics
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step.collection import collect_experience
from exgrpo_core.step.metrics import PhaseClock, batch_pass_rate, mini_batch_metrics, step_metrics
from exgrpo_core.step.rollouts import StepRollouts
from exgrpo_core.step.selection import choose_replays, list_candidates, score_candidates
from exgrpo_core.step_report import StepReport


def exgrpo_step(state: ExGRPOState, engine: PolicyEngine, config: ExGRPOConfig, *, is_last: bool = False) -> StepReport:
    """Do one training step and return what happened (Algorithm 1; plain on-policy training where rho is 0).

    After the last one, nothing is generated ahead.

    Raises:
        ValueError: The engine broke its contract (wrong number of rollouts, misaligned arrays).
    """
    clock = PhaseClock()
    state.step += 1

    # Phase 1, experience management: lines 4 to 8 and 17 on the buffer as it is at the start of the step.
    # `QuestionSampler.plan` is the paper's plan; other methods in `strategies` have their own.
    step = state.take_planned() or StepRollouts(state, config, state.step)
    report = step.report

    # Line 23: K rollouts of fresh questions, K-1 where a trajectory will be replayed.
    with clock.phase("rollout"):
        step.roll_out(engine)
        if config.rollouts_ahead and not is_last:
            step.begin_next(engine)
    state.number_trajectories(report.groups)

    # Lines 9 to 15: score every candidate under the current policy, choose o*.
    candidates = list_candidates(state, config, report.groups)
    with clock.phase("score"):
        scores = score_candidates(engine, report.groups, candidates)
    choose_replays(state, report, candidates, scores)

    # Phase 2, experiential policy optimization: Eq. ExGRPO.
    strategies = state.strategies
    objective = strategies.objective if report.is_replay_open else strategies.objective_before_start
    assign_advantages(report.groups, config)
    weigh_tokens(report.groups, config, objective.correction)
    trained = trained_groups(report.groups, config.batch_size)
    mini_batches = build_mini_batches(trained, config, state.rng)
    with clock.phase("update"):
        update_metrics = engine.update(mini_batches, objective)
    report.mini_batches = [item.seen for item in mini_batches if item.seen is not None]

    # Lines 24 to 30 and 33: collect successes, retire solved questions.
    collect_experience(state, config, report)
    state.delayed_start.observe(batch_pass_rate(report.groups))
    report.metrics |= step_metrics(state, config, report) | mini_batch_metrics(mini_batches)
    report.metrics |= variance_metrics(trained, config) | gradient_weight_metrics(trained, config, objective.correction)
    report.metrics |= sampler_metrics(report.groups, config)
    report.metrics |= update_metrics | clock.seconds()
    return report
