import json
import re
from types import SimpleNamespace

import pytest

from app import requests
from app.components.new_run.where import Where
from app.roles import Person, Role
from jobs.launchers.ray_jobs_api import RayMachine
from jobs.machine.engine_environments import VERL_PYTHON_VARIABLE
from tests.app.form_fields import field
from tests.app.page_texts import has_text, texts

PRESET_FORM = "preset-chains-exgrpo"


def mistakes(page):
    """Return the sentences of the summary's list, in its order."""
    written = [element.value for element in page.markdown if re.match(r"[^ :]+(, [^ :]+)*\\: ", element.value)]
    return [re.sub(r"\\(.)", r"\1", text) for text in written]


def open_section(page, title):
    page.query_params["section"] = title
    page.run()


def test_form_starts_from_the_demo_preset_and_is_ready(open_page):
    page = open_page("new_run")
    assert not page.exception
    assert page.selectbox(key="choose-preset").value == "chains-exgrpo"
    assert any("Ready to launch" in text for text in texts(page))
    assert page.code[0].value == "exgrpo train --preset chains-exgrpo"
    assert len(page.get("plotly_chart")) == 1


def test_change_shows_in_command_and_chart(open_page):
    page = open_page("new_run", section="Algorithm")
    field(page, "algorithm.bucket_spread").set_value(0.125).run()
    assert "--set algorithm.bucket_spread=0.125" in page.code[0].value
    assert any("Most likely bucket : least likely = 90" in text for text in texts(page))
    assert any("1 change" in text for text in texts(page))


def test_wrong_field_is_named_at_once_and_cannot_be_launched(open_page):
    page = open_page("new_run", section="Algorithm")
    field(page, "algorithm.mini_batch_size").set_value(5).run()
    assert not page.exception
    assert any("mini_batch_size: expected a divisor of batch_size" in text for text in mistakes(page))
    assert page.button(key="launch").disabled


def test_typing_in_a_choice_of_several_adds_no_more_than_one(open_page):
    page = open_page("new_run", section="Recording")
    assert [picker.proto.select_all for picker in page.multiselect] == [False]


def test_optional_number_can_be_cleared_and_changed(open_page):
    page = open_page("new_run", section="Validation")
    field(page, "validation.interval").set_value("").run()
    assert "--set validation.interval=null" in page.code[0].value
    assert not page.button(key="launch").disabled
    field(page, "validation.interval").set_value("7").run()
    assert "--set validation.interval=7" in page.code[0].value
    field(page, "validation.interval").set_value("often").run()
    assert mistakes(page)[0].startswith("validation.interval: expected a whole number")
    assert field(page, "validation.interval").value == "often"


@pytest.mark.parametrize(
    ("preset", "num_charts"), [("chains-exgrpo", 1), ("chains-on-policy", 0), ("chains-trinity", 0)]
)
def test_only_draws_by_bucket_weights_have_their_chart(open_page, preset, num_charts):
    page = open_page("new_run", preset=preset)
    assert page.selectbox(key="choose-preset").value == preset
    assert len(page.get("plotly_chart")) == num_charts


@pytest.mark.parametrize("preset", ["paper-exgrpo", "chains-masked-medium", "chains-vanilla-replay"])
def test_other_presets_fill_the_form_unchanged(open_page, preset):
    page = open_page("new_run", preset=preset)
    assert not page.exception
    assert f"exgrpo train --preset {preset}" in [block.value for block in page.code]


def test_launch_queues_the_run_and_opens_its_page(runs_root, open_page):
    page = open_page("new_run")
    field(page, "name").set_value("my run").run()
    page.button(key="launch").click().run()
    assert not page.exception
    (folder,) = [path for path in runs_root.iterdir() if path.name != "workbench"]
    assert json.loads((folder / "spec.json").read_text())["name"] == "my run"
    assert page.query_params["run"] == folder.name


