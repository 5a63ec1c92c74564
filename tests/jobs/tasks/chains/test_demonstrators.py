import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from exgrpo.jobs.tasks.chains.demonstrators import (
    SPECIAL_TOKENS,
    Demonstrators,
    make_tokenizer,
    write_code,
    write_demonstration,
)
from exgrpo.jobs.tasks.chains.oracle import judge_response, run_program
from exgrpo.jobs.tasks.chains.question_set import draw_problem

pytestmark = pytest.mark.slow

NUM_DRAWS = 1500


def judgements(demonstrators: Demonstrators):
    rng = random.Random(5)
    problems = [draw_problem(rng, 5) for _ in range(NUM_DRAWS)]
    return [judge_response(problem, write_demonstration(problem, rng, demonstrators)) for problem in problems]


def share(flags) -> float:
    return sum(flags) / NUM_DRAWS


def test_without_errors_all_but_code_only_wrong_code_and_skipping_are_valid():
    found = judgements(Demonstrators(error_scale=0.0))
    # Half of the sloppy demonstrators swap one operation for a random one, 23 times in 24 for another one.
    still_right = 0.15 * (0.5 + 0.5 * 0.12)
    assert share(j.is_valid for j in found) == pytest.approx(0.70 + still_right, abs=0.03)
    assert share(not j.is_correct for j in found) == pytest.approx(0.10 * 0.4 * 0.9, abs=0.015)
    assert share(j.has_code for j in found) == pytest.approx(0.25, abs=0.025)


def test_each_kind_alone_is_what_it_is_called():
    def only(**shares):
        none = {"code_only": 0.0, "sloppy_with_code": 0.0, "skipping": 0.0}
        return judgements(Demonstrators(error_scale=0.0, **{**none, **shares}))

    assert all(j.is_valid and not j.has_code for j in only())
    assert all(j.is_correct and not j.is_valid and j.num_good_steps < 5 and not j.has_code for j in only(skipping=1.0))
    assert all(j.has_code and j.num_good_steps == 0 and not j.is_valid for j in only(code_only=1.0))
    assert all(j.has_code and j.num_good_steps == 5 and j.is_correct for j in only(sloppy_with_code=1.0))


def test_a_larger_error_scale_makes_fewer_right_answers():
    rates = [share(j.is_correct for j in judgements(Demonstrators(error_scale=scale))) for scale in (0.0, 1.0, 2.6)]
    assert rates[0] > rates[1] + 0.2
    assert rates[1] > rates[2] + 0.1


@pytest.mark.parametrize("modulus", [10, 100])
def test_right_code_prints_the_answer_in_every_style(modulus):
    rng = random.Random(1)
    for num_operations in range(1, 17):
        for _ in range(20):
            problem = draw_problem(rng, num_operations, modulus)
            source = write_code(problem, rng).removeprefix("```python\n").removesuffix("```\n")
            assert run_program(source) == [problem.answer]


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


def test_the_longest_token_wins_and_other_characters_become_the_unknown_token():
    assert TOKENIZER.tokenize("```python\nx=1\nprint(x)\n```\n") == [
        *("```python\n", "x", "=", "1", "\n", "print(", "x", ")", "\n", "```\n")
    ]
    assert TOKENIZER.tokenize("Q1 z") == ["Q", "1", "<unk>"]


def test_a_saved_tokenizer_loads_as_the_same(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "Q6a*2b*9:6;a*2=2;b*9=8;```python\nx=6\nprint(x)\n```\n\\boxed{8}"
    assert loaded.get_vocab() == TOKENIZER.get_vocab()
    assert loaded.encode(text) == TOKENIZER.encode(text)
    assert loaded.decode(loaded.encode(text)) == text
    assert (loaded.eos_token, loaded.pad_token, loaded.padding_side) == ("<eos>", "<pad>", "left")
