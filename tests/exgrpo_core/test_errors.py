import pytest

from exgrpo_core.engine import read_end_tokens
from exgrpo_core.errors import EngineError, Mistake, first_line, joined


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("one\ntwo", "one"), ("\nA library.\nInstall it.", "A library."), (" \n", "OSError"),
        ("Bad:\n two\n", "Bad: two"), ("Bad:", "Bad:"),
    ],
)  # fmt: skip
def test_first_line_is_the_first_that_says_something(message, line):
    assert first_line(OSError(message)) == line


def test_each_place_names_end_tokens_and_what_names_none_is_refused():
    assert read_end_tokens("m", [7, 4], None, 4, 1) == [1, 4, 7]
    for named in [(1, [token]) for token in (-1, 2**31, 1.5, "2", True, {}, [2], [None])] + [(), (None,), ([], None)]:
        with pytest.raises(EngineError, match=r"model\.source"):
            read_end_tokens("m", *named)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ((), ""), (("expected 1, got 2",), "expected 1, got 2"),
        (("expected 1, got 2", "a: expected b."), "expected 1, got 2. a: expected b."), (("a.", "b", "c"), "a. b. c"),
    ],
)  # fmt: skip
def test_joined_mistakes_are_sentences(sentences, message):
    assert joined([Mistake(text) for text in sentences]) == message
