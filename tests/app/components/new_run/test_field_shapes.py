import gc
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import pytest

from exgrpo.app.components.new_run import field_shapes
from exgrpo.app.components.new_run.field_shapes import (
    HIDDEN,
    OPTIONAL_PARTS,
    part_defaults,
    part_texts,
    section_of,
    sections,
)
from exgrpo.db.rows.spec_differences import flatten
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.methods.loading import ALLOWED_CODE_VARIABLE
from exgrpo_core.strategies.ablations import Uniform

pytestmark = pytest.mark.slow

SHAPES = {shape.path: shape for shapes in sections().values() for shape in shapes}


def test_every_field_of_the_specification_is_in_the_form():
    whole = TrainSpec().model_dump(mode="json") | {name: part_defaults(name) for name in OPTIONAL_PARTS}
    parts = {f"{name}.{field}" for name in OPTIONAL_PARTS for field in part_defaults(name)}
    assert set(SHAPES) == set(flatten(whole)) - HIDDEN | parts


def test_a_path_into_a_value_belongs_to_the_section_of_its_field():
    assert section_of("verl.overrides.0") == "verl"
    assert section_of("algorithm.mask_range.low") == "algorithm"
    assert section_of("reward_model.source") == "algorithm"
    assert section_of("nothing") is None


def test_a_part_of_ones_own_is_described_with_its_numbers_where_it_is_allowed(monkeypatch):
    name = "tests.exgrpo_core.methods.outside_rules:FewQuestions"
    assert part_texts("algorithm.question_selection", name) == []
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    assert part_texts("algorithm.question_selection", name) == [
        "A queue by another name.",
        "`capacity` is a whole number of at least 1, 256 if not given. Questions whose newest group is in the queue.",
    ]


@dataclass(frozen=True, slots=True)
class Limited(Uniform):
    """Stores up to a limit."""

    name: ClassVar[str] = "limited"
    limit: float | None = None
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Unreadable(Uniform):
    name: ClassVar[str] = "unreadable"
    limit: "NotImported" = 1.0  # noqa: F821 - what is tested


def test_a_part_of_ones_own_may_have_no_number_as_default_and_an_annotation_that_cannot_be_read(monkeypatch):
    monkeypatch.setenv(ALLOWED_CODE_VARIABLE, "tests")
    assert part_texts("algorithm.question_selection", f"{__name__}:Limited") == [
        "Stores up to a limit.", "`limit` is a number, None if not given.", "`share` is a number, 0.5 if not given.",
    ]  # fmt: skip
    assert part_texts("algorithm.question_selection", f"{__name__}:Unreadable") == []


def test_pages_of_several_browsers_read_the_fields_at_once():
    def let_another_thread_continue(_phase, _info):
        time.sleep(0.001)

    thresholds = gc.get_threshold()
    gc.set_threshold(200)
    gc.callbacks.append(let_another_thread_continue)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert all(docs["name"] for docs in threads.map(field_shapes.attribute_docs, [TrainSpec] * 40))
    finally:
        gc.callbacks.remove(let_another_thread_continue)
        gc.set_threshold(*thresholds)
