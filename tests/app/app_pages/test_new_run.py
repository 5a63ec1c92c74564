import json
import re
from types import SimpleNamespace

import pytest

from exgrpo.app import settings
from exgrpo.app.components.new_run import data_preview
from exgrpo.app.components.new_run.where import Where
from exgrpo.app.formats import with_code
from exgrpo.jobs.actions import queueing
from exgrpo.jobs.actions.preflight.looks import FirstLook
from exgrpo.jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.people import Person, Role, identify_by
from exgrpo.jobs.specs.train import preset_description, preset_group, preset_names
from tests.app.charts import figures
from tests.app.page_texts import field, has_text, texts

pytestmark = pytest.mark.slow

PRESET_FORM = "preset-chains-exgrpo"


def mistakes(page):
    written = [element.value for element in page.markdown if re.match(r"[^ :]+(, [^ :]+)*\\: ", element.value)]
    return [re.sub(r"\\(.)", r"\1", text) for text in written]


def open_section(page, title):
    page.query_params["section"] = title
    page.run()


def test_form_starts_from_the_demo_preset_and_launches_a_run_of_it(runs_root, open_page):
    page = open_page("new_run")
    assert page.selectbox(key="choose-preset").value == "chains-exgrpo"
    assert has_text(page, "Ready to launch")
    assert page.code[0].value == "exgrpo train --preset chains-exgrpo"
    assert len(page.get("download_button")) == 1  # scripts are for runs of verl
    field(page, "num_steps").set_value(7).run()
    field(page, "num_steps").set_value(None).run()
    assert field(page, "num_steps").value == 7
    field(page, "name").set_value("my run").run()
    assert mistakes(page) == []
    page.button(key="launch").click().run()
    (folder,) = [path for path in runs_root.iterdir() if path.name != "workbench"]
    spec = json.loads((folder / "spec.json").read_text())
    assert (spec["name"], spec["num_steps"]) == ("my run", 7)
    assert page.query_params["run"] == folder.name


def test_presets_are_in_groups_with_a_description_and_the_first_of_all_is_the_demo(open_page):
    page = open_page("new_run", section="Data")
    assert field(page, "data.min_operations").value == 3
    (groups,) = page.get("button_group")
    assert groups.options == ["Built-in task", "Your data", "The paper"]
    for group, first in {"the paper": "paper-exgrpo", "your data": "qwen-0.5b"}.items():
        page.get("button_group")[0].set_value(group).run()
        chosen = page.selectbox(key="choose-preset")
        assert chosen.value == first
        assert {preset_group(name.split()[0]) for name in chosen.options} == {group}
        assert has_text(page, with_code(preset_description(first)))
        assert field(page, "data.num_held_out").label == "Number of held-out questions"
        assert not [widget.key for widget in page.number_input if "min_operations" in widget.key]
    assert preset_names()[0] == "chains-exgrpo"


@pytest.mark.parametrize("words", ["\u03bc", "correctness rate peak"])
def test_a_setting_is_found_by_symbol_name_or_explanation_in_any_section(open_page, words):
    page = open_page("new_run", section="YAML")
    page.text_input(key="new-run-search").set_value(words).run()
    field(page, "algorithm.bucket_center").set_value(0.75).run()
    assert "--set algorithm.bucket_center=0.75" in page.code[0].value
    page.text_input(key="new-run-search").set_value("no such setting").run()
    assert has_text(page, "0 settings in all sections")
    assert "--set algorithm.bucket_center=0.75" in page.code[0].value


def test_the_settings_of_a_method_of_ones_own_are_found_in_the_form_with_their_ranges(open_page, monkeypatch):
    monkeypatch.setenv("EXGRPO_ALLOWED_CODE", "tests")
    chosen = "tests.exgrpo_core.methods.outside_rules:Shortest"
    page = open_page("new_run", section="Algorithm", set=[f"algorithm.trajectory_selection={chosen}"])
    page.text_input(key="new-run-search").set_value("least_tokens").run()
    assert has_text(page, "1 setting in all sections")
    assert has_text(page, "`least_tokens` is a number of at least 0, needed.")
    assert field(page, "algorithm.trajectory_selection").value == chosen
    assert page.button(key="launch").disabled


