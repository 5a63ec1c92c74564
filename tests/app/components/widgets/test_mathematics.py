import pytest

from exgrpo.app.components.widgets.shown_text import MAX_FORMULAS, formula_pieces

pytestmark = pytest.mark.slow

CLOSED = "\\[ a\n$$\n# Verified [click](http://evil)\n$$\nb \\]"
"""A text that closes its own formula."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no formula, 5$ only", [("no formula, 5$ only", False)]),
        ("so $x^2$ is", [("so", False), ("x^2", True), ("is", False)]),
        (r"a \(b\) c \[d\]", [("a", False), ("b", True), ("c", False), ("d", True)]),
        ("$$a\n+b$$", [("a\n+b", True)]),
        (r"Answer: \boxed{\frac{1}{2}}.", [("Answer:", False), (r"\boxed{\frac{1}{2}}", True), (".", False)]),
        (r"costs \$5 and \$6", [(r"costs \$5 and \$6", False)]),
        ("$$a\n\n# b$$ and $c$", [("$$a\n\n# b$$ and", False), ("c", True)]),
        (CLOSED, [(CLOSED, False)]),
        ("", []),
    ],
)
def test_text_is_cut_into_prose_and_formulas(text, expected):
    assert list(formula_pieces(text)) == expected


def test_what_comes_after_many_formulas_stays_as_it_was_written():
    parts = list(formula_pieces("$x$ " * (MAX_FORMULAS + 3)))
    assert parts[-1] == ("$x$ $x$ $x$", False)
    assert sum(is_formula for _, is_formula in parts) == MAX_FORMULAS
