"""The parts of a training reward: which there are, and what a specification may say of them."""

from collections.abc import Iterable, Iterator, Mapping

from exgrpo_core.config import RewardKind
from exgrpo_core.errors import InputError, Mistake
from exgrpo_core.methods.loading import allowed_location

ANSWER, FORMAT, RANDOM = "answer", "format", "random"
ANSWER_ALONE = {ANSWER: 1.0}
PARTS = {
    ANSWER: "the grader's reward of the answer",
    FORMAT: "1 for any answer in a box, right or wrong",
    RANDOM: "1 for half of the responses, whatever they are",
}
"""The built-in parts and what they reward; format and random are controls."""
ENTRY_POINTS = "exgrpo.rewards"
"""Group of the entry points of other packages; an entry point's name is the part's."""
MAX_CODE_PARTS = 3
"""Parts by code from outside the workbench, each with a curve of its own."""


def code_parts(rewards: Iterable[str]) -> dict[str, str]:
    """Return `module:function` of each part that is not built in, by its name.

    Raises:
        InputError: There is none, or it is code that this machine does not allow.
    """
    return {name: allowed_location(name, PARTS, ENTRY_POINTS) for name in rewards if name not in PARTS}


def find_reward_mistakes(rewards: Mapping[str, float], kind: RewardKind) -> Iterator[Mistake]:
    """Yield a sentence on each thing that is wrong with a reward's parts and their weights."""
    if rewards == ANSWER_ALONE:
        return
    try:
        num_code_parts = len(code_parts(rewards))
    except InputError as error:
        yield Mistake(str(error), "data.rewards")
        return
    if not rewards or num_code_parts > MAX_CODE_PARTS:
        text = f"expected some parts, at most {MAX_CODE_PARTS} of them by code, got {len(rewards)}."
        yield Mistake(text, "data.rewards")
    if kind is RewardKind.BINARY and (num_code_parts or list(rewards.values()) != [1.0]):
        text = "expected one built-in part of weight 1; others need algorithm.reward_kind continuous."
        yield Mistake(text, "data.rewards")
