"""Files that the packages themselves wrote: `make rollout-samples` makes them again."""

import json
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pytest

from exgrpo.jobs.actions.rollout_import import RolloutImport, import_rollouts
from exgrpo.jobs.runs.rollout_formats import formats
from exgrpo.jobs.runs.rollout_formats.formats import FORMATS, MissingPackageError, find_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.conversations import tokens_by_role
from exgrpo_core.recording.rows import Message

SAMPLES = Path(__file__).parent / "samples"
PATHS = {
    "trl/messages": "trl", "trl/texts": "trl", "traces/prime_rl": "traces", "traces/prime_rl_stream": "traces",
    "traces/verifiers": "traces",
    "verifiers_results": "verifiers_results", "miles": "torch_dumps",
    "lm_eval": "lm_eval", "inspect": "inspect_logs", "mlflow": "metric_exports",
    "trackio/static": "trackio_traces",
    "trackio/sessions": "agent_sessions",
    "art": "art_trajectories", "skyrl": "skyrl_dumps", "mlflow_traces/lines": "mlflow_traces",
}  # fmt: skip


def module_of(entry):
    return entry.read.__module__.rpartition(".")[2]


def read(name):
    source = RolloutSource(SAMPLES / name)
    steps = list(find_format(SAMPLES / name).read(source))
    assert (source.bad.sentences, list(find_format(SAMPLES / name).read(source))) == ([], [])
    return steps


def steps_of_runs(path):
    """Return the steps of each run that a path holds, by its name; no row is bad, and none is read twice."""
    entry, found = find_format(path), {}
    for part in entry.parts(path):
        source = RolloutSource(path, part=part)
        found[part.name] = [*entry.read(source)]
        assert (source.bad.sentences, [*entry.read(source)]) == ([], [])
    return found


def trajectories(name):
    return [trajectory for step in read(name) for trajectory in step.trajectories]


def parts(trajectory):
    return [(part.role, part.kind, part.tool, part.is_generated) for part in trajectory.messages]


def test_samples_name_no_folder_of_the_machine_that_wrote_them():
    unpacked = {file: pa.input_stream(str(file)).read() for file in SAMPLES.rglob("*") if file.is_file()}
    found = re.compile(rb"/(?:tmp|root|home|work)/[\w.-]+").findall
    assert {file.name: found(text) for file, text in unpacked.items() if found(text)} == {}


@pytest.mark.parametrize("name", PATHS)
def test_each_sample_is_recognised_by_its_own_format_alone(name):
    sample = Sample(SAMPLES / name)
    assert [module_of(entry) for entry in FORMATS if entry.recognises(sample)] == [PATHS[name]]


@pytest.mark.parametrize("name", sorted({*PATHS} - {"inspect"}))
def test_each_sample_becomes_a_run(tmp_path, name):
    path = SAMPLES / name
    steps = read(name)
    imported = import_rollouts(path, find_format(path), tmp_path, "theirs")
    assert imported.num_rollouts == sum(len(step.trajectories) for step in steps)
    assert (imported.num_steps, imported.bad.num) == (len({step.step for step in steps}), 0)
    again = RolloutImport(path, find_format(path), tmp_path / "view", "theirs")
    again.advance()
    again.close()
    assert RolloutImport(path, find_format(path), tmp_path / "view", "theirs").run_id == again.run_id


def test_trl_has_messages_and_the_reward_of_its_only_function():
    first, second = read("trl/messages")
    assert (first.step, second.step, len(first.trajectories)) == (1, 2, 4)
    for trajectory in first.trajectories:
        assert parts(trajectory) == [("user", "text", "", False), ("assistant", "text", "", True)]
        assert trajectory.reward == trajectory.extra["is_right"]
        assert (trajectory.verdict, trajectory.answer, trajectory.num_tokens) == (None, None, None)


def test_trl_with_two_reward_functions_has_no_total():
    for trajectory in trajectories("trl/texts"):
        assert trajectory.reward is None
        assert {*trajectory.extra} == {"reward/is_right", "reward/is_short", "first_letter"}
        assert trajectory.messages[0].text.startswith("What is")


def test_prime_rl_has_tools_thinking_tokens_and_advantages_once():
    right, wrong = trajectories("traces/prime_rl")
    assert [step.step for step in read("traces/prime_rl")] == [3]
    assert parts(right) == [
        ("system", "text", "", False), ("user", "text", "", False), ("assistant", "thinking", "", True),
        ("assistant", "tool_call", "add", True), ("tool", "tool_result", "add", False), ("assistant", "text", "", True),
    ]  # fmt: skip
    assert (right.reward, right.advantage, right.group, right.answer, right.is_truncated) == (
        1.0,
        0.5,
        "g0",
        "5",
        False,
    )
    assert (wrong.reward, wrong.advantage, wrong.is_truncated) == (0.0, -0.5, True)
    assert (right.token_ids, right.num_tokens) == ([7, 8, 11, 12, 13], 5)
    assert right.log_probs == [-0.5, -0.25, -1.0, -0.125, -0.0625]
    assert [message.num_tokens for message in right.messages] == [None, None, None, 2, None, 3]
    assert (sum(tokens_by_role(right.messages).values()), right.messages[-1].mean_entropy) == (right.num_tokens, 0.5)