def test_a_ray_cluster_needs_its_address_and_takes_overrides(open_page):
    page = open_page("new_run", section="verl engine")
    page.radio(key=f"{PRESET_FORM}-where").set_value(Where.CLUSTER.value).run()
    assert any(text.startswith("verl.ray.address: expected an address") for text in mistakes(page))
    field(page, "verl.overrides").set_value("trainer.logger=[console,wandb]\nreward.num_workers=3").run()
    field(page, "verl.ray.address").set_value("http://127.0.0.1:8265").run()
    assert not page.exception
    assert any("Ready to launch" in text for text in texts(page))
    assert """--set 'verl.overrides=["trainer.logger=[console,wandb]", "reward.num_workers=3"]'""" in page.code[0].value
    assert "--set verl.ray.address=http://127.0.0.1:8265" in page.code[0].value
    page.radio(key=f"{PRESET_FORM}-where").set_value(Where.MACHINE.value).run()
    assert any(text.startswith("verl.overrides: expected none") for text in mistakes(page))


def test_known_clusters_are_offered_and_the_run_is_queued_for_the_chosen_one(runs_root, open_page):
    addresses = {"first": "http://127.0.0.1:8265", "second": "http://127.0.0.1:8266"}
    for name, address in addresses.items():
        requests.save_cluster(name, address)
    page = open_page("new_run", section="verl engine")
    page.radio(key=f"{PRESET_FORM}-where").set_value(Where.CLUSTER.value).run()
    assert page.selectbox(key=f"{PRESET_FORM}-cluster").value == "first"
    page.selectbox(key=f"{PRESET_FORM}-cluster").set_value("second").run()
    assert field(page, "verl.ray.address").value == addresses["second"]
    page.button(key="launch").click().run()
    assert not page.exception
    spec = json.loads((runs_root / page.query_params["run"] / "spec.json").read_text())
    assert (spec["engine"], spec["verl"]["ray"]["address"]) == ("verl", addresses["second"])


def test_the_chosen_clusters_gpus_and_the_time_of_a_step_are_beside_the_launch_button(open_page, monkeypatch):
    requests.save_cluster("ours", "http://127.0.0.1:8265")
    state = requests.RayClusterState("2.60.0", (RayMachine("a", 4, 3), RayMachine("b", 4, 0)), ("run-0001",), ())
    monkeypatch.setattr(requests, "ask_cluster", lambda _name: state)
    page = open_page("new_run", preset="paper-exgrpo")
    assert has_text(page, "Time on H100s, coarsely: 2 min 11 s per step, 1 d 1 h in all")
    assert has_text(page, "| KV cache |")
    page.radio(key="preset-paper-exgrpo-where").set_value(Where.CLUSTER.value).run()
    assert has_text(page, "GPUs that the run takes: 8 on each of 1 machine.")
    assert not has_text(page, "GPUs free")
    page.button(key="test-ours").click().run()
    assert not page.exception
    assert has_text(page, "2 machines, 5 of 8 GPUs free")
    assert has_text(page, "has not as many GPUs")


@pytest.mark.parametrize(("num_used", "is_warned"), [(1, True), (0, False)])
def test_gpus_of_the_chosen_cluster_that_are_in_use_are_warned_of(open_page, monkeypatch, num_used, is_warned):
    requests.save_cluster("ours", "http://127.0.0.1:8265")
    state = requests.RayClusterState("2.60.0", (RayMachine("a", 8, num_used), RayMachine("b", 4, 0)), (), ())
    monkeypatch.setattr(requests, "ask_cluster", lambda _name: state)
    page = open_page("new_run", preset="paper-exgrpo")
    page.radio(key="preset-paper-exgrpo-where").set_value(Where.CLUSTER.value).run()
    page.button(key="test-ours").click().run()
    assert not page.exception
    assert has_text(page, "would refuse the run") is is_warned


