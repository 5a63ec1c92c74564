import math

import pytest

from exgrpo.app.components.new_run.field_input import raw_of, value_of
from exgrpo.app.components.new_run.field_shapes import sections

pytestmark = pytest.mark.slow

SHAPES = {shape.path: shape for shapes in sections().values() for shape in shapes}


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("validation.benchmarks", {"mine": None, "sums": "sums.jsonl"}, "mine=\nsums=sums.jsonl"),
        ("validation.benchmarks", {"mine": {"source": "a.jsonl"}}, 'mine={"source": "a.jsonl"}'),
        ("verl.ray.environment", {"NCCL_DEBUG": "1"}, "NCCL_DEBUG=1"),
    ],
)
def test_a_mapping_is_a_line_an_item(path, value, text):
    shape = SHAPES[path]
    assert raw_of(shape, value) == text
    edited = value_of(shape, f"{text}\nmore={{a: b}}\nodd={{d", value)
    assert edited == {name: item or "" for name, item in value.items()} | {"more": {"a": "b"}, "odd": "{d"}


@pytest.mark.parametrize(
    ("path", "value"),
    [("seed", 2**60), ("seed", -(2**60)), ("optim.beta1", 10**400), ("optim.beta1", math.inf), ("optim.beta1", True)],
)
def test_a_number_that_no_browser_holds_leaves_its_field_empty_and_stays(path, value):
    raw = raw_of(SHAPES[path], value)
    assert raw is None
    assert value_of(SHAPES[path], raw, value) is value


@pytest.mark.parametrize(
    ("text", "value"), [("", None), (" 8 ", 8), ("1e-4", 1e-4), ("-2", -2), ("many", "many"), ("1 000", "1 000")]
)
def test_an_optional_number_is_read_from_its_text(text, value):
    assert value_of(SHAPES["algorithm.start_pass_rate"], text, 0.5) == value