def test_verifiers_has_a_trajectory_a_branch_and_none_of_an_episode_that_failed():
    whole, branch = trajectories("traces/verifiers")
    assert (len(whole.messages), [part.text for part in branch.messages][-1]) == (6, "Again: 3")
    assert (branch.token_ids, branch.entropies, branch.advantage) == ([21], None, None)


def test_verifiers_results_have_calls_and_results_by_tool():
    found = trajectories("verifiers_results")
    assert [trajectory.reward for trajectory in found] == [1.0, 1.0, 0.0, 0.0]
    assert parts(found[0])[2:4] == [("assistant", "tool_call", "add", True), ("tool", "tool_result", "add", False)]
    assert json.loads(found[0].messages[2].text) == {"first": 2, "second": 3}
    assert (found[0].answer, found[0].num_tokens, found[0].is_truncated, found[0].verdict) == ("5", 8, False, None)


def test_miles_is_read_without_torch():
    plain, masked, of_parts, evaluated = trajectories("miles")
    assert (plain.reward, plain.group, plain.answer, plain.is_truncated, plain.num_tokens) == (1.0, "0", "5", False, 3)
    assert (masked.reward, masked.token_ids, masked.log_probs) == (0.5, [10, 12], [-0.5, -1.0])
    assert (masked.is_truncated, masked.num_tokens, masked.extra["level"]) == (True, 2, "easy")
    assert (of_parts.reward, of_parts.extra["score"], of_parts.is_truncated) == (None, 1.0, None)
    assert (plain.extra["kind"], evaluated.extra["kind"]) == ("train", "eval")


def test_lm_eval_has_the_chosen_option_and_a_verdict_by_its_metric():
    by_task = {}
    for trajectory in trajectories("lm_eval"):
        by_task.setdefault(trajectory.extra["task"], []).append(trajectory)
    assert {task: len(found) for task, found in by_task.items()} == {"choices": 2, "sums": 2}
    for trajectory in by_task["sums"]:
        assert trajectory.verdict == ("correct" if trajectory.reward else "wrong")
        assert trajectory.messages[0].text.startswith("Question: What is")
    assert [trajectory.answer for trajectory in by_task["choices"]] == ["5", "3"]
    for trajectory in by_task["choices"]:
        is_right = trajectory.messages[-1].text.strip() == trajectory.answer
        assert trajectory.verdict == ("correct" if is_right else "wrong")


def put_in_place_of_inspect(monkeypatch, rows):
    """The package's reader returns these samples, as it did when the file was made."""
    package, log = ModuleType("inspect_ai"), ModuleType("inspect_ai.log")
    package.__spec__ = ModuleSpec("inspect_ai", None)
    log.read_eval_log_samples = lambda *_, **__: (SimpleNamespace(model_dump=lambda row=row, **_: row) for row in rows)
    monkeypatch.setitem(sys.modules, "inspect_ai", package)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", log)


def test_inspect_with_epochs_and_scorers_has_the_means_that_it_prints(monkeypatch):
    made = json.loads((SAMPLES / "inspect_epochs.json").read_text())
    put_in_place_of_inspect(monkeypatch, made["samples"])
    found = trajectories("inspect")
    assert (len(found), len({entry.question_id for entry in found})) == (6, 2)
    means = {name: sum(entry.extra[f"reward/{name}"] for entry in found) / len(found) for name in made["metrics"]}
    assert means == pytest.approx(made["metrics"])
    assert (sorted(means), {entry.reward for entry in found}) == (["f1", "match"], {None})


def test_inspect_has_tools_thinking_and_letters_as_verdicts(monkeypatch):
    put_in_place_of_inspect(monkeypatch, json.loads((SAMPLES / "inspect_samples.json").read_text()))
    right, wrong = trajectories("inspect")
    assert (right.verdict, wrong.verdict, right.reward, right.answer, right.question_id) == (
        "correct",
        "wrong",
        1.0,
        "5",
        "0 a6959895",
    )
    assert [part.kind for part in right.messages] == [
        "text",
        "text",
        "text",
        "tool_call",
        "tool_result",
        "thinking",
        "text",
    ]
    assert (right.messages[4].is_error, wrong.messages[4].is_error, wrong.messages[4].tool) == (False, True, "add")
    assert right.messages[-1] == Message("assistant", "5", is_generated=True)


def test_inspect_without_its_package_is_refused_with_the_command(monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError) as refused:
        find_format(SAMPLES / "inspect")
    assert "pip install inspect-ai" in str(refused.value)
