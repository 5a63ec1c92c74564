import json

import pytest

from exgrpo.jobs.tasks.questions import build_question
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.demonstration_turns import encode_turns, is_one_text, one_text, read_turns
from exgrpo.jobs.training.templates import TemplateName, encode_messages
from tests.jobs.training.chat_model import CHAT_TEMPLATE
from tests.jobs.training.format_tokenizer import make_format_tokenizer

TOOL_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    '{% for call in m.tool_calls %}<tool>{"name": "{{ call.function.name }}", "arguments": '
    "{{ call.function.arguments | tojson }}}</tool>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEAD, END = "<|im_start|>", "<|im_end|>"
QUESTION = {"role": "user", "content": "What is 1 + 1?"}
SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = f"{HEAD}user\nWhat is 1 + 1?{END}\n{HEAD}assistant\n"


def says(content, **fields):
    return {"role": "assistant", "content": content, **fields}


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


ADD = call("add", '{"a": 1}')
TWO = f"{ASKED}Let me see.{END}\n{HEAD}user\nAnd?{END}\n{HEAD}assistant\n"
CALLED = 'I call.<tool>{"name": "add", "arguments": {"a": 1}}</tool>'
BOTH = '<tool>{"name": "add", "arguments": {"a": 1}}</tool><tool>{"name": "sub", "arguments": {"b": 2}}</tool>'
# Messages, and the text before each trained turn and that of the turn, written by hand.
CASES = {
    "two turns": (
        [QUESTION, says("Let me see."), {"role": "user", "content": "And?"}, says("2")],
        [(ASKED, "Let me see."), (TWO, "2")],
    ),
    "three turns, and a question without an answer": (
        [says("a"), {"role": "user", "content": "b"}, says("c"), {"role": "user", "content": "d"}, says("e"),
         {"role": "user", "content": "f"}],
        [
            (ASKED, "a"),
            (f"{ASKED}a{END}\n{HEAD}user\nb{END}\n{HEAD}assistant\n", "c"),
            (f"{ASKED}a{END}\n{HEAD}user\nb{END}\n{HEAD}assistant\nc{END}\n{HEAD}user\nd{END}\n{HEAD}assistant\n", "e"),
        ],
    ),
    "a tool's answer is context": (
        [says("I call.", tool_calls=[ADD]), {"role": "tool", "content": "5"}, says("2")],
        [(ASKED, CALLED), (f"{ASKED}{CALLED}{END}\n{HEAD}tool\n5{END}\n{HEAD}assistant\n", "2")],
    ),
    "two calls without a text": ([says(None, tool_calls=[ADD, call("sub", {"b": 2})])], [(ASKED, BOTH)]),
    "reasoning": ([says("2", reasoning_content="one more")], [(ASKED, "<think>\none more\n</think>\n\n2")]),
    "empty columns, as Parquet has them": (
        [says("x", tool_calls=None, reasoning_content=None), {"role": "user", "content": "y", "tool_calls": None},
         says("z", tool_calls=[], reasoning_content="")],
        [(ASKED, "x"), (f"{ASKED}x{END}\n{HEAD}user\ny{END}\n{HEAD}assistant\n", "z")],
    ),
}  # fmt: skip


def make_tokenizer(template):
    texts = [json.dumps([messages for messages, _ in CASES.values()]), TOOL_TEMPLATE, TWO]
    tokenizer = make_format_tokenizer(texts, vocabulary_size=600)
    tokenizer.chat_template = template
    return tokenizer


def encoded(messages, template=TOOL_TEMPLATE, prompt=(QUESTION,), name=TemplateName.CHAT):
    tokenizer = make_tokenizer(template)
    text, prompt_ids = encode_messages(name, prompt, tokenizer)
    question = build_question(0, "q", text, "2", prompt_ids, {})
    turns = read_turns(list(messages), prompt, "mine.jsonl, row 1, target")
    sequences = encode_turns(question, prompt, turns, tokenizer, "mine.jsonl, row 1, target")
    return [tuple(map(tokenizer.decode, pair)) for pair in sequences], tokenizer


@pytest.mark.parametrize("name", CASES)
def test_every_turn_of_the_assistant_is_trained_behind_what_comes_before_it(name):
    messages, expected = CASES[name]
    found, tokenizer = encoded(messages)
    end = END if END in tokenizer.all_special_tokens else tokenizer.eos_token
    assert [(before, text.removesuffix(tokenizer.eos_token).removesuffix(END)) for before, text in found] == expected
    assert all(text.endswith((end, tokenizer.eos_token)) for _, text in found)


def test_system_message_is_context():
    (found,), _ = encoded([says("2", reasoning_content="r")], prompt=(SYSTEM, QUESTION))
    assert found[0] == f"{HEAD}system\nBe brief.{END}\n{ASKED}"


