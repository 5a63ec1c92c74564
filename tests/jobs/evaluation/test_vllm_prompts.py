"""Chat templates are rendered before vLLM gets their tokens; needs no vLLM."""

import pytest

from jobs.evaluation.generation import PromptedQuestion
from jobs.evaluation.local_generators import vllm_prompts
from jobs.runs.control import TrainingError
from jobs.training.answer_format import make_format_tokenizer
from tests.jobs.training.chat_model import CHAT_TEMPLATE

MESSAGES = ({"role": "user", "content": "What is 1?"},)


@pytest.fixture
def tokenizer():
    tokenizer = make_format_tokenizer(["What is 1?"], vocabulary_size=300)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def test_messages_become_the_tokens_of_the_chat_template_and_texts_stay(tokenizer):
    questions = [PromptedQuestion("a", None, MESSAGES, 0.6), PromptedQuestion("b", "What is 1?", (), 0.6)]
    chat, text = vllm_prompts(questions, tokenizer)
    assert text == "What is 1?"
    assert tokenizer.decode(chat["prompt_token_ids"]) == (
        "<|im_start|>user\nWhat is 1?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_chat_template_that_refuses_is_one_sentence(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('no such role') }}"
    with pytest.raises(TrainingError, match=r"cannot be used \(no such role\)"):
        vllm_prompts([PromptedQuestion("a", None, MESSAGES, 0.6)], tokenizer)
