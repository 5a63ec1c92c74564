import json

import pytest

from app import commands
from app.roles import Person, Role

PRESET_FORM = "preset-chains-exgrpo"


def texts(page):
    return [element.value for element in [*page.text, *page.markdown, *page.subheader, *page.caption]]


def test_form_starts_from_the_demo_preset_and_is_ready(open_page):
    page = open_page("new_run")
    assert not page.exception
    assert page.selectbox(key="preset").value == "chains-exgrpo"
    assert any("Ready to launch" in text for text in texts(page))
    assert page.code[0].value == "exgrpo train --preset chains-exgrpo"
    assert len(page.get("plotly_chart")) == 1


def test_change_shows_in_command_and_chart(open_page):
    page = open_page("new_run")
    page.number_input(key=f"{PRESET_FORM}-algorithm-bucket_spread").set_value(0.125).run()
    assert "--set algorithm.bucket_spread=0.125" in page.code[0].value
    assert any("Largest over smallest weight: 90" in text for text in texts(page))
    assert any("1 change" in text for text in texts(page))


def test_wrong_field_is_named_at_once_and_cannot_be_launched(open_page):
    page = open_page("new_run")
    page.number_input(key=f"{PRESET_FORM}-algorithm-mini_batch_size").set_value(5).run()
    assert not page.exception
    assert any("mini_batch_size: expected a divisor of batch_size" in element.value for element in page.text)
    assert page.button(key="launch").disabled


def test_optional_number_can_be_cleared(open_page):
    page = open_page("new_run")
    page.number_input(key=f"{PRESET_FORM}-validation-interval").set_value(None).run()
    assert "--set validation.interval=null" in page.code[0].value
    assert not page.button(key="launch").disabled


def test_on_policy_preset_has_no_bucket_chart(open_page):
    page = open_page("new_run", preset="chains-on-policy")
    assert page.selectbox(key="preset").value == "chains-on-policy"
    assert not page.get("plotly_chart")


@pytest.mark.parametrize("preset", ["paper-exgrpo", "chains-masked-medium", "chains-vanilla-replay"])
def test_other_presets_fill_the_form_unchanged(open_page, preset):
    page = open_page("new_run", preset=preset)
    assert not page.exception
    assert page.code[0].value == f"exgrpo train --preset {preset}"


def test_launch_queues_the_run_and_opens_its_page(runs_root, open_page):
    page = open_page("new_run")
    page.text_input(key=f"{PRESET_FORM}-name").set_value("my run").run()
    page.button(key="launch").click().run()
    assert not page.exception
    (folder,) = [path for path in runs_root.iterdir() if path.name != "workbench"]
    assert json.loads((folder / "spec.json").read_text())["name"] == "my run"
    assert page.query_params["run"] == folder.name


def test_overrides_and_the_ray_address_of_the_verl_engine_show_in_the_command(open_page):
    page = open_page("new_run")
    page.selectbox(key=f"{PRESET_FORM}-engine").set_value("verl").run()
    page.text_area(key=f"{PRESET_FORM}-verl-overrides").set_value("trainer.logger=[console,wandb]\ndata.seed=3").run()
    page.text_input(key=f"{PRESET_FORM}-verl-ray-address").set_value("http://127.0.0.1:8265").run()
    assert not page.exception
    assert any("Ready to launch" in text for text in texts(page))
    assert """--set 'verl.overrides=["trainer.logger=[console,wandb]", "data.seed=3"]'""" in page.code[0].value
    assert "--set verl.ray.address=http://127.0.0.1:8265" in page.code[0].value


def test_unknown_run_to_clone_is_one_sentence(open_page):
    page = open_page("new_run", **{"from": "nothing"})
    assert not page.exception
    assert any("Cannot clone that run" in text for text in texts(page))


def test_missing_data_file_is_named_while_one_types(open_page):
    page = open_page("new_run", preset="paper-exgrpo")
    page.text_input(key="preset-paper-exgrpo-data-source").set_value("missing.parquet").run()
    assert not page.exception
    assert any(element.value.startswith("data.source: expected a file or folder") for element in page.text)
    assert page.button(key="launch").disabled
    assert not any("Ready to launch" in text for text in texts(page))
    assert "--set data.source=missing.parquet" in page.code[0].value


def test_preview_shows_first_prompts_and_their_lengths_when_it_is_opened(open_page):
    page = open_page("new_run")
    assert not any("Question 1" in text for text in texts(page))
    page = open_page("new_run", **{"data-preview": "true"})
    assert not page.exception
    assert any(text.startswith("Question 1") for text in texts(page))
    assert any(element.value.startswith("Q") for element in page.code)


def test_estimates_stand_beside_the_launch_button(open_page):
    shown = texts(open_page("new_run", preset="paper-exgrpo"))
    assert any(text.startswith("Disk: about 14.5 GB of recordings and 365.5 GB of checkpoints") for text in shown)


@pytest.mark.usefixtures("recorded_runs")
def test_differences_from_an_earlier_run_are_listed(open_page):
    page = open_page("new_run", against="run-on-policy")
    assert not page.exception
    table = page.dataframe[0].value
    changes = dict(zip(table["Field"], zip(table["Other run"], table["This run"], strict=True), strict=True))
    assert changes["num_steps"] == ("30", "150")
    page.selectbox(key="diff-choice").set_value("").run()
    assert any(text == "None." for text in texts(page))


def test_draft_is_kept_opened_again_and_deleted(runs_root, open_page):
    page = open_page("new_run")
    page.text_input(key=f"{PRESET_FORM}-name").set_value("half done").run()
    page.number_input(key=f"{PRESET_FORM}-algorithm-mini_batch_size").set_value(5).run()
    page.button(key="save-draft").click().run()
    assert not page.exception
    assert (runs_root / "workbench" / "drafts" / "half done.yaml").is_file()
    page = open_page("new_run", draft="half done")
    assert page.number_input(key="draft-half done-algorithm-mini_batch_size").value == 5
    assert page.button(key="launch").disabled
    page.button(key="delete-draft-half done").click().run()
    assert not (runs_root / "workbench" / "drafts" / "half done.yaml").is_file()


def test_a_viewer_who_deletes_a_draft_is_told_why_it_stays(runs_root, open_page, monkeypatch):
    commands.save_draft("kept", {"name": "kept"})
    page = open_page("new_run")
    monkeypatch.setattr(commands, "current_person", lambda: Person("viewer@example.org", Role.VIEWER))
    page.button(key="delete-draft-kept").click().run()
    assert not page.exception
    assert (runs_root / "workbench" / "drafts" / "kept.yaml").is_file()
    assert any("needs the role operator" in text for text in texts(page))


def test_draft_that_is_not_there_is_one_sentence(open_page):
    page = open_page("new_run", draft="../../etc")
    assert not page.exception
    assert any("Cannot open that draft" in text for text in texts(page))
