import pytest

from exgrpo_core.errors import first_line


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("one\ntwo", "one"),
        ("\nT5Tokenizer requires a library.\nInstall it.", "T5Tokenizer requires a library."),
        (" \n", "OSError"),
    ],
)
def test_first_line_is_the_first_that_says_something(message, line):
    assert first_line(OSError(message)) == line
