import io
import json
import os
import pickle
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo.jobs.runs.rollout_formats import json_lines, nemo_rl, torch_dumps, traces, trl, verifiers_results
from exgrpo.jobs.runs.rollout_formats.formats import find_format
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, SourceChangedError, is_evaluation
from exgrpo.jobs.runs.rollout_formats.torch_dumps import NotPlainError, load_plain, load_torch_file
from tests.jobs.runs.rollout_formats.test_published_writers import MESSAGES, NEMO, OPENRLHF, SLIME, write
from tests.jobs.runs.rollout_formats.test_real_samples import SAMPLES


def trajectories(module, path):
    return [trajectory for step in module.read(RolloutSource(path)) for trajectory in step.trajectories]


def of_trl(path, **columns):
    own = {"step": [1, 1], "prompt": ["2?", "3?"], "completion": ["2", "3"], "advantage": [0.5, -0.5]}
    pq.write_table(pa.table(own | columns), path)
    return [trajectory.reward for trajectory in trajectories(trl, path)]


def test_a_number_beside_a_rollout_is_no_reward(tmp_path):
    path = write(tmp_path, "a.jsonl", [{"input": "2?", "output": "2", "temperature": 0.7}])
    [trajectory] = trajectories(json_lines, path)
    assert (trajectory.reward, trajectory.extra) == (None, {"temperature": 0.7})
    path = tmp_path / "a.parquet"
    assert (
        of_trl(path, is_right=[1, 0], kl=[0.1, 0.2]) == of_trl(path, is_right=[1, 0], tool_error=[None] * 2) == [1, 0]
    )
    assert of_trl(path, kl=[0.1, 0.2]) == [None, None]


def asked(text):
    return [{"role": "user", "content": text}]


def answered(text):
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize("shape", [(str, str), (asked, answered), (asked, str), (str, answered)])
@pytest.mark.parametrize("reward", ["reward", "score"])
@pytest.mark.parametrize("response", ["response", "completion"])
@pytest.mark.parametrize("prompt", ["prompt", "question"])
def test_plain_rows_are_opened_by_the_names_that_people_give_them(tmp_path, prompt, response, reward, shape):
    of_prompt, of_response = shape
    rows = [
        {prompt: of_prompt("2?"), response: of_response(text), reward: value, "step": 4}
        for text, value in (("2", 1.0), ("3", 0.0))
    ]
    source = RolloutSource(write(tmp_path, "a.jsonl", rows))
    [read] = find_format(source.path).read(source)
    found = [([message.text for message in one.messages], one.reward) for one in read.trajectories]
    assert (read.step, found) == (4, [(["2?", "2"], 1.0), (["2?", "3"], 0.0)])


@pytest.mark.parametrize("step", [[7, 7], 7])
def test_a_table_of_columns_has_its_step_and_the_reward_of_its_only_function(tmp_path, step):
    row = {
        "gen_step": step,
        "prompt": ["2?", "3?"],
        "completion": ["2", "4"],
        "acc": [1.0, 0.0],
        "advantages": [0.5, -0.5],
    }
    [read] = json_lines.read(RolloutSource(write(tmp_path, "completions.jsonl", [row])))
    assert (read.step, [trajectory.reward for trajectory in read.trajectories]) == (7, [1.0, 0.0])


@pytest.mark.parametrize(
    ("name", "fields", "step"),
    [
        ("3.jsonl", {}, 3), ("step_3.jsonl", {}, 3), ("all-step-0007.jsonl", {}, 7), ("global_step12.jsonl", {}, 12),
        ("Iteration_4.jsonl", {}, 4), ("all_2026.jsonl", {}, 0), ("footstep3.jsonl", {}, 0),
        ("a.jsonl", {"global_step": 5}, 5), ("step_3.jsonl", {"iteration": 6}, 6),
        ("step_3.jsonl", {"step": 8, "global_step": 9}, 8),
    ],
)  # fmt: skip
def test_the_step_is_that_of_the_row_or_of_the_files_name(tmp_path, name, fields, step):
    messages = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]
    [read] = json_lines.read(RolloutSource(write(tmp_path, name, [{"messages": messages, "reward": 1.0} | fields])))
    assert (read.step, [trajectory.extra for trajectory in read.trajectories]) == (step, [{}])


@pytest.mark.parametrize(
    ("rewards", "reward", "extra"),
    [
        ({"acc": 1.0}, 1.0, {"acc": 1.0}),
        ({"acc": 1, "format": 0.5}, None, {"reward/acc": 1, "reward/format": 0.5}),
        ([1.0, 0.5], "rewards: expected the name and number of each reward function", None),
        ({"acc": "high"}, "rewards: expected the name and number of each reward function", None),
    ],
)
def test_a_mapping_of_rewards_is_that_of_its_functions(tmp_path, rewards, reward, extra):
    messages = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]
    source = RolloutSource(write(tmp_path, "a.jsonl", [{"messages": messages, "step": 1, "rewards": rewards}]))
    read = [trajectory for step in json_lines.read(source) for trajectory in step.trajectories]
    if extra is None:
        assert (read, source.bad.num) == ([], 1)
        assert reward in str(source.bad)
    else:
        assert [(trajectory.reward, trajectory.extra) for trajectory in read] == [(reward, extra)]


