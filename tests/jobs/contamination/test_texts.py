import random
import re

import pytest

from jobs.contamination.overlap import overlap_shares
from jobs.contamination.perturbation import with_other_numbers

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"


def test_overlap_is_the_share_of_runs_of_13_words_that_training_has():
    # 15 words have 3 runs of 13; training has the first two.
    training = ["Zero one, two three four five six seven eight nine TEN eleven twelve thirteen fourteen!"]
    assert overlap_shares([LONG], training) == [pytest.approx(2 / 3)]
    assert overlap_shares([LONG], [LONG, "other"]) == [1.0]
    assert overlap_shares([LONG], []) == [0.0]


def test_a_short_question_overlaps_only_where_it_is_whole():
    assert overlap_shares(["What is 2 + 3?", "!"], ["what is 2 3"]) == [1.0, 0.0]
    assert overlap_shares(["What is 2 + 3?"], ["Now: what is 2 + 3?"]) == [0.0]


def test_other_numbers_have_as_many_digits_and_zeros_and_equal_ones_stay_equal():
    rng = random.Random(0)
    for _ in range(50):
        changed = with_other_numbers("Take 47 of 1200 pens, then 47 of 305.", rng)
        first, pens, again, rest = re.findall(r"\d+", changed)
        assert first == again != "47"
        assert (len(first), len(pens), len(rest)) == (2, 4, 3)
        assert pens.endswith("00")
        assert pens != "1200"
        assert rest != "305"
        assert re.sub(r"\d+", "", changed) == "Take  of  pens, then  of ."


@pytest.mark.parametrize("text", ["What is 2 + 3?", "In 2023 he was born.", "x^{10} + a_12", "no numbers", "3.14"])
def test_single_digits_years_powers_and_decimals_stay(text):
    assert with_other_numbers(text, random.Random(0)) is None
