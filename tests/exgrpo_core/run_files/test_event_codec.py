import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.run_files.event_codec import is_event
from exgrpo_core.run_files.event_lines import decode_line, encode_event

pytestmark = pytest.mark.slow

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(min_size=1, max_size=6), JSON_VALUES, min_size=1, max_size=5))
def test_a_line_gives_back_its_event_and_is_one_line(event):
    line = encode_event(event)
    assert line.count(b"\n") == 1
    assert decode_line(line[:-1]) == event


@given(st.text(min_size=1), st.data())
def test_a_changed_byte_is_noticed(text, data):
    line = bytearray(encode_event({"seq": 1, "reason": text})[:-1])
    position = data.draw(st.integers(0, len(line) - 1))
    line[position] ^= data.draw(st.integers(1, 255))
    assert decode_line(bytes(line)) is None


@pytest.mark.parametrize("length", [0, 1, 20, -1])
def test_a_cut_line_is_noticed(length):
    line = encode_event({"seq": 1, "kind": "status", "status": "running"})[:-1]
    assert decode_line(line[:length]) is None


def test_numbers_that_json_lacks_are_strings_that_float_reads():
    line = encode_event({"values": [math.nan, math.inf, -math.inf, 1.5], "nested": {"x": math.nan}})
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    event = decode_line(line[:-1])
    assert event is not None
    assert event["values"] == ["NaN", "Infinity", "-Infinity", 1.5]
    assert math.isnan(float(event["nested"]["x"]))


def test_text_with_a_lone_surrogate_is_written_and_comes_back():
    line = encode_event({"reason": "half \ud800 pair"})
    assert decode_line(line[:-1]) == {"reason": "half \ud800 pair"}


@pytest.mark.parametrize("name", ["seq", "attempt", "step"])
def test_a_number_below_zero_makes_no_event(name):
    event = {"seq": 1, "attempt": 1, "step": 1, "kind": "evaluation"}
    assert is_event(event)
    assert not is_event(event | {name: -1})
