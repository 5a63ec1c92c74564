import json
import shlex
from datetime import date
from itertools import pairwise

import pytest
import yaml

from exgrpo.app.components.new_run.form_check import check
from exgrpo.app.components.widgets.spec_text import as_yaml, option_text, shell_command
from exgrpo.db.rows.spec_differences import differences
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import load_preset, preset_names

pytestmark = pytest.mark.slow


def test_differences_name_the_changed_fields_only():
    before = {"a": 1, "b": {"c": [1], "d": "x", "mask_range": {"low": 0.25}}, "preset": None}
    after = {"a": 1, "b": {"c": [1, 2], "d": "x", "mask_range": {"low": 0.5}}, "preset": "p"}
    differing = [(change.path, change.before, change.after) for change in differences(before, after)]
    assert differing == [("b.c", [1], [1, 2]), ("b.mask_range", {"low": 0.25}, {"low": 0.5})]


def test_command_stands_for_the_form():
    preset = load_preset(preset_names()[0])
    content = preset.model_dump(mode="json")
    content |= {"name": "seed 12 @x", "num_steps": 7, "tags": ["a b", "c"]}
    content["algorithm"] |= {"bucket_spread": 0.125, "start_pass_rate": None}
    wanted = check(content, "", None).spec
    command = shell_command(
        f"exgrpo train --preset {preset.preset}", differences(preset.model_dump(mode="json"), content)
    )
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:4] == ["exgrpo", "train", "--preset", preset.preset]
    settings = [word for flag, word in pairwise(words) if flag == "--set"]
    assert apply_settings(preset, settings) == wanted
    assert check(yaml.safe_load(as_yaml(wanted.model_dump(mode="json"))), "", None).spec == wanted
    many = differences({}, {f"field_{index}": index for index in range(20)})
    assert shell_command("exgrpo train --preset p", many) == "exgrpo train --spec run.yaml"


@pytest.mark.parametrize(
    "value", ["true", "12", None, ["a", "b"], "[x", "{", "@foo", "a: b: c", "[" * 5000, "1e5", "&a b"]
)
def test_what_yaml_does_not_read_as_itself_is_written_as_json(value):
    assert option_text(value) == json.dumps(value)
    assert (option_text("on-policy"), option_text(date(2024, 1, 1))) == ("on-policy", '"2024-01-01"')