def test_change_shows_in_command_and_chart(open_page):
    page = open_page("new_run", section="Algorithm")
    field(page, "algorithm.bucket_spread").set_value(0.125).run()
    assert "--set algorithm.bucket_spread=0.125" in page.code[0].value
    assert has_text(page, "Most likely bucket : least likely = 90")
    assert has_text(page, "1 change")


@pytest.mark.parametrize(
    ("preset", "num_charts", "words"),
    [
        ("chains-exgrpo", 1, ""),
        ("chains-trl-replay", 0, "Stored groups in proportion to sum"),
        ("paper-exgrpo", 1, "| KV cache |"),
    ],
)
def test_presets_fill_the_form_unchanged_and_draws_by_bucket_weights_have_a_chart(open_page, preset, num_charts, words):
    page = open_page("new_run", preset=preset, section="Algorithm")
    assert page.selectbox(key="choose-preset").value == preset
    assert f"exgrpo train --preset {preset}" in [block.value for block in page.code]
    assert len(figures(page)) == num_charts
    assert has_text(page, words)


def test_a_model_that_is_not_on_this_machine_is_not_called_ready(open_page):
    page = open_page("new_run", section="Model")
    field(page, "model.source").set_value("Qwen/No-Such-Model").run()
    assert has_text(page, "the model is not checked")
    assert has_text(page, "fails if the hub has no model of this name")
    assert not has_text(page, "Ready to launch")
    assert not page.button(key="launch").disabled


def test_a_ray_cluster_needs_its_address_and_takes_overrides(open_page):
    page = open_page("new_run", section="verl engine")
    page.radio(key=f"{PRESET_FORM}-where").set_value(Where.CLUSTER.value).run()
    assert any(text.startswith("verl.ray.address: ") for text in mistakes(page))
    field(page, "verl.overrides").set_value("trainer.logger=[console,wandb]\nreward.num_workers=3").run()
    field(page, "verl.ray.address").set_value("http://127.0.0.1:8265").run()
    assert any("Ready to launch" in text for text in texts(page))
    assert """--set 'verl.overrides=["trainer.logger=[console,wandb]", "reward.num_workers=3"]'""" in page.code[0].value
    assert "--set verl.ray.address=http://127.0.0.1:8265" in page.code[0].value
    page.radio(key=f"{PRESET_FORM}-where").set_value(Where.MACHINE.value).run()
    assert any(text.startswith("verl.overrides: expected none") for text in mistakes(page))


def test_the_time_on_the_gpus_of_a_preset_is_estimated_without_them(open_page):
    page = open_page("new_run", preset="paper-exgrpo")
    assert has_text(page, "Time on H100 80 GB, coarsely: 2 min 11 s per step, 1 d 1 h in all")


def test_a_disk_that_may_become_full_is_said_beside_other_mistakes_and_blocks_no_launch(
    runs_root, open_page, monkeypatch
):
    monkeypatch.setattr(
        "exgrpo.jobs.actions.preflight.machine_fit.shutil.disk_usage", lambda _: SimpleNamespace(free=1000)
    )
    page = open_page("new_run", section="Model")
    assert has_text(page, "Ready to launch")
    assert has_text(page, "or use another disk\\: `--runs-root FOLDER`")
    field(page, "model.source").set_value("./gone").run()
    assert any(text.startswith("model.source: ") for text in mistakes(page))
    assert has_text(page, "The disk may become full")
    assert page.button(key="launch").disabled
    assert "--set model.source=./gone" in page.code[-1].value
    page = open_page("new_run")
    page.radio(key=f"{PRESET_FORM}-where").set_value(Where.CLUSTER.value).run()
    assert has_text(page, "Ready for a script")
    assert not has_text(page, "The disk may become full")  # it is another machine's
    assert not has_text(page, "changed]")  # its address was none, and is empty
    page = open_page("new_run")
    page.button(key="launch").click().run()
    assert (runs_root / page.query_params["run"] / "spec.json").is_file()


def test_a_mistake_beside_its_field_keeps_names_and_commands_as_they_are_written(open_page, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '{\"vllm\": null}'\n")
    python.chmod(0o755)
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(python))
    page = open_page("new_run", preset="paper-exgrpo")
    written = [element.value for element in page.markdown if "vllm is not installed" in element.value.lower()]
    beside = [text for text in written if "material/error" in text]
    assert len(beside) == 1
    assert "vLLM is not installed" in beside[0]
    assert "`make verl-env GPU=1`" in beside[0]
    (in_the_summary,) = [text for text in mistakes(page) if "vLLM is not installed" in text]
    assert "`make verl-env GPU=1`" in in_the_summary


