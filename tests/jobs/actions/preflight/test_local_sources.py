import json
import math
from pathlib import Path

import datasets
import pytest
from datasets.arrow_writer import ArrowWriter

from exgrpo.jobs.actions.preflight import local_sources
from exgrpo.jobs.actions.preflight.local_sources import (
    check_benchmarks,
    check_rows,
    resolve_source,
    with_absolute_sources,
)
from exgrpo.jobs.actions.preflight.looks import check_model_files, look_at, look_at_model
from exgrpo.jobs.actions.preflight.resolution import resolve
from exgrpo.jobs.specs.train import DataSpec, ModelSpec, SpecError, TrainSpec, parse_spec
from exgrpo.jobs.specs.verl import RewardModelSpec
from exgrpo_core.config import ExGRPOConfig
from tests.data_files import verl_row, write_lines


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "questions.jsonl").write_text("{}")
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("source", ["models/tiny", "./models/tiny", "models/tiny/", "~/models/tiny"])
def test_path_is_meant_from_the_callers_folder(folder, source):
    assert resolve_source("model.source", source) == str(folder / "models" / "tiny")


@pytest.mark.parametrize("source", ["chains", "chains-warm", "gpt2", "Qwen/Qwen2.5-Math-7B", "org/data.v2"])
def test_hub_name_and_what_is_made_here_stay_as_they_are(folder, source):
    (folder / "chains").mkdir()
    assert resolve_source("data.source", source) == source


@pytest.mark.parametrize(
    "source", ["/nowhere/model", "./gone", "../gone", "~/gone", "gone.parquet", "data/gone.jsonl", "a/b/c", "gone/"]
)
@pytest.mark.usefixtures("folder")
def test_path_that_leads_nowhere_is_refused_with_its_field(source):
    with pytest.raises(SpecError) as refused:
        resolve_source("model.source", source)
    assert refused.value.fields == ("model.source",)


def test_what_is_no_gguf_file_is_refused_and_one_of_the_hubs_cache_keeps_its_ending(folder):
    (folder / "text.gguf").write_text("Not found")
    with pytest.raises(SpecError) as refused:
        resolve_source("model.source", "text.gguf")
    assert refused.value.fields == ("model.source",)
    (folder / "a1b2").write_bytes(b"GGUF\x03")
    (folder / "tiny.gguf").symlink_to("a1b2")
    assert resolve_source("model.source", "tiny.gguf") == str(folder / "tiny.gguf")


@pytest.mark.parametrize("model", ["./gone", "chains-warm"])
def test_a_wrong_path_to_the_data_is_named_first_next_to_what_is_wrong_with_the_model(tmp_path, model):
    spec = TrainSpec(model=ModelSpec(source=model), data=DataSpec(source=str(tmp_path / "gone.jsonl")))
    mistakes = [refusal.mistake for refusal in resolve(spec, tmp_path).refusals]
    assert [mistake.fields for mistake in mistakes] == [("data.source",), ("model.source",)]


