import re

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.training.templates import (
    TemplateName,
    encode_messages,
    render_chat_prompt,
    render_prompt,
    template_text,
)
from exgrpo_core.errors import FieldError

pytestmark = pytest.mark.slow

MESSAGES = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " What is {Question} + \\boxed{}?\n"},
)


def plain(latex: str) -> str:
    text = re.sub(r"\\verb\|([^|]*)\|", lambda match: match.group(1).replace("\\n", "\n"), latex)
    text = re.sub(r"\\textbf\{([^}]*)\}", r"\1", text)
    return re.sub(r" ?\\\\\n", "\n", text)


@pytest.mark.parametrize(("name", "place"), [(TemplateName.PAPER, 0), (TemplateName.PAPER_LLAMA_BASE, 1)])
def test_the_papers_templates_are_word_for_word(shared_dir, name, place):
    paper = (shared_dir / "paper/exgrpo_iclr2026.tex").read_text(encoding="utf-8")
    boxes = re.findall(r"\\begin\{promptbox\}\{RLVR[^}]*\}\n(.*?)\n?\\end\{promptbox\}", paper, re.DOTALL)
    printed = plain(boxes[place])
    assert re.sub(r" +", " ", printed) == template_text(name)


def test_the_question_is_put_in_once_and_nothing_else_is_replaced():
    prompt = render_prompt(TemplateName.PAPER, MESSAGES)
    assert prompt.endswith("User: This is the problem: What is {Question} + \\boxed{}?\nAssistant: <think>")
    assert "{thoughts}" in prompt
    assert "Be brief." not in prompt


def test_auto_is_the_tokenizers_template_where_it_has_one_else_the_question_alone():
    tokenizer = make_tokenizer()
    plain_text = "Q3;a=1;a+1;"
    question = [{"role": "user", "content": plain_text}]
    assert encode_messages(TemplateName.AUTO, question, tokenizer)[0] == plain_text
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}?{% endfor %}"
    text, ids = encode_messages(TemplateName.AUTO, question, tokenizer)
    assert (text, ids) == (plain_text + "?", tokenizer.encode(plain_text + "?", add_special_tokens=False))
    assert encode_messages(TemplateName.NONE, question, tokenizer)[0] == plain_text


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(10 ** 6) %}{% endfor %}", "{{ messages.__class__.__mro__ }}",
        "{{ raise_exception('no\\nmore') }}", "{% if %}",
    ],
)  # fmt: skip
def test_a_template_that_cannot_be_rendered_is_refused_wherever_messages_are_encoded(template):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(FieldError) as refused:
        encode_messages(TemplateName.CHAT, MESSAGES, tokenizer)
    assert "\n" not in str(refused.value)


def test_a_template_for_content_in_parts_loses_the_question_and_is_refused():
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}"
        "{% endfor %}{% endfor %}Answer:"
    )
    with pytest.raises(FieldError, match="does not show the question"):
        render_chat_prompt(MESSAGES, tokenizer)


def test_a_template_with_a_clock_gives_the_same_prompt_on_every_day():
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ strftime_now('%d %b %Y %H:%M') }} {{ messages[-1].content }}"
    assert render_chat_prompt(MESSAGES, tokenizer).startswith("26 Jul 2024 00:00 ")


@pytest.mark.parametrize("ends", ["$A </s>", "<s> $A </s>", "<s> $A"])
def test_a_prompt_keeps_the_tokenizers_start_token_and_never_ends_with_its_end_token(ends):
    inner = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2, "How": 3, "many?": 4}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(single=ends, special_tokens=[("<s>", 0), ("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    assert (tokenizer.encode("How many?")[-1] == 1) == ends.endswith("</s>")
    for name in (TemplateName.NONE, TemplateName.COMPACT):
        _, ids = encode_messages(name, [{"role": "user", "content": "How many?"}], tokenizer)
        assert ids == ([0, 3, 4] if ends.startswith("<s>") else [3, 4])


def test_a_template_renders_as_the_tokenizer_renders_it():
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{% if loop.last %}{% generation %}{{ m | tojson }}{% endgeneration %}"
        "{% continue %}{% endif %}{{ m.content }}{% endfor %}"
    )
    expected = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert [render_chat_prompt(MESSAGES, tokenizer) for _ in range(2)] == [expected] * 2