def test_parts_that_a_preset_sets_are_in_the_form(open_page):
    page = open_page("new_run", preset="paper-wildchat-if", section="Algorithm")
    assert field(page, "reward_model.source").value == "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
    field(page, "reward_model").set_value(False).run()
    assert any(text.startswith("reward_model: expected one for continuous rewards") for text in mistakes(page))


def test_the_text_of_the_specification_is_edited_with_the_checks_of_the_form(open_page):
    page = open_page("new_run", section="YAML")
    text = page.text_area(key="new-run-yaml").value
    page.text_area(key="new-run-yaml").set_value(text.replace("num_steps: 150", "num_steps: 7\ntypo: 1")).run()
    [mistake] = mistakes(page)
    assert mistake.startswith("typo: there is no such field; ")
    page.text_area(key="new-run-yaml").set_value(text.replace("num_steps: 150", "num_steps: [")).run()
    assert mistakes(page)[0].startswith("YAML: line 84, column ")
    page.text_area(key="new-run-yaml").set_value("tags: [&a x, *a]").run()
    assert "aliases" in mistakes(page)[0]
    page.text_area(key="new-run-yaml").set_value(text.replace("num_steps: 150", "num_steps: 7")).run()
    assert "--set num_steps=7" in page.code[0].value
    assert not page.button(key="launch").disabled
    open_section(page, "Run")
    assert field(page, "num_steps").value == 7


def test_every_mistake_is_told_at_once_beside_its_field_on_its_tab_and_in_the_summary(open_page):
    page = open_page("new_run", section="Optimizer")
    field(page, "optim.learning_rate").set_value(-1.0).run()
    open_section(page, "Algorithm")
    field(page, "algorithm.mini_batch_size").set_value(5).run()
    assert len(mistakes(page)) == 2
    assert page.button(key="launch").disabled
    labels = [tab.label for tab in page.tabs]
    assert [label.split(" :")[0] for label in labels if "error" in label] == ["Algorithm", "Optimizer"]
    assert any(":red[" in text and "divisor of batch" in text for text in texts(page))
    page.button(key="fix-1").click().run()
    assert field(page, "optim.learning_rate").value == -1.0


def test_numbers_that_only_a_method_knows_have_their_ranges_in_the_form_and_a_mistake_at_their_field(open_page):
    page = open_page("new_run", section="Algorithm")
    field(page, "algorithm.question_selection").set_value("fifo").run()
    assert has_text(page, "`capacity` is a whole number of at least 1, 256 if not given.")
    assert has_text(page, "Questions whose newest group is in the queue.")
    field(page, "algorithm.strategy_settings").set_value("capacity=0").run()
    expected = "strategy_settings.capacity: expected a whole number of at least 1, got 0.0."
    assert mistakes(page) == [f"algorithm.{expected}"]
    (beside,) = [text for text in texts(page) if "material/error" in text and "capacity" in text]
    assert "expected a whole number of at least 1" in beside
    assert page.button(key="launch").disabled
    field(page, "algorithm.strategy_settings").set_value("capacity=1").run()
    assert mistakes(page) == []


def test_changes_are_in_the_address_and_come_back_with_it(open_page):
    page = open_page("new_run")
    field(page, "num_steps").set_value(77).run()
    field(page, "name").set_value("a: name").run()
    changes = page.query_params["set"]
    again = open_page("new_run", set=changes)
    assert field(again, "num_steps").value == 77
    assert any("a: name" in text for text in mistakes(again))
    again.button(key="discard").click().run()
    assert field(again, "num_steps").value == 150
    assert "set" not in again.query_params


@pytest.mark.parametrize("text", ["[&a x, *a]", "[" * 5000, "x" * 10_001])
def test_a_value_of_the_address_is_json_or_text_never_yaml_and_bounded(open_page, text):
    page = open_page("new_run", set=f"name={text}")
    expected = text if len(text) <= 10_000 else "chains ExGRPO"
    assert page.session_state["new-run-form"].value("name") == expected


