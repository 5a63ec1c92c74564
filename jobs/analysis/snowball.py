"""How code and lucky hits spread over a run: their share of rollouts, of the buffer and of replays, step by step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """What one step did: ids of its fresh trajectories, the correct ones among them, and of those replayed.

    `inserted` are (question, trajectory) that entered the buffer; `retired` the questions that left it.
    """

    step: int
    fresh: Sequence[int]
    correct: Sequence[int]
    replayed: Sequence[int]
    inserted: Sequence[tuple[int, int]]
    retired: Sequence[int]


@dataclass(frozen=True, slots=True)
class ShareLine:
    """Shares of marked trajectories in one step; None where there was nothing to take a share of."""

    step: int
    rollouts: float | None
    successes: float | None
    buffer: float | None
    replays: float | None


@dataclass(slots=True)
class _Buffer:
    members: dict[int, set[int]] = field(default_factory=dict)
    num_known: int = 0
    num_marked: int = 0

    def change(self, step: TimelineStep, marks: Mapping[int, bool]) -> None:
        for question_index, trajectory_id in step.inserted:
            stored = self.members.setdefault(question_index, set())
            if trajectory_id in marks and trajectory_id not in stored:
                stored.add(trajectory_id)
                self.num_known += 1
                self.num_marked += marks[trajectory_id]
        for question_index in step.retired:
            left = self.members.pop(question_index, set())
            self.num_known -= len(left)
            self.num_marked -= sum(marks[trajectory_id] for trajectory_id in left)

    @property
    def share(self) -> float | None:
        return self.num_marked / self.num_known if self.num_known else None


def share_timeline(steps: Iterable[TimelineStep], marks: Mapping[int, bool]) -> list[ShareLine]:
    """Return the share of marked trajectories step by step; the buffer's is that after the step.

    `marks` says of each known trajectory whether it has what is looked for: code, or an invalid chain of thought.
    Trajectories that it does not name (of a file, or without a verdict) are left out of every share.
    """
    buffer = _Buffer()
    lines = []
    for step in steps:
        buffer.change(step, marks)
        parts = (step.fresh, step.correct, step.replayed)
        rollouts, successes, replays = (_share(part, marks) for part in parts)
        lines.append(ShareLine(step.step, rollouts, successes, buffer.share, replays))
    return lines


def _share(trajectory_ids: Sequence[int], marks: Mapping[int, bool]) -> float | None:
    known = [marks[trajectory_id] for trajectory_id in trajectory_ids if trajectory_id in marks]
    return sum(known) / len(known) if known else None
