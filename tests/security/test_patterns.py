"""No pattern of the product tries all ways to split a text, such as a model may write, into its parts."""

import importlib
import re
import signal
from itertools import product
from pathlib import Path

import pytest

from exgrpo.app.formats import literal

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
REPEATED = ("a", "1", " ", "\t", "\n", "{", "(", "\\boxed{", "\\text{", "1 ", "a-", "1,")
ENDS = ("", "!", "}", ")", "\x00", "\n", "a", "1", "\\", "=", ":", "{")
LENGTH = 1_000
SECONDS = 2.0
"""Of processor time for a text; one whose cost grows with the cube of the length takes longer."""


def module_names():
    for package in ("app", "db", "exgrpo_core", "jobs"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            if "re.compile(" in path.read_text() and "verl_ray" not in path.parts:
                parts = path.relative_to(REPOSITORY).with_suffix("").parts
                yield ".".join(parts if package == "exgrpo_core" else ("exgrpo", *parts))


def patterns_in(value):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from patterns_in(item)


def patterns():
    known = {}
    for name in module_names():
        for variable, value in vars(importlib.import_module(name)).items():
            for number, pattern in enumerate(patterns_in(value)):
                text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
                known[f"{name}.{variable}.{number}"] = re.compile(text, pattern.flags & ~re.UNICODE)
    return known


@pytest.fixture
def timer():
    """Raise TimeoutError in whatever takes longer than SECONDS of processor time since the timer was set."""

    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    yield lambda: signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def time_out(timer, text, *reads):
    timer()
    try:
        for read in reads:
            read(text)
    except TimeoutError:
        return True
    return False


@pytest.mark.slow
def test_no_text_keeps_a_pattern_busy(timer):
    texts = [(unit * LENGTH)[:LENGTH] + end for unit, end in product(REPEATED, ENDS)]
    known = patterns()
    assert len(known) > 100
    busy = [
        (name, text[:9], text[-1:])
        for name, pattern in known.items()
        for text in texts
        if time_out(timer, text, pattern.search, pattern.fullmatch)
    ]
    assert busy == []


def test_a_pattern_of_nested_repeats_is_noticed(timer):
    assert time_out(timer, "a" * LENGTH, re.compile("(a+)+b").search)


def test_texts_of_any_length_take_linear_time(timer):
    assert not time_out(timer, "\n" * 100_000, literal)
