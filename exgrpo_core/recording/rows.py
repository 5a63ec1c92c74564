"""What any trainer's rollouts are: messages, trajectories, steps. A fact that is not known is None."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

MessageKind = Literal["text", "thinking", "tool_call", "tool_result", "image"]
"""Of an image the text is a placeholder."""


class VoteOutcome(StrEnum):
    """One vote on one chain of thought."""

    VALID = "valid"
    INVALID = "invalid"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, or one part of it: a turn that thinks and calls a tool is several messages."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    text: str
    kind: MessageKind = "text"
    tool: str = ""
    """The name of the tool of a call or result."""
    is_generated: bool = False
    """Whether the model that is trained wrote it."""
    is_error: bool = False
    """Whether it is the result of a tool that failed."""
    num_tokens: int | None = None
    mean_entropy: float | None = None
    """Nats."""
    reward: float | None = None
    """The reward of the turn."""


@dataclass(frozen=True, slots=True)
class RecordedTrajectory:
    """A prompt and what the model made of it."""

    messages: tuple[Message, ...]
    """The plain case is one of the user and one of the assistant."""
    reward: float | None = None
    question_id: str | None = None
    """What groups are compared by; by default a hash of the messages before the first generated one."""
    group: str | None = None
    """The rollouts of one question in one step; by default the question's."""
    answer: str | None = None
    """The gold answer."""
    verdict: str | None = None
    """`correct`, `wrong` or another word, only where the source says so."""
    is_truncated: bool | None = None
    num_tokens: int | None = None
    """Generated tokens."""
    token_ids: Sequence[int] | None = None
    """Of generated tokens, as are log-probs and entropies."""
    log_probs: Sequence[float] | None = None
    """Nats, under the policy that generated the tokens."""
    update_log_probs: Sequence[float] | None = None
    """Nats, under the policy that the loss of the update saw."""
    entropies: Sequence[float] | None = None
    """Nats."""
    advantage: float | None = None
    extra: Mapping[str, str | float | bool | None] = field(default_factory=dict)
    """Everything else; each name is a column."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """Trajectories and metrics of a step, or a part of them: a step may come in several."""

    step: int
    trajectories: tuple[RecordedTrajectory, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
