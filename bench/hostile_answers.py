"""A hundred answers that a model should not give: too large to compute, too deep, too long, or programs."""

MARKER = "EXECUTED-BY-A-GRADER"
"""A file that hostile answers try to make; nothing that grades may."""

_TOWERS = [rf"{base}^{{{base}^{{{base}^{{{base}^{{{base}}}}}}}}}" for base in range(5, 20)]
_FACTORIALS = [f"{number}!" for number in (10**6, 10**8, 10**9, 99_999_999_999, 10**12)] + [
    "((9!)!)!",
    "(10^9)!",
    "3!!!!!",
]
_BINOMIALS = [rf"\binom{{10^{{{power}}}}}{{5\cdot10^{{{power - 1}}}}}" for power in range(5, 15)]
_CODE = [
    f"__import__('os').system('touch {MARKER}')",
    f"open('{MARKER}','w')",
    f"eval(\"open('{MARKER}','w')\")",
    f"exec(\"open('{MARKER}','w')\")",
    f"().__class__.__base__.__subclasses__()[0]('{MARKER}')",
    f"(lambda: open('{MARKER}','w'))()",
    f"[open('{MARKER}','w') for x in (1,)]",
    f"sympy.sympify(\"open('{MARKER}','w')\")",
    rf"\input{{|touch {MARKER}}}",
    rf"\write18{{touch {MARKER}}}",
    "exit()",
    "while True: pass",
    "__import__('time').sleep(60)",
    "__import__('os').kill(__import__('os').getppid(),9)",
    "import os; os._exit(0)",
]
_DEEP = [
    *("(" * depth + "5" + ")" * depth for depth in (100, 300, 490)),
    *("{" * depth + "5" + "}" * depth for depth in (100, 300, 490)),
    *(r"\sqrt{" * depth + "5" + "}" * depth for depth in (30, 80, 140)),
    *(r"\frac{1}{" * depth + "5" + "}" * depth for depth in (20, 60, 99)),
    *("-" * length + "5" for length in (10, 200, 900)),
]
_LARGE = [
    "5" * 900,
    "5" * 1_000_000,
    "x" * 1_000_000,
    "1+" * 400 + "1",
    "x" + "*x" * 400,
    r"\int " * 150 + "x",
    r"\sum_{i=1}^{10^{9}} i",
    r"\prod_{i=1}^{10^{7}} i",
    r"\int_0^{10^9} e^{x^{x}} dx",
    r"\lim_{n\to\infty} n^{n^{n}}",
    "(x+1)^{100000}",
    "(x+y+z)^{500}",
    "(a+b+c+d)^{99}",
    "2^{2^{2^{2^{2^{2}}}}}",
    "10^{10^{10}}",
    "0^{-1}",
    "1/0",
    "0.1e999999999",
    "1e999999999",
    r"\log_{0}{0}",
]
_ODD = [
    "\ud800",
    "\x00",
    "\x1b[2J",
    "\u202e5",
    r"\begin{pmatrix}" + "1&" * 200 + r"1\end{pmatrix}",
    r"\left\{" * 50,
    r"\text{" * 100,
    "$" * 900,
    "%" * 900,
    ",".join(str(number) for number in range(250)),
    r"\{" + ",".join(f"x_{{{number}}}" for number in range(100)) + r"\}",
    "(-\\infty," * 80,
    r"\frac" * 200,
    r"\sqrt" * 200,
    "^" * 900,
    "=" * 900,
    "x=" * 400 + "5",
]


def hostile_answers() -> list[str]:
    """Return the hundred answers, as the content of a box."""
    answers = [*_TOWERS, *_FACTORIALS, *_BINOMIALS, *_CODE, *_DEEP, *_LARGE, *_ODD]
    assert len(answers) == 100, f"expected 100 hostile answers, got {len(answers)}"
    return answers
