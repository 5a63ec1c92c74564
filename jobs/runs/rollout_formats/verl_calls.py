"""Calls of verl that a tracker records: agent loops, which are rollouts, and the generations and tools in them.

Source: `rollout_trace_op` of verl 0.9.1. With `rollout.trace.token2text` an output has the texts of its tokens.
"""

from collections.abc import Iterator
from typing import Any

from exgrpo.jobs.runs.rollout_formats.row_fields import Row, number_of, of_mask
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import Message, RecordedTrajectory


def is_verl_call(metadata: Row) -> bool:
    """Whether a trace of Trackio is a call of verl."""
    return {"op", "inputs", "rollout_n"} <= metadata.keys()


def of_verl_call(inputs: Row, output: Any, attributes: Row) -> Iterator[RecordedTrajectory]:  # noqa: ANN401
    """Yield the trajectory of an agent loop; other calls, and loops that failed, have none.

    Raises:
        ValueError: The loop has no text.
    """
    if not isinstance(output, dict) or "response_mask" not in output:
        return
    if "response_text" not in output:
        raise ValueError("response_text is missing; verl records it with rollout.trace.token2text=True.")
    asked, mask = inputs.get("kwargs") or {}, output["response_mask"]
    answer = (asked.get("reward_model") or {}).get("ground_truth")
    prompt = messages_of(asked, "raw_prompt", is_generated=False) if "raw_prompt" in asked else ()
    group = attributes.get("sample_index")
    yield RecordedTrajectory(
        messages=(*prompt, Message("assistant", output["response_text"], is_generated=True)),
        reward=number_of(output, "reward_score"),
        group=None if group is None else str(group),
        answer=None if answer is None else str(answer),
        num_tokens=sum(map(bool, mask)),
        token_ids=of_mask(output.get("response_ids"), mask),
        log_probs=of_mask(output.get("response_logprobs"), mask),
    )