def test_every_local_file_of_a_specification_is_named_absolutely(folder):
    spec = TrainSpec(
        model=ModelSpec(source="models/tiny"), data=DataSpec(source="questions.jsonl"),
        external_experience=Path("questions.jsonl"), algorithm=ExGRPOConfig(uses_external_experience=True),
    )  # fmt: skip
    absolute = with_absolute_sources(spec)
    data = folder / "questions.jsonl"
    assert (absolute.model.source, absolute.data.source) == (str(folder / "models" / "tiny"), str(data))
    assert absolute.external_experience == data


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_damaged_settings_of_a_reward_model_are_named_before_the_run(folder, name):
    reward_model = RewardModelSpec(source="models/tiny")
    spec = TrainSpec().model_copy(update={"reward_model": reward_model})
    with_absolute_sources(spec)
    (folder / "models" / "tiny" / name).write_text("[1")
    assert with_absolute_sources(spec, is_checked=False).reward_model.source == str(folder / "models" / "tiny")
    with pytest.raises(SpecError, match=rf"put the model's own {name} in its place") as refused:
        with_absolute_sources(spec)
    assert refused.value.fields == ("reward_model.source",)


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json"])
def test_the_settings_that_are_checked_are_those_of_the_runs_revision(tmp_path, monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--some--model"
    for revision, content in (("a" * 40, "{}"), ("b" * 40, "[1")):
        (model / "snapshots" / revision).mkdir(parents=True)
        (model / "snapshots" / revision / name).write_text(content)
    (model / "refs").mkdir()
    for main, other in (("a", "b"), ("b", "a")):
        (model / "refs" / "main").write_text(main * 40)
        (model / "refs" / "tried").write_text(other * 40)
        for revision, snapshot in ((None, main), ("tried", other), (main * 40, main), (other * 40, other)):
            look = look_at_model("some/model", revision)
            if snapshot == "a":
                check_model_files(look)
            else:
                with pytest.raises(SpecError, match=f"{'b' * 40}/{name}: is not JSON"):
                    check_model_files(look)


SMALL = {"num_questions": 2, "num_held_out": 1}

ROWS = [verl_row(f"What is {number}?") for number in range(100)]


def check(path, rows, batch_size=2, **data):
    if rows is not None:
        write_lines(path, rows)
    content = {
        "model": {"source": "mine"},
        "data": {"source": str(path), "template": "paper"} | data,
        "algorithm": {"batch_size": batch_size, "mini_batch_size": batch_size},
    }
    return check_rows(look_at(parse_spec(content, "test")))


def test_a_line_that_is_not_json_is_named_with_what_to_do(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "1+1?", "answer": "2"}\nno\n')
    with pytest.raises(SpecError, match=r"a.jsonl, row 2: is not JSON .*; correct or remove this row\.$"):
        check(tmp_path / "a.jsonl", None)


@pytest.mark.parametrize(
    ("rows", "data", "text"),
    [
        ([*ROWS, verl_row("Why? \ud83d")], SMALL, r"a.jsonl, row 101, prompt, content: holds half of a character"),
        ([*ROWS, verl_row("Why?", math.nan)], SMALL, r"a.jsonl, row 101, reward_model.ground_truth: "),
        ([*ROWS, verl_row("What is  7?", "5")], SMALL, "row 101, reward_model.ground_truth: '5' .* '4' of row 8"),
        (ROWS[:2], SMALL, "has too few usable questions: 2, expected 3, which"),
        (ROWS[:2], {"num_questions": None, "num_held_out": 1}, r"^algorithm.batch_size, data.num_held_out: .*\(1 of"),
        (ROWS[:2], {"num_questions": None, "num_held_out": 9}, "questions to train on \\(0 of a.jsonl"),
    ],
)
def test_every_row_of_a_file_and_their_number_are_checked_before_anything_starts(tmp_path, rows, data, text):
    with pytest.raises(SpecError, match=text):
        check(tmp_path / "a.jsonl", rows, **data)


def test_what_is_merged_used_and_left_out_of_a_file_is_said_and_said_anew_when_it_changes(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [verl_row("One?", system="Be terse."), *ROWS, verl_row("What is 7? ")]
    assert check(path, rows, **SMALL) == [
        "a.jsonl: 102 rows hold 101 questions; equal rows were merged.",
        "a.jsonl: 3 of 101 questions are used, as data.num_questions and data.num_held_out say.",
        "a.jsonl: 1 questions have a system message, which the template paper does not use.",
    ]
    assert check(path, ROWS[:3], **SMALL) == []


BAD_GOLD = "So there are 7 apples"


def test_golds_that_the_grader_cannot_read_are_counted_with_three_examples_before_the_start(tmp_path):
    golds = ["7", BAD_GOLD, "8", "", "So there are 8 pears", "About 9 plums", "So this makes 10"]
    rows = [verl_row(f"Why {number}?", gold) for number, gold in enumerate(golds) if gold]
    (notice,) = check(tmp_path / "a.jsonl", rows, num_questions=4, num_held_out=2)
    assert "a.jsonl: 4 of the 6 " in notice
    assert [number for number in range(1, 7) if f"row {number}:" in notice] == [2, 4, 5]
    assert BAD_GOLD in notice


@pytest.mark.parametrize(("kind", "needed"), [("sft", 3), ("external", 1)])
def test_a_column_of_responses_is_read_once_before_the_start(tmp_path, monkeypatch, kind, needed):
    path = tmp_path / "a.jsonl"
    algorithm = {"batch_size": 2, "mini_batch_size": 2, "experience_ratio": 0.0}
    content = {"model": {"source": "mine"}, "data": {"source": str(path), "num_questions": 3, "num_held_out": 1}}
    if kind == "sft":
        content |= {"algorithm": algorithm, "sft": {"response_column": "target"}}
    else:
        content |= {"algorithm": algorithm | {"uses_external_experience": True}, "external_column": "target"}
    for num_given in range(4):
        given = [each | {"target": "so"} for each in ROWS[:num_given]]
        write_lines(path, [*given, *ROWS[num_given:4]])
        if num_given >= needed:
            check_rows(look_at(parse_spec(content, "test")))
            with monkeypatch.context() as unread:
                unread.setattr(local_sources, "read_rows", None)
                check_rows(look_at(parse_spec(content, "test")))
        else:
            with pytest.raises(SpecError) as refused:
                check_rows(look_at(parse_spec(content, "test")))
            assert refused.value.fields == ("data.source",)


def test_rows_of_benchmarks_and_of_hub_data_that_were_loaded_before_are_checked_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    path = write_lines(tmp_path / "mine.jsonl", [verl_row("Why?", BAD_GOLD), verl_row("How?")])
    content = {"data": {"source": "word_problems"}, "model": {"source": "mine"}}
    content["validation"] = {"benchmarks": {"mine": str(path)}}
    assert any("mine.jsonl: 1 of the 2 " in notice for notice in check_benchmarks(look_at(parse_spec(content, "test"))))
    path.write_text(json.dumps(verl_row("Why?", math.nan)))
    with pytest.raises(SpecError) as refused:
        check_benchmarks(look_at(parse_spec(content, "test")))
    assert refused.value.fields == ("validation.benchmarks",)

    hub = {"source": "some/Sums"} | SMALL
    content = {"model": {"source": "mine"}, "data": hub, "algorithm": {"batch_size": 2, "mini_batch_size": 2}}
    spec = parse_spec(content, "test")
    assert check_rows(look_at(spec)) == []
    rows = datasets.Dataset.from_list([verl_row("Why?", BAD_GOLD), verl_row("How?"), verl_row("Who?")])
    folder = tmp_path / "cache" / "some___sums" / "default" / "0.0.0" / "a1b2"
    folder.mkdir(parents=True)
    rows.info.splits = datasets.SplitDict({"train": datasets.SplitInfo("train", num_examples=3, dataset_name="sums")})
    rows.info.config_name = "default"
    rows.info.write_to_directory(str(folder))
    with ArrowWriter(path=str(folder / "sums-train.arrow")) as writer:
        writer.write_table(rows.data.table)
    assert any("some/Sums: 1 of the 3 " in notice for notice in check_rows(look_at(spec)))
    with pytest.raises(SpecError, match="has too few usable questions: 3, expected 9, which"):
        check_rows(look_at(parse_spec(content | {"data": hub | {"num_questions": 8}}, "test")))
