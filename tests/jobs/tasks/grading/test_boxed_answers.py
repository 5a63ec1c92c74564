import time

import pytest

from exgrpo.jobs.tasks.grading.boxed_answers import grade_without_verifier, last_boxed, read_choice
from exgrpo.jobs.tasks.grading.reward_function import Grade

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{5}", "5"), (r"\boxed{1} no, \boxed{2}.", "2"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"), (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{x \mid x > 0\right\}}", r"\left\{x \mid x > 0\right\}"), (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{4} then \boxed{5", "4"), (r"stray { brace \boxed{6}", "6"), (r"\\boxed{8}", "8"),
        (r"line \\\boxed{9}", "9"), (r"\boxed{}", ""), (r"\boxed 5", None), (r"\boxed{5", None), ("5", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_last_whole_box_is_found(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize("text", ["\\boxed{" * 140_000, "\\" * 1_000_000])
def test_finding_the_box_takes_linear_time(text):
    def seconds(part):
        started = time.process_time()
        assert last_boxed(part) is None
        return time.process_time() - started

    # 16 times the text takes 16 times as long where time is linear, 256 times where it is quadratic.
    part = text[: len(text) // 16]
    assert min(seconds(text) for _ in range(3)) < 64.0 * max(seconds(part) for _ in range(3))


@pytest.mark.parametrize(
    ("gold", "boxed", "outcome"),
    [
        ("5", "5", Grade.CORRECT), ("5.0", "5", Grade.CORRECT), ("5", "+5.00", Grade.CORRECT),
        ("1234", "1,234", Grade.CORRECT), ("1234", "1{,}234", Grade.CORRECT), ("10000", r"10\,000", Grade.CORRECT),
        ("5", "6", Grade.WRONG), ("5.0", "-5", Grade.WRONG), (r"\frac{1}{2}", r"\dfrac{1}{2}", Grade.CORRECT),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})", Grade.CORRECT), ("p - q", "$p-q$", Grade.CORRECT),
        ("5", "  ", Grade.UNPARSED), ("31/2", "3 1/2", None), ("0.333", "0.3333", None),
        ("0.5", r"\frac{1}{2}", None), ("12", "12,34", None), ("32349", "32, 349", None), ("5", "x", None),
    ],
)  # fmt: skip
def test_only_equal_texts_and_plain_numbers_are_decided_at_once(gold, boxed, outcome):
    assert grade_without_verifier(gold, boxed) == outcome


@pytest.mark.parametrize(
    ("boxed", "choice"),
    [
        ("B", "B"), (" b ", "B"), ("(B)", "B"), ("B.", "B"), ("B)", "B"), (r"\text{B}", "B"), (r"\textbf{(B)}", "B"),
        (r"\mathrm{B}", "B"), ("B) carbon dioxide", "B"), ("(B) carbon dioxide", "B"), ("B. carbon dioxide", "B"),
        ("3", "3"), ("A planet", None), ("carbon dioxide", None), ("BC", None), ("A, B", None), ("AB)", None),
        ("K", None), ("12", None), ("", None),
    ],
)  # fmt: skip
def test_a_choice_is_a_label_and_nothing_else(boxed, choice):
    assert read_choice(boxed) == choice
