import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from jobs.tasks.chains.demonstrators import Demonstrators, write_demonstration
from jobs.tasks.chains.problem import draw_problem
from jobs.tasks.chains.tokenizer import SPECIAL_TOKENS, make_tokenizer

TOKENIZER = make_tokenizer()


@pytest.mark.parametrize("modulus", [10, 100])
def test_demonstrations_come_back_exactly(modulus):
    rng = random.Random(3)
    for _ in range(200):
        problem = draw_problem(rng, rng.randint(1, 16), modulus)
        text = problem.text + write_demonstration(problem, rng, Demonstrators())
        ids = TOKENIZER.encode(text)
        assert TOKENIZER.unk_token_id not in ids
        assert TOKENIZER.decode(ids) == text


@given(st.lists(st.integers(len(SPECIAL_TOKENS), len(TOKENIZER) - 1), max_size=60))
def test_tokens_come_back_from_any_decoded_text(ids):
    assert TOKENIZER.encode(TOKENIZER.decode(ids)) == ids


def test_the_longest_token_wins():
    assert TOKENIZER.tokenize("```python\nx=1\nprint(x)\n```\n") == [
        *("```python\n", "x", "=", "1", "\n", "print(", "x", ")", "\n", "```\n"),
    ]


def test_a_newline_is_one_token():
    assert len(TOKENIZER.encode("\n")) == 1


def test_other_characters_become_the_unknown_token():
    assert TOKENIZER.tokenize("Q1 z") == ["Q", "1", "<unk>"]


def test_special_tokens_leave_no_text():
    ids = [*TOKENIZER.encode(r"\boxed{9}"), TOKENIZER.eos_token_id, TOKENIZER.pad_token_id]
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == r"\boxed{9}"


def test_a_saved_tokenizer_loads_as_the_same(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "Q6a*2b*9:6;a*2=2;b*9=8;```python\nx=6\nprint(x)\n```\n\\boxed{8}"
    assert loaded.get_vocab() == TOKENIZER.get_vocab()
    assert loaded.encode(text) == TOKENIZER.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    assert (loaded.eos_token, loaded.pad_token, loaded.padding_side) == ("<eos>", "<pad>", "left")
