import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.bounded_json import UnreadableFileError
from exgrpo_core.recording.lines import encode_line, parse_lines, read_tokens, tokens_line
from exgrpo_core.recording.record_file import pack
from tests.records import values_of

NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(min_size=1, max_size=6), JSON_VALUES, min_size=1, max_size=5))
def test_a_line_gives_back_its_fields_and_is_one_line(fields):
    line = encode_line("status", fields | {"at": "now"})
    assert line.count(b"\n") == 1
    assert parse_lines([line]) == [{"kind": "status"} | fields | {"at": "now"}]


def test_numbers_that_json_lacks_are_strings_that_float_reads():
    line = encode_line("x", {"values": [math.nan, math.inf, -math.inf, 1.5], "nested": {"x": math.nan}})
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    [event] = parse_lines([line])
    assert event["values"] == ["NaN", "Infinity", "-Infinity", 1.5]
    assert math.isnan(float(event["nested"]["x"]))


def test_text_with_a_lone_surrogate_is_written_and_comes_back():
    assert parse_lines([encode_line("x", {"reason": "half \ud800 pair"})])[0]["reason"] == "half \ud800 pair"


def test_a_line_without_a_time_has_that_of_the_line_before():
    lines = [
        b'{"kind":"a","at":"1"}', b'{"kind":"b"}', tokens_line(1, 1, {}), b'{"kind":"c","at":"2"}', b'{"kind":"d"}',
    ]  # fmt: skip
    assert [(line["kind"], line["at"]) for line in parse_lines(lines)] == [
        ("a", "1"), ("b", "1"), ("c", "2"), ("d", "2"),
    ]  # fmt: skip


VALUES = {
    "token_ids": np.array([0, 70_000, 2**31 - 1], np.int32),
    "log_probs": np.array([-0.1, -np.inf, np.nan], np.float32),
    "entropies": np.array([0.5, 1e9, 0.0], np.float32),
}


def test_values_of_tokens_come_back_and_are_base64_of_planes_of_bytes(tmp_path):
    path = tmp_path / "record"
    members = [pack([], [tokens_line(step, 7, VALUES, is_replayed=step == 2)]) for step in (1, 2)]
    path.write_bytes(b"".join(members))
    second = len(members[0])
    found = read_tokens(path, "0", 7)
    assert found["token_ids"] == VALUES["token_ids"].tolist()
    np.testing.assert_equal(found["log_probs"], VALUES["log_probs"].tolist())
    assert found["entropies"] == [0.5, math.inf, 0.0]
    assert found["behavior_log_probs"] is None
    assert read_tokens(path, f"{second}", 7, 2)["token_ids"] == found["token_ids"]
    line = json.loads(tokens_line(1, 7, VALUES))
    assert values_of(line["token_ids"], "token_ids").tolist() == found["token_ids"]
    for place, trajectory_id, step in (
        ("0", 8, None),
        ("0", 7, 1),
        (f"{second}", 7, None),
        ("3", 7, None),
        ("0:a", 7, None),
    ):
        with pytest.raises(KeyError):
            read_tokens(path, place, trajectory_id, step)


@pytest.mark.parametrize(
    "changed",
    [
        {"token_ids": "AA"}, {"token_ids": 7}, {"token_ids": "?"}, {"entropies": "AAA="}, {"token_ids": "/" * 16},
    ],
)  # fmt: skip
def test_values_of_tokens_that_no_run_writes_are_refused(tmp_path, changed):
    line = json.loads(tokens_line(1, 7, VALUES)) | changed
    (tmp_path / "record").write_bytes(pack([], [encode_line("tokens", {name: line[name] for name in [*line][1:]})]))
    with pytest.raises(UnreadableFileError):
        read_tokens(tmp_path / "record", "0", 7)
