import pytest

from exgrpo.jobs.evaluation.protocols import (
    UserBenchmarks,
    benchmarks_folder,
    choose_benchmark,
    load_user_benchmarks,
    with_declared_benchmarks,
)
from exgrpo.jobs.specs.base import SpecError
from exgrpo.jobs.specs.evaluation import BenchmarkChoice
from exgrpo.jobs.specs.train import DataSpec, ModelSpec, TrainSpec, ValidationSpec

OF_OTHERS = {"model": ModelSpec(source="mine"), "data": DataSpec(source="hub/data")}


@pytest.fixture
def folder(tmp_path):
    folder = benchmarks_folder(tmp_path)
    folder.mkdir(parents=True)
    return folder


def test_data_file_is_a_benchmark_by_its_name(folder, tmp_path):
    for name in ("sums.jsonl", "zipped.jsonl.gz", "Not a name.jsonl", "notes.txt"):
        (folder / name).touch()
    assert load_user_benchmarks(tmp_path).choices == {
        "sums": BenchmarkChoice(name="sums", source=str(folder / "sums.jsonl")),
        "zipped": BenchmarkChoice(name="zipped", source=str(folder / "zipped.jsonl.gz")),
    }


def test_entry_of_a_yaml_file_names_the_file_beside_it_and_how_it_is_asked(folder, tmp_path):
    (folder / "data.jsonl").touch()
    (folder / "mine.yaml").write_text("sums: {source: data.jsonl, title: Sums, temperature: 0, template: chat}\n")
    assert load_user_benchmarks(tmp_path).choices == {
        "sums": BenchmarkChoice(
            name="sums", source=str(folder / "data.jsonl"), title="Sums", temperature=0.0, template="chat"
        )
    }


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mine: {source: a\n  - b", ""), ("sums: {sauce: a}", "sums: sauce: "),
        ("sums: {title: Sums}", "sums.source: "), ("amc: {source: a}", "amc: "),
        ("My sums: {source: a}", "My sums: name: "), ("- sums", ""),
    ],
)  # fmt: skip
def test_wrong_entry_is_named_by_file_name_and_field_and_leaves_out_itself_alone(folder, tmp_path, text, place):
    (folder / "a.yaml").write_text(text)
    (folder / "b.yaml").write_text("sums: {source: hub/sums}\nwrong: 3")
    found = load_user_benchmarks(tmp_path)
    assert list(found.choices) == ["sums"]
    of_a, of_b = found.faults
    assert f"{folder / 'a.yaml'}: {place}" in of_a
    assert f"{folder / 'b.yaml'}: wrong: " in of_b


def test_an_entry_of_the_same_name_is_left_out(folder, tmp_path):
    for name in "ab":
        (folder / f"{name}.yaml").write_text(f"sums: {{source: hub/{name}}}")
    found = load_user_benchmarks(tmp_path)
    assert found.choices["sums"].source == "hub/a"
    assert found.faults[0].startswith(str(folder / "b.yaml"))


def test_validation_takes_a_whole_declared_benchmark_by_its_name(folder, tmp_path):
    (folder / "sums.jsonl").touch()
    (folder / "hard.yaml").write_text("hard: {source: sums.jsonl, title: Hard sums, temperature: 0, template: chat}")
    (folder / "sums.yaml").write_text("sums: {source: sums.jsonl}")
    spec = TrainSpec(
        **OF_OTHERS,
        validation=ValidationSpec(
            benchmarks={"sums": None, "hard": {"samples_per_question": 2}, "aime24": None, "other": "hub/other"}
        ),
    )
    assert with_declared_benchmarks(spec, tmp_path).validation.model_dump()["benchmarks"] == {
        "sums": str(folder / "sums.jsonl"),
        "hard": {
            "source": str(folder / "sums.jsonl"), "samples_per_question": 2, "title": "Hard sums", "template": "chat",
            "temperature": 0.0,
        },
        "aime24": None,
        "other": "hub/other",
    }  # fmt: skip
    (folder / "a.yaml").write_text("- mine")
    spec = TrainSpec(**OF_OTHERS, validation=ValidationSpec(benchmarks={"mine": None}))
    with pytest.raises(SpecError, match=r"^validation.benchmarks: .*, sums, got 'mine'.*a.yaml: "):
        with_declared_benchmarks(spec, tmp_path)


def test_what_is_given_counts_before_what_was_declared():
    sums = BenchmarkChoice(name="sums", source="a", temperature=0.5, samples_per_question=8)
    declared = UserBenchmarks({"sums": sums})
    chosen = choose_benchmark({"name": "sums", "source": None, "samples_per_question": 2}, declared)
    assert chosen == {"name": "sums", "source": "a", "temperature": 0.5, "samples_per_question": 2}
    with pytest.raises(SpecError, match=r"aime24, .*, sums, got 'other'"):
        choose_benchmark({"name": "other"}, declared)
