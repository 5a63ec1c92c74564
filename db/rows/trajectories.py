"""Plain rows of the trajectories page: a list with the start of each text, and the history of one trajectory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from exgrpo.db.rows.sort_order import SortOrder

MAX_MEMBERS = 64
"""Of a larger group only the first are read, since each comes with its text."""
MAX_CHARACTERS = 100_000
"""A page shows at most this many of a text, from its beginning."""


@dataclass(frozen=True, slots=True)
class TrajectoryFacets:
    """Which trajectories to list; None leaves a condition out, and every given one must hold."""

    run_id: str | None = None
    words: str = ""
    """Every word must occur in the response; `role:` words are those of `exgrpo.db.rows.role_words`."""
    tool: str | None = None
    """The name of a tool that it uses."""
    step_from: int | None = None
    step_to: int | None = None
    question_index: int | None = None
    """A question of the run; needs `run_id`."""
    bucket: int | None = None
    """The bucket of its question when the trajectory was stored: correct rollouts of K."""
    is_correct: bool | None = None
    verdict: str | None = None
    is_replayed: bool | None = None
    """Whether it was ever replayed."""
    has_code: bool | None = None
    is_valid: bool | None = None
    """Whether its chain of thought is valid, by the task's oracle."""
    entropy_from: float | None = None
    entropy_to: float | None = None
    """Bounds of the mean token entropy at rollout, nats."""
    reward_from: float | None = None
    reward_to: float | None = None
    tokens_from: int | None = None
    tokens_to: int | None = None
    has_tool_errors: bool | None = None
    turns_from: int | None = None
    turns_to: int | None = None

    @property
    def searched(self) -> str:
        """The search for words and tool, empty without either."""
        return f"{self.words} tool:{self.tool}".strip() if self.tool else self.words.strip()


class TrajectorySortKey(StrEnum):
    """What a list of trajectories may be sorted by."""

    STEP = "step"
    QUESTION = "question"
    REWARD = "reward"
    TOKENS = "tokens"
    ENTROPY = "entropy"
    REPLAYS = "replays"
    TURNS = "turns"


TrajectoryOrder = SortOrder[TrajectorySortKey]


