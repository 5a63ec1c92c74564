import json
import shlex
from datetime import date
from itertools import pairwise

import pytest
import yaml

from app.components.widgets.spec_text import as_yaml, differences, flatten, option_text, shell_command
from app.requests import TrainSpec, check, load_preset, preset_names
from jobs.specs.settings import apply_settings


def test_differences_name_the_changed_fields_only():
    before = {"a": 1, "b": {"c": [1], "d": "x"}, "preset": None}
    after = {"a": 1, "b": {"c": [1, 2], "d": "x"}, "preset": "p"}
    differing = differences(before, after)
    assert [(change.path, change.before, change.after) for change in differing] == [("b.c", [1], [1, 2])]


def test_mask_range_is_one_field():
    mask = {"low": 0.25, "high": 0.75}
    assert flatten({"algorithm": {"mask_range": mask}}) == {"algorithm.mask_range": mask}


def test_text_that_yaml_would_read_as_something_else_is_quoted():
    assert option_text("on-policy") == "on-policy"
    assert option_text("yes") == '"yes"'
    assert option_text("12") == '"12"'
    assert option_text(None) == "null"
    assert option_text(["a", "b"]) == '["a", "b"]'


def test_command_stands_for_the_form():
    preset = load_preset(preset_names()[0])
    content = preset.model_dump(mode="json")
    content |= {"name": "seed 12 @x", "num_steps": 7, "tags": ["a b", "c"]}
    content["algorithm"] |= {"bucket_spread": 0.125, "start_pass_rate": None}
    wanted = check(content).requested
    command = shell_command(preset.preset, differences(preset.model_dump(mode="json"), content))
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:4] == ["exgrpo", "train", "--preset", preset.preset]
    settings = [word for flag, word in pairwise(words) if flag == "--set"]
    assert apply_settings(preset, settings) == wanted


def test_many_changes_are_told_by_a_file():
    changes = differences({}, {f"field_{index}": index for index in range(20)})
    assert shell_command("p", changes) == "exgrpo train --spec run.yaml"


def test_yaml_reads_back_as_the_same_specification():
    spec = TrainSpec()
    assert check(yaml.safe_load(as_yaml(spec.model_dump(mode="json")))).requested == spec


@pytest.mark.parametrize("text", ["[x", "{", "@foo", "a: b: c", "2024-02-30", "[" * 5000, "1e5", "&a b"])
def test_text_that_yaml_does_not_read_as_itself_is_quoted(text):
    assert option_text(text) == json.dumps(text)


def test_a_date_is_written_as_text():
    assert option_text(date(2024, 1, 1)) == '"2024-01-01"'