def test_a_disk_that_may_become_full_is_said_and_blocks_no_launch(runs_root, open_page, monkeypatch):
    monkeypatch.setattr("jobs.preflight.machine_fit.shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    page = open_page("new_run")
    assert any("Ready to launch" in text for text in texts(page))
    assert has_text(page, "The disk may become full")
    assert has_text(page, "or use another disk\\: `--runs-root FOLDER`")
    page.button(key="launch").click().run()
    assert not page.exception
    assert (runs_root / page.query_params["run"] / "spec.json").is_file()


def test_a_disk_that_may_become_full_is_said_beside_what_keeps_the_run_from_starting(open_page, monkeypatch):
    monkeypatch.setattr("jobs.preflight.machine_fit.shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    page = open_page("new_run", section="Data")
    field(page, "data.source").set_value("gone.jsonl").run()
    assert any("data.source: expected an existing file" in text for text in mistakes(page))
    assert has_text(page, "The disk may become full")


def test_a_run_for_gpus_that_this_machine_lacks_has_scripts_for_others(open_page, monkeypatch, tmp_path):
    monkeypatch.setenv(VERL_PYTHON_VARIABLE, str(tmp_path / "gone"))
    page = open_page("new_run", preset="paper-exgrpo")
    assert page.radio[0].value == Where.GPUS.value
    assert page.button(key="launch").disabled
    reasons = " ".join(mistakes(page))
    assert "run `make verl-env`" in reasons
    assert "needs 8 NVIDIA GPUs and this machine has 0" in reasons
    assert has_text(page, "to fix")
    assert has_text(page, "Disk: about 14.5 GB of recordings and 365.5 GB of checkpoints")
    labels = [element.proto.label for element in page.get("download_button")]
    assert labels == ["Shell script", "Slurm script", "Dry run", "Download run.yaml"]
    assert page.code[0].value.startswith("ray job submit --address http://HEAD:8265")
    text = requests.dry_run_text(requests.load_preset("paper-exgrpo"))
    assert "Memory of each of 8 GPUs" in text
    assert "this machine has 0" in text


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


def test_embedded_run_that_memory_cannot_hold_is_not_ready(open_page):
    page = open_page("new_run", preset="paper-exgrpo")
    page.radio(key="preset-paper-exgrpo-where").set_value(Where.MACHINE.value).run()
    assert any("need 121.8 GB of memory" in text for text in mistakes(page))
    assert page.button(key="launch").disabled


def test_parts_that_a_preset_sets_are_in_the_form(open_page):
    page = open_page("new_run", preset="paper-wildchat-if", section="Algorithm")
    assert field(page, "reward_model.source").value == "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
    field(page, "reward_model").set_value(False).run()
    assert not page.exception
    assert any(text.startswith("reward_model: expected one for continuous rewards") for text in mistakes(page))


def test_the_text_of_the_specification_is_edited_with_the_checks_of_the_form(open_page):
    page = open_page("new_run", section="YAML")
    text = page.text_area(key="new-run-yaml").value
    page.text_area(key="new-run-yaml").set_value(text.replace("num_steps: 150", "num_steps: 7\ntypo: 1")).run()
    assert mistakes(page) == ["typo: there is no such field; remove it, or check its name"]
    page.text_area(key="new-run-yaml").set_value(text.replace("num_steps: 150", "num_steps: [")).run()
    assert "while parsing" in mistakes(page)[0]
    page.text_area(key="new-run-yaml").set_value("tags: [&a x, *a]").run()
    assert "aliases are not allowed" in mistakes(page)[0]
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
    labels = [tab.label for tab in page.tabs]
    assert [label.split(" :")[0] for label in labels if "error" in label] == ["Algorithm", "Optimizer"]
    assert any(":red[" in text and "divisor of batch" in text for text in texts(page))
    page.button(key="fix-1").click().run()
    assert field(page, "optim.learning_rate").value == -1.0


def test_cleared_required_number_is_as_before(open_page):
    page = open_page("new_run")
    field(page, "num_steps").set_value(7).run()
    field(page, "num_steps").set_value(None).run()
    assert field(page, "num_steps").value == 7
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


@pytest.mark.parametrize("text", ["[&a x, *a]", "{<<: {a: 1}}", "NaN", "[" * 5000, "&a [x]"])
def test_a_value_of_the_address_is_json_or_text_and_never_yaml(open_page, text):
    page = open_page("new_run", set=f"name={text}")
    assert not page.exception
    assert page.session_state["new-run-form"].value("name") == text


def test_a_value_of_the_address_is_bounded(open_page):
    page = open_page("new_run", set=f"name={'x' * 10_001}")
    assert page.session_state["new-run-form"].value("name") == "chains ExGRPO"


def test_refused_launch_says_why_beside_the_button(open_page, monkeypatch):
    page = open_page("new_run")

    def refuse(*_, **__):
        raise requests.CommandError("runs: cannot be written.")

    monkeypatch.setattr(requests, "submit", refuse)
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


def test_unknown_run_to_clone_is_one_sentence(open_page):
    page = open_page("new_run", **{"from": "nothing"})
    assert not page.exception
    assert any("Cannot clone that run" in text for text in texts(page))


def test_missing_data_file_is_named_while_one_types(open_page):
    page = open_page("new_run", preset="paper-exgrpo", section="Data")
    field(page, "data.source").set_value("missing.parquet").run()
    assert not page.exception
    assert any(text.startswith("data.source: expected an existing file or folder") for text in mistakes(page))
    assert page.button(key="launch").disabled
    assert not any("Ready to launch" in text for text in texts(page))
    assert "--set data.source=missing.parquet" in page.code[-1].value


def test_preview_shows_first_prompts_and_their_lengths_when_it_is_opened(open_page):
    page = open_page("new_run")
    assert not any("Question 1" in text for text in texts(page))
    page = open_page("new_run", **{"data-preview": "true"})
    assert not page.exception
    assert any(text.startswith("Question 1") for text in texts(page))
    assert any(element.value.startswith("Q") for element in page.code)


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
    field(page, "name").set_value("half done").run()
    open_section(page, "Algorithm")
    field(page, "algorithm.mini_batch_size").set_value(5).run()
    page.button(key="save-draft").click().run()
    assert not page.exception
    assert (runs_root / "workbench" / "drafts" / "half done.yaml").is_file()
    page = open_page("new_run", draft="half done", section="Algorithm")
    assert field(page, "algorithm.mini_batch_size").value == 5
    assert page.button(key="launch").disabled
    page.button(key="delete-draft-half done").click().run()
    assert not (runs_root / "workbench" / "drafts" / "half done.yaml").is_file()


def test_a_viewer_who_deletes_a_draft_is_told_why_it_stays(runs_root, open_page, monkeypatch):
    requests.save_draft("kept", {"name": "kept"})
    page = open_page("new_run")
    monkeypatch.setattr(requests, "current_person", lambda: Person("viewer@example.org", Role.VIEWER))
    page.button(key="delete-draft-kept").click().run()
    assert not page.exception
    assert (runs_root / "workbench" / "drafts" / "kept.yaml").is_file()
    assert any("needs the role operator" in text for text in texts(page))


def test_draft_that_is_not_there_is_one_sentence(open_page):
    page = open_page("new_run", draft="../../etc")
    assert not page.exception
    assert any("Cannot open that draft" in text for text in texts(page))


def test_only_runs_of_verl_are_taken_along(open_page):
    assert len(open_page("new_run").get("download_button")) == 1


def test_the_form_says_what_the_chosen_replay_method_does(open_page):
    page = open_page("new_run", preset="chains-trl-replay", section="Algorithm")
    assert has_text(page, "Stored groups in proportion to sum")
