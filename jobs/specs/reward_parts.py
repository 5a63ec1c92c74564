"""The parts of a training reward: which there are, and what a specification may say of them."""

from collections.abc import Iterator, Mapping

from exgrpo_core.config import RewardKind

ANSWER, FORMAT, RANDOM = "answer", "format", "random"
ANSWER_ALONE = {ANSWER: 1.0}
PARTS = {
    ANSWER: "the grader's reward of the answer",
    FORMAT: "1 for any answer in a box, right or wrong",
    RANDOM: "1 for half of the responses, whatever they are",
}
"""The built-in parts and what they reward; format and random are controls."""


def find_reward_mistakes(rewards: Mapping[str, float], kind: RewardKind, engine: str) -> Iterator[str]:
    """Yield a sentence on each thing that is wrong with a reward's parts and their weights."""
    if rewards == ANSWER_ALONE:
        return
    if engine != "embedded":
        yield "data.rewards: expected the answer alone, except on the embedded engine."
    unknown = rewards.keys() - PARTS.keys()
    if not rewards or unknown:
        yield f"data.rewards: expected some of {', '.join(PARTS)}, got {', '.join(sorted(unknown)) or 'none'}."
    if kind is RewardKind.BINARY and list(rewards.values()) != [1.0]:
        yield "data.rewards: expected one part of weight 1; otherwise algorithm.reward_kind has to be continuous."