def test_one_number_and_the_prompt_make_a_question(tmp_path):
    rows = [{"example_id": 0, "prompt": prompt, "completion": "a", "reward": 1.0} for prompt in ("x", "y", "x")]
    ids = [one.question_id for one in trajectories(verifiers_results, write(tmp_path, "results.jsonl", rows))]
    assert (ids[0] == ids[2], ids[0] == ids[1], ids[0].split()[0]) == (True, False, "0")


def test_images_differ_by_their_address():
    def shown(url):
        row = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
        return json_lines.messages_of(row, "messages")

    assert shown("a") == shown("a") != shown("b")


def test_evaluations_are_known_by_name_or_folder(tmp_path):
    names = ("val_data_step2.jsonl", "eval_7.pt", "rollouts/step_3/eval/all/traces.jsonl")
    assert all(is_evaluation(tmp_path / name) for name in names)
    others = ("train_data_step2.jsonl", "7.pt", "rollouts/step_3/train/all/traces.jsonl", "eval/a/b/traces.jsonl")
    assert not any(is_evaluation(tmp_path / name) for name in others)


def test_rollouts_that_did_not_train_are_read_and_told_apart(tmp_path):
    [whole] = (SAMPLES / "traces").rglob("all/traces.jsonl")
    first, second = whole.read_text().splitlines(keepends=True)
    for name, content in (("all", first + second), ("effective", second)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "traces.jsonl").write_text(content)
    assert [one.extra["trained"] for one in trajectories(traces, tmp_path)] == [False, True]


def test_numbers_and_steps_without_bounds_are_bad_rows(tmp_path):
    rows = [OPENRLHF, *(OPENRLHF | change for change in ({"reward": 10**400}, {"step": 2**31}, {"note": 10**400}))]
    source = RolloutSource(write(tmp_path, "a.jsonl", rows))
    assert [len(step.trajectories) for step in json_lines.read(source)] == [2]
    assert source.bad.num == 2
    source = RolloutSource(write(tmp_path, f"train_data_step{10**30}.jsonl", [NEMO]))
    assert (list(nemo_rl.read(source)), source.bad.num) == ([], 1)


def test_a_parquet_file_that_is_broken_inside_is_a_bad_row_once(tmp_path):
    path = tmp_path / "a.parquet"
    of_trl(path)
    content = bytearray(path.read_bytes())
    content[20:120] = bytes(100)
    path.write_bytes(content)
    source = RolloutSource(path)
    assert (list(trl.read(source)), source.bad.num) == ([], 1)
    again = RolloutSource(path, source.positions)
    assert (list(trl.read(again)), again.bad.num) == ([], 0)


def test_a_longer_file_with_another_beginning_was_written_anew(tmp_path):
    path = write(tmp_path, "a.jsonl", [OPENRLHF])
    source = RolloutSource(path)
    assert len([*json_lines.read(source)]) == 1
    path.write_text((json.dumps(OPENRLHF | {"input": "new"}) + "\n") * 3)
    with pytest.raises(SourceChangedError):
        list(json_lines.read(source))


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "none")
    write(tmp_path, "c.jsonl", [MESSAGES])
    source = RolloutSource(tmp_path)
    assert [len(step.trajectories) for step in json_lines.read(source)] == [1]
    assert (source.bad.num, source.files()) == (2, [])


def test_a_list_that_holds_another_twice_many_times_is_refused_soon(tmp_path):
    bomb = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    sample = SLIME | {"prompt": [{"role": "user", "content": bomb}]}
    source = RolloutSource(write(tmp_path, "7.pt", {"rollout_id": 7, "samples": [sample]}))
    assert (list(torch_dumps.read(source)), source.bad.num) == ([], 1)


def test_a_compressed_pickle_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "7.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("7/data.pkl", pickle.dumps([0] * 1000))
    with pytest.raises(NotPlainError):
        load_torch_file(tmp_path / "7.pt")


def test_a_pickle_runs_nothing(tmp_path):
    class Harm:
        def __reduce__(self):
            return (os.mkdir, (tmp_path / "harm",))

    load_plain(io.BytesIO(pickle.dumps({"a": Harm()})))
    assert not [*tmp_path.iterdir()]
    with pytest.raises(NotPlainError):
        load_plain(io.BytesIO(b"no pickle"))


def test_completions_that_trl_writes_again_until_the_next_generation_count_once(tmp_path):
    """`steps_per_generation` above `logging_steps`: the files of both steps differ in the step only."""
    first, second = ({"prompt": ["1+1?"] * 2, "completion": [text, "2"], "r": [float("nan"), 1.0]} for text in "23")
    positions, found = {}, []
    for step, generation in enumerate((first, first, second, second, first), start=1):
        table = pa.table({"step": [step] * 2, **generation, "advantage": [0.5, -0.5]})
        pq.write_table(table, tmp_path / f"completions_{step:05d}.parquet")
        source = RolloutSource(tmp_path, positions)
        found += [(read.step, len(read.trajectories)) for read in trl.read(source)]
        positions = source.positions
    whole = trl.read(RolloutSource(tmp_path))
    assert found == [(read.step, len(read.trajectories)) for read in whole] == [(1, 2), (3, 2), (5, 2)]