@pytest.mark.parametrize(
    ("messages", "template", "sentence"),
    [
        ([says("x", tool_calls=[ADD])], CHAT_TEMPLATE, "turn 1, tool_calls: the model's chat template does not write"),
        ([says("x", reasoning_content="y")], CHAT_TEMPLATE, "turn 1, reasoning_content: the model's chat template"),
        ([says("x"), {"role": "user", "content": "gone"}, says("y")],
         TOOL_TEMPLATE.replace("{{ m.content }}", "{{ m.content if m.role == 'assistant' or loop.first }}"),
         "turn 2, content: the model's chat template"),
        ([says("x", function_call={"name": "f"})], TOOL_TEMPLATE, "message 1, function_call: cannot be trained"),
        ([says([{"type": "text", "text": "x"}])], TOOL_TEMPLATE, "message 1, content: expected a text"),
        ([says("x"), {"role": "critic", "content": "y"}], TOOL_TEMPLATE, "message 2, role: expected"),
        ([QUESTION], TOOL_TEMPLATE, "target: expected a response"),
        ([says("")], TOOL_TEMPLATE, "message 1, content: expected a text"),
        ([says("x", tool_calls=[call("f", "{")])], TOOL_TEMPLATE, "message 1, tool_calls: expected arguments in JSON"),
        ([says("x", tool_calls=[{"name": "f"}])], TOOL_TEMPLATE, "message 1, tool_calls: expected objects"),
        *[([says("5 I call.", tool_calls=[ADD]), {"role": "tool", "content": result}, says("5")],
           TOOL_TEMPLATE.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' }}"),
           "turn 2, content: the model's chat template") for result in ("5", "add", "1", "What is", "I call.")],
        *[([says("x", tool_calls=[call("f", {"a": value})])],
           TOOL_TEMPLATE.replace("{{ call.function.arguments | tojson }}", written),
           "turn 1, tool_calls: the model's chat template")
          for value, written in (("f", "{}"), ("arguments", "{{ call.function.arguments.keys() | list }}"),
                                 (["name"], "a"), ({"f": "a"}, "{{ call.function.arguments.a.keys() | list }}"),
                                 ("name", "{a: 1}"))],
        *[([*first, says("2"), {"role": "user", "content": "b"}, says("3")], TOOL_TEMPLATE,
           f"message {place}: is not the row's prompt")
          for place, first in ((1, [{"role": "user", "content": "What is 1 + 2?"}]), (1, [SYSTEM, QUESTION]),
                               (1, [{"role": "system", "content": "What is 1 + 1?"}]),
                               (2, [QUESTION, {"role": "user", "content": "Go on."}]), (1, [QUESTION, QUESTION]))],
        (CASES["two turns"][0], TOOL_TEMPLATE.replace("assistant\n{%", "assistant\n<think>{%"),
         "turn 1: the model's chat template writes the assistant's turn in another way"),
    ],
)  # fmt: skip
def test_what_a_template_cannot_write_is_refused_by_row_and_field(messages, template, sentence):
    with pytest.raises(DataError) as refused:
        encoded(messages, template)
    assert f"mine.jsonl, row 1, target, {sentence}".replace("target, target", "target") in str(refused.value)


@pytest.mark.parametrize(
    ("prompt", "first"),
    [
        ([QUESTION], []), ([QUESTION], [QUESTION]), ([SYSTEM, QUESTION], [QUESTION]),
        ([SYSTEM, QUESTION], [SYSTEM, QUESTION]),
        ([QUESTION], [{"role": "user", "content": "What is 1 + 1?\n"}]),
    ],
)  # fmt: skip
def test_a_demonstration_may_repeat_its_prompt(prompt, first):
    assert read_turns([*first, says("2")], prompt, "row 1") == [says("2")]
    with pytest.raises(DataError, match="row 1, message 1: is not the row's prompt"):
        read_turns([{"role": "user", "content": "Other?"}, *first[1:], says("2")], prompt, "row 1")


def test_a_template_that_reads_texts_is_used_as_it_is():
    refusal = "{% if m.role == 'tool' and '<r>' not in m.content %}{{ raise_exception('no r') }}{% endif %}"
    template = TOOL_TEMPLATE.replace("{{ m.content }}", refusal + "{{ m.content }}")
    found, _ = encoded([says("a"), {"role": "tool", "content": "<r>5"}, says("5")], template)
    assert found[1][0].endswith(f"{HEAD}tool\n<r>5{END}\n{HEAD}assistant\n")


def test_several_turns_need_a_chat_template():
    with pytest.raises(DataError, match="row 1, target: only a chat template"):
        encoded(CASES["two turns"][0], name=TemplateName.NONE)


def test_off_policy_trajectory_is_one_text():
    assert one_text(read_turns([QUESTION, says("2")], [QUESTION], "row 1"), "row 1") == "2"
    assert is_one_text(read_turns("2", [], "row 1"))
    for messages in (CASES["two turns"][0], CASES["reasoning"][0], CASES["a tool's answer is context"][0]):
        with pytest.raises(DataError, match=r"row 1, .*: an off-policy trajectory is one text"):
            one_text(read_turns(messages, [QUESTION], "row 1"), "row 1")
