"""Made-up step reports, whole in every field, for tests of what is recorded and shown."""

import numpy as np

from exgrpo_core.step_report import BucketCount, BufferEvent, BufferEventKind, Selection, StepReport
from exgrpo_core.types import Experience, Question, Replay, RolloutGroup, Trajectory

NUM_QUESTIONS = 16


def make_questions(num_questions=NUM_QUESTIONS):
    return [
        Question(
            index, f"id{index:04d}", np.array([1, 2, index], dtype=np.int32), f"Q{index}: 1+{index}=?", str(index + 1),
            {"operations": 3},
        )
        for index in range(num_questions)
    ]  # fmt: skip


def make_trajectory(index, trajectory_id, step, rng, num_tokens=12):
    length = int(rng.integers(1, num_tokens + 1))
    reward = float(rng.random() < 0.5)
    return Trajectory(
        question_index=index,
        token_ids=rng.integers(0, 50, length).astype(np.int32),
        log_probs=-rng.random(length).astype(np.float32),
        reward=reward,
        text=f"trajectory number{trajectory_id} of step{step} says \\boxed{{{index}}}",
        verdict="correct" if reward else "wrong",
        is_valid=bool(rng.random() < 0.5),
        has_code=None,
        is_truncated=length == num_tokens,
        entropies=rng.random(length).astype(np.float32),
        trajectory_id=trajectory_id,
        rollout_step=step,
    )


def make_replay(trajectory, rng):
    length = trajectory.token_ids.size
    number, rollout_step = trajectory.trajectory_id, max(trajectory.rollout_step - 1, 0)
    stored = Experience(
        number, number, trajectory.question_index, rollout_step,
        1.0, trajectory.token_ids, trajectory.log_probs,
    )  # fmt: skip
    return Replay(stored, -rng.random(length).astype(np.float32), rng.random(length).astype(np.float32))


def make_report(step, seed=0, num_groups=4, num_rollouts=3, num_tokens=12):
    """Return a report; the second half of the groups is experiential. Equal arguments give equal reports."""
    rng = np.random.default_rng([seed, step])
    questions = make_questions()
    first_id = (step - 1) * num_groups * num_rollouts
    groups = []
    for item in range(num_groups):
        question = questions[(step * num_groups + item) % NUM_QUESTIONS]
        ids = range(first_id + item * num_rollouts, first_id + (item + 1) * num_rollouts)
        trajectories = [make_trajectory(question.index, number, step, rng, num_tokens) for number in ids]
        has_replay = step > 1 and item >= num_groups // 2
        replays = (make_replay(trajectories.pop(), rng),) if has_replay else ()
        advantages = rng.normal(size=num_rollouts).astype(np.float32)
        groups.append(RolloutGroup(question, trajectories, replays, advantages))
    drawn = [group.replays[0] for group in groups if group.replays]
    rewards = [trajectory.reward for group in groups for trajectory in group.trajectories]
    return StepReport(
        step=step,
        is_replay_open=step > 1,
        groups=groups,
        buckets=[BucketCount(bucket, step + bucket, 0.25, bucket % 2, 0) for bucket in range(1, 4)],
        selections=[make_selection(replay, rng) for replay in drawn],
        buffer_events=make_changes(step, groups[0].question.index, drawn),
        metrics={
            "reward/mean": float(np.mean(rewards)), "reward/pass_at_1": float(np.mean(rewards)), "policy/entropy": 0.5,
            "buffer/num_questions": 3.0, "buffer/num_retired": 0.0, "seconds/step": 0.25,
        },
        notices=["a notice"] if step == 3 else [],
    )  # fmt: skip


def make_selection(replay, rng):
    chosen = replay.experience.trajectory_id
    return Selection(
        question_index=replay.experience.question_index,
        bucket=2,
        trajectory_ids=np.array([chosen + 1000, chosen]),
        rollout_steps=np.array([0, replay.experience.rollout_step]),
        num_tokens=np.array([7, replay.experience.token_ids.size]),
        entropies=rng.random(2).astype(np.float32),
        nlls=rng.random(2).astype(np.float32),
        scores=np.array([np.nan, 0.5], dtype=np.float32),
        chosen=(1,),
    )


def make_changes(step, question_index, drawn):
    changes = [
        BufferEvent(BufferEventKind.REPLAYED, replay.experience.question_index, replay.experience.trajectory_id, 2, 2)
        for replay in drawn
    ]
    changes.append(BufferEvent(BufferEventKind.MOVED, question_index, None, None, 1 + step % 3))
    changes.append(BufferEvent(BufferEventKind.INSERTED, question_index, step, 1 + step % 3, 1 + step % 3))
    if step % 4 == 0:
        changes.append(BufferEvent(BufferEventKind.RETIRED, question_index, None, 1 + step % 3, None))
    return changes