@pytest.mark.parametrize(
    ("query", "title"),
    [({"from": "nothing"}, "Cannot clone that run"), ({"draft": "../../etc"}, "Cannot open that draft")],
)
def test_an_unknown_source_of_the_form_is_one_sentence(open_page, query, title):
    assert has_text(open_page("new_run", **query), title)


def test_refused_launch_says_why_beside_the_button(open_page, monkeypatch):
    page = open_page("new_run")

    def refuse(*_, **__):
        raise CommandError("runs: cannot be written.")

    monkeypatch.setattr(queueing, "queue_checked", refuse)
    page.button(key="launch").click().run()
    assert any(element.value == "runs: cannot be written." for element in page.text)
    assert any("Could not launch" in text for text in texts(page))


@pytest.mark.usefixtures("recorded_runs")
def test_clone_has_a_name_of_its_own_and_its_parent(runs_root, open_page):
    page = open_page("new_run", **{"from": "run-on-policy"})
    name = field(page, "name").value
    assert name.endswith(" copy")
    page.button(key="launch").click().run()
    info = json.loads((runs_root / page.query_params["run"] / "run.json").read_text())
    assert (info["name"], info["parent_run_id"]) == (name, "run-on-policy")


def test_preview_shows_first_prompts_and_their_lengths_when_it_is_opened(open_page):
    page = open_page("new_run")
    assert not any("Question 1" in text for text in texts(page))
    page = open_page("new_run", **{"data-preview": "true"})
    assert any(text.startswith("Question 1") for text in texts(page))
    assert any(element.value.startswith("Q") for element in page.code)


@pytest.mark.parametrize("look", [None, FirstLook(False, "weights that are")])
def test_the_first_look_at_the_model_is_taken_once_when_it_is_opened(open_page, monkeypatch, look):
    taken = []
    monkeypatch.setattr(data_preview, "first_look", lambda spec: taken.append(spec.model.source) or look)
    page = open_page("new_run")
    assert not taken
    page.session_state["first-look"] = True
    page.run()
    field(page, "num_steps").set_value(7).run()
    assert taken == ["chains-warm"]
    assert has_text(page, look.sentence if look else "is checked when the run starts")


def test_draft_is_kept_opened_again_and_deleted_by_operators(runs_root, open_page):
    page = open_page("new_run")
    field(page, "name").set_value("half done").run()
    open_section(page, "Algorithm")
    field(page, "algorithm.mini_batch_size").set_value(5)
    page.button(key="save-draft").click().run()
    assert (runs_root / "workbench" / "drafts" / "half done.yaml").is_file()
    page = open_page("new_run", draft="half done", section="Algorithm")
    assert field(page, "algorithm.mini_batch_size").value == 5
    assert page.button(key="launch").disabled
    identify_by(lambda: Person("viewer@example.org", Role.VIEWER))
    page.button(key="delete-draft-half done").click().run()
    assert has_text(page, "needs the role operator")
    assert (runs_root / "workbench" / "drafts" / "half done.yaml").is_file()
    identify_by(settings.current_person)
    page.button(key="delete-draft-half done").click().run()
    assert not (runs_root / "workbench" / "drafts" / "half done.yaml").is_file()


def test_a_data_file_that_is_handed_in_is_kept_and_chosen_and_one_without_questions_is_refused(runs_root, open_page):
    rows = b'{"problem": "1+1?", "answer": 2}\n'
    page = open_page("new_run", section="Data")
    page.file_uploader(key="new-run-file").set_value(("My sums.jsonl", rows, "text/plain")).run()
    kept = runs_root / "workbench" / "data" / "my_sums.jsonl"
    assert field(page, "data.source").value == str(kept)
    assert kept.read_bytes() == rows
    assert f"data.source={kept}" in page.query_params["set"]
    page.file_uploader(key="new-run-file").set_value(("bad.jsonl", b'{"text": "no question"}\n', "text/plain")).run()
    assert has_text(page, "Not taken")
    assert field(page, "data.source").value == str(kept)
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    page = open_page("new_run", section="Data", set="data.answer_kind=choice")
    page.file_uploader(key="new-run-file").set_value(("w.jsonl", rows.replace(b"2", b'"two"'), "text/plain")).run()
    assert has_text(page, "expected an option label")
