import gc
import time
from concurrent.futures import ThreadPoolExecutor

from app.components.new_run.field_shapes import (
    HIDDEN,
    OPTIONAL_PARTS,
    InputKind,
    attribute_docs,
    part_defaults,
    section_of,
    sections,
    split_symbol,
)
from app.components.widgets.spec_text import flatten
from app.requests import TrainSpec


def shapes_by_path():
    return {shape.path: shape for shapes in sections().values() for shape in shapes}


def test_every_field_of_the_specification_is_in_the_form():
    whole = TrainSpec().model_dump(mode="json") | {name: part_defaults(name) for name in OPTIONAL_PARTS}
    parts = {f"{name}.{field}" for name in OPTIONAL_PARTS for field in part_defaults(name)}
    assert set(shapes_by_path()) == set(flatten(whole)) - HIDDEN | parts


def test_the_runs_fields_come_before_those_of_its_resume():
    paths = [shape.path for shape in sections()["run"]]
    assert paths.index("tags") < paths.index("resume.experience") < paths.index("sft")


def test_every_hyperparameter_has_an_explanation():
    assert [shape.path for shape in sections()["algorithm"] if not shape.explanation and shape.label != "Seed"] == []


def test_paper_symbols_are_read_from_the_docstrings():
    symbols = {path: shape.symbol for path, shape in shapes_by_path().items() if shape.symbol}
    assert symbols["algorithm.experience_ratio"] == "\N{GREEK SMALL LETTER RHO}"
    assert symbols["algorithm.bucket_center"] == "\N{GREEK SMALL LETTER MU}"
    assert symbols["algorithm.bucket_spread"] == "\N{GREEK SMALL LETTER SIGMA}"
    assert symbols["algorithm.shaping_beta"] == "\N{GREEK SMALL LETTER BETA}"
    assert symbols["algorithm.rollouts_per_question"] == "K"
    assert split_symbol("rho: share of groups.")[1] == "Share of groups."


def test_types_choose_the_widgets():
    kinds = {path: (shape.kind, shape.is_optional) for path, shape in shapes_by_path().items()}
    assert kinds["num_steps"] == (InputKind.WHOLE_NUMBER, False)
    assert kinds["validation.interval"] == (InputKind.OPTIONAL_NUMBER, True)
    assert kinds["algorithm.start_pass_rate"] == (InputKind.OPTIONAL_NUMBER, True)
    assert kinds["algorithm.shapes_policy"] == (InputKind.SWITCH, False)
    assert kinds["algorithm.mask_range"] == (InputKind.CORRECTNESS_RANGE, True)
    assert kinds["recording.loggers"] == (InputKind.CHOICES, False)
    assert kinds["tags"] == (InputKind.WORDS, False)
    assert kinds["external_experience"] == (InputKind.TEXT, True)
    assert shapes_by_path()["algorithm.clipping"].options == ("before_start", "always", "never")


def test_abbreviations_keep_their_capitals():
    labels = {shape.label for shapes in sections().values() for shape in shapes}
    assert {"KL coefficient", "GPUs per node", "Max tokens per GPU", "Number of steps"} <= labels


def test_a_path_into_a_value_belongs_to_the_section_of_its_field():
    assert section_of("verl.overrides.0") == "verl"
    assert section_of("algorithm.mask_range.low") == "algorithm"
    assert section_of("reward_model.source") == "algorithm"
    assert section_of("nothing") is None


class _Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        time.sleep(0.001)  # lets another thread continue, wherever the garbage collector comes by


def test_pages_of_several_browsers_read_the_fields_at_once():
    def read(_: int) -> None:
        for _ in range(10):
            for _ in range(20):
                _Cycle()
            assert attribute_docs(TrainSpec)["name"]

    thresholds = gc.get_threshold()
    gc.set_threshold(200)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(read, range(4)))
    finally:
        gc.set_threshold(*thresholds)
