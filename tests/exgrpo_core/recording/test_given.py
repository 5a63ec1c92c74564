"""Trajectories as loops hand them over."""

import json
from pathlib import Path

import numpy as np
import pytest

from exgrpo_core.recording.given import as_trajectory
from exgrpo_core.recording.lines import parse_lines, parse_trajectory, trajectory_lines
from exgrpo_core.recording.rows import Message, RecordedTrajectory

CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {}}]},
    {
        "role": "assistant", "reasoning_content": "I look.", "content": "Let me see.",
        "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": '{"x": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
    {"role": "assistant", "content": "A cat."},
]  # fmt: skip


def test_messages_of_openai_with_thinking_calls_and_images():
    assert as_trajectory({"messages": CHAT}).messages == (
        Message("system", "Be short."), Message("user", "What is this?"), Message("user", "[image 521f5a92]", "image"),
        Message("assistant", "I look.", "thinking", is_generated=True),
        Message("assistant", "Let me see.", is_generated=True),
        Message("assistant", '{"x": 1}', "tool_call", "look", is_generated=True),
        Message("tool", "a cat", "tool_result", "look"), Message("assistant", "A cat.", is_generated=True),
    )  # fmt: skip


def test_messages_of_a_prompt_were_not_generated():
    given = {"prompt": CHAT[:3], "completion": CHAT[3:], "advantages": np.float32(0.5), "score": np.array(2.0)}
    trajectory = as_trajectory(given)
    assert [message.text for message in trajectory.messages if message.is_generated] == ["A cat."]
    assert (trajectory.advantage, trajectory.reward) == (0.5, 2.0)


def test_what_is_written_is_read_and_means_and_counts_follow_from_values_of_tokens():
    whole = RecordedTrajectory(
        (Message("user", "q"), Message("assistant", "a", "tool_call", "calc", is_generated=True, num_tokens=2)),
        reward=0.5, question_id="q1", group="g", answer="a", verdict="correct", is_truncated=False,
        token_ids=[1, 2], log_probs=[-1, -2.0], entropies=np.array([0.5, 1.0]), advantage=float("inf"),
        extra={"x": None},
    )  # fmt: skip
    line, tokens = trajectory_lines(3, "0.1", "now", whole)
    messages, facts = parse_trajectory(parse_lines([line])[0])
    assert messages == whole.messages
    names = ("reward", "question_id", "group", "answer", "verdict", "is_truncated", "advantage", "extra")
    assert {name: facts[name] for name in names} == {name: getattr(whole, name) for name in names}
    assert (facts["num_tokens"], facts["mean_log_prob"], facts["mean_entropy"]) == (2, -1.5, 0.75)
    assert {"token_ids", "log_probs", "entropies"} < json.loads(tokens).keys()
    assert trajectory_lines(3, "0.1", "now", RecordedTrajectory(messages))[1] is None


@pytest.mark.parametrize(
    "line",
    [
        {}, {"messages": 5}, {"messages": [{"role": "user"}]}, {"messages": [{"role": 1, "text": "x"}]},
        {"messages": [], "reward": "x"}, {"messages": [], "num_tokens": 1.5}, {"messages": [], "extra": []},
        {"messages": [], "num_tokens": 2**31},
    ],
)  # fmt: skip
def test_a_line_with_another_type_is_refused(line):
    with pytest.raises(ValueError):  # noqa: PT011 - the reader counts it as damaged, whatever it says
        parse_trajectory(line)


@pytest.mark.parametrize("facts", [{"reward": "x"}, {"num_tokens": 1.5}, {"num_tokens": 2**31}, {"is_truncated": "no"}])
def test_lines_and_loops_refuse_the_same_facts(facts):
    for read, given in ((parse_trajectory, {"messages": []}), (as_trajectory, {"response": "a"})):
        with pytest.raises(ValueError):  # noqa: PT011 - likewise
            read(given | facts)


@pytest.mark.parametrize(
    ("fields", "prompt", "columns"),
    [
        ({"question": "1 + 1?"}, ["1 + 1?"], {}),
        ({"question": "1 + 1?", "prompt": None}, ["1 + 1?"], {}),
        ({"question": [{"role": "system", "content": "Be short."}, CHAT[1]]}, ["Be short.", "What is this?"], {}),
        ({"question": "1 + 1?", "prompt": "Compute 1 + 1."}, ["Compute 1 + 1."], {"question": "1 + 1?"}),
        ({"question": 7}, [], {"question": 7}),
    ],
)
def test_a_question_is_the_prompt_where_there_is_no_prompt(fields, prompt, columns):
    trajectory = as_trajectory({**fields, "response": "2"})
    texts = [message.text for message in trajectory.messages if message.kind == "text"]
    assert texts == [*prompt, "2"]
    assert [message.text for message in trajectory.messages if message.is_generated] == ["2"]
    assert trajectory.extra == columns


@pytest.mark.parametrize("name", ["advantage", "advantages", "reward", "rewards", "score"])
@pytest.mark.parametrize("values", [[0.5, 0.5], np.array([0.5, 0.25]), (1.0, 0.0)])
def test_a_list_in_place_of_one_number_is_refused_by_the_name_that_was_given(name, values):
    with pytest.raises(ValueError, match=f"^{name}: expected one number, got "):
        as_trajectory({"response": "a b", "token_ids": [1, 2], name: values})


def test_fields_without_a_response_are_named():
    with pytest.raises(ValueError, match=r"^expected messages, or a response; the fields are step, question, text$"):
        as_trajectory({"step": 3, "question": "1 + 1?", "text": "2"})


def test_a_name_may_be_a_number_in_a_line_and_from_a_loop():
    for read, given in ((parse_trajectory, {"messages": []}), (as_trajectory, {"response": "a"})):
        found = read(given | {"question_id": 7, "num_tokens": 2.0, "is_truncated": 1})
        assert (found[1]["question_id"] if isinstance(found, tuple) else found.question_id) == "7"


def test_the_line_in_the_document_is_whole():
    document = (Path(__file__).parents[3] / "docs" / "recording.md").read_bytes()
    lines = parse_lines(line for line in document.splitlines() if line.startswith(b"{"))
    assert lines[0]["metrics"] == {"loss": 0.3}