@dataclass(frozen=True, slots=True)
class TrajectoryRow:
    """One fresh trajectory of a run, without its tokens: what queries, frames and downloads have of it.

    A list has one line of `prompt` and `text`, and no `messages`. Turns, calls, errors, tools and messages are those of
    conversations.
    """

    trajectory_key: int
    """The next page of a list starts after the last one's."""
    run_id: str
    run_name: str
    trajectory_id: int
    attempt: int
    step: int
    question_id: str
    question_index: int
    group_position: int
    group_slot: int
    reward: float
    verdict: str
    is_valid: bool | None
    has_code: bool | None
    code_rules: int | None
    """A bit for each rule that finds code, the first for R1."""
    has_python_block: bool | None
    is_truncated: bool | None
    num_tokens: int
    mean_entropy: float
    mean_log_prob: float
    advantage: float
    correctness_rate: float | None
    """Of its group's fresh rollouts."""
    bucket: int | None
    """Of its question when it was stored."""
    num_replays: int
    num_turns: int | None
    num_tool_calls: int | None
    num_tool_errors: int | None
    tools: list[str] | None
    tokens_by_role: Mapping[str, int] | None
    recorded_id: str | None
    """What the program that recorded it calls it."""
    file: str
    """Where in the run's folder its tokens are: `FILE@BYTE`."""
    extra: dict[str, Any] | None
    """What else was recorded of it, by name."""
    prompt: str
    """Its question, empty where that is not recorded."""
    text: str
    messages: list[dict[str, Any]] | None


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A training question of a run."""

    question_index: int
    question_id: str
    prompt_text: str
    answer: str
    details: Mapping[str, Any]
    """What its task recorded of it, such as the modulus of a chain."""


class QuestionSortKey(StrEnum):
    """What a list of questions may be sorted by."""

    QUESTION = "question"
    STEPS = "steps"
    ROLLOUTS = "rollouts"
    CORRECT = "correct"
    REPLAYS = "replays"


QuestionOrder = SortOrder[QuestionSortKey]
MOST_REPLAYED = QuestionOrder(QuestionSortKey.REPLAYS)


@dataclass(frozen=True, slots=True)
class QuestionCountRow:
    """What a run has of a question: its rollouts, and replays of its trajectories but for those from a file."""

    question_index: int
    question_id: str
    num_steps: int
    """Steps that generated responses to it."""
    num_rollouts: int
    num_correct: int | None
    """None if of no rollout it is known."""
    num_replays: int
    last_replayed_step: int | None
    prompt: str


@dataclass(frozen=True, slots=True)
class LineageRow:
    """One event of a trajectory or of its question's buckets.

    `kind` is inserted, duplicate, moved, retired, evicted, emptied, reviewed, scored or replayed; a question is emptied
    when another trajectory was its last and is evicted. Scores are those of that step, None where there are none.
    `num_candidates` counts all candidates, it included.
    """

    step: int
    kind: str
    bucket_from: int | None = None
    bucket_to: int | None = None
    entropy: float | None = None
    nll: float | None = None
    num_candidates: int | None = None
    reward: float | None = None
    advantage: float | None = None
    mean_ratio: float | None = None
    max_ratio: float | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class ReplayCountRow:
    """How often a trajectory was replayed."""

    trajectory_id: int
    question_index: int
    num_replays: int


@dataclass(frozen=True, slots=True)
class GroupMemberRow:
    """One of the K trajectories of a question in a step; of a replayed one, advantage and entropy are of that step.

    `text` is the beginning of a longer one of `num_characters`; both are None where another run generated it.
    """

    trajectory_id: int
    rollout_step: int
    is_replayed: bool
    is_correct: bool | None
    reward: float
    verdict: str
    is_valid: bool | None
    num_tokens: int
    mean_entropy: float
    advantage: float
    text: str | None
    num_characters: int | None


@dataclass(frozen=True, slots=True)
class AttemptedRow:
    """The results of one question in one step of one run, without the replayed trajectory."""

    run_id: str
    run_name: str
    model: str
    step: int
    num_rollouts: int
    num_correct: int
    mean_entropy: float
    mean_tokens: float
    entropy_half_interval: float
    tokens_half_interval: float
    """Halves of the 95% intervals of the means, NaN where they are unknown."""
    is_replayed: bool
    """Whether a stored trajectory took part."""


@dataclass(frozen=True, slots=True)
class MarkedTrajectory:
    """One mark on one trajectory; ids are unique within an attempt."""

    run_id: str
    attempt: int
    trajectory_id: int
    mark: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class MarkedRow:
    """A marked trajectory in a list; without a step it is in the run's files only, as `text` says."""

    marked: MarkedTrajectory
    run_name: str
    step: int | None
    question_index: int | None
    prompt_text: str
    answer: str
    reward: float
    mean_entropy: float
    num_tokens: int | None
    text: str


@dataclass(frozen=True, slots=True)
class MarkCount:
    """A mark with its numbers of trajectories and runs."""

    mark: str
    num_trajectories: int
    num_runs: int


def extra_names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of what else was recorded of trajectories, in the order in which they come."""
    return [*dict.fromkeys(name for row in rows for name in row.get("extra") or ())]


def spread_extra(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of a table with a column `extra.NAME` for each of these names; `extra` has the others, if any."""
    spread = []
    for row in rows:
        extra = row.get("extra") or {}
        columns = {f"extra.{name}": extra.get(name) for name in names}
        rest = {name: value for name, value in extra.items() if name not in names}
        spread.append({**row, **({"extra": rest or None} if "extra" in row else {}), **columns})
    return spread
