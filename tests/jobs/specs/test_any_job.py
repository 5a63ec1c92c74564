import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.runs import lookup
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.any_job import load_any_spec, parse_any_spec, shape_mistakes
from exgrpo.jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec, ServerSpec
from exgrpo.jobs.specs.train import DataSpec, ModelSpec, SpecError, TrainSpec, dump_spec

EVALUATION = EvalSpec(model=EvalModelSpec(source="a-model"), benchmarks=(BenchmarkChoice(name="math500"),))
CONTENT = {"kind": "eval", "model": {"source": "a-model"}, "benchmarks": [{"name": "math500"}]}
ODDLY_NAMED = TrainSpec(
    data=DataSpec(source="data-\N{GRINNING FACE}.parquet", template="paper"), model=ModelSpec(source="m")
)


@pytest.mark.parametrize("spec", [TrainSpec(name="mine", num_steps=7), EVALUATION, ODDLY_NAMED])
def test_every_kind_comes_back_from_its_file_unchanged(tmp_path, spec):
    path = tmp_path / "spec.json"
    path.write_text(dump_spec(spec))
    assert load_any_spec(path) == spec
    assert parse_any_spec({"num_steps": 3}, "form") == TrainSpec(num_steps=3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "bake"}, "kind"), ({"top_p": 0.9}, "top_p"), ({"generator": "server"}, "server"),
        ({"benchmarks": []}, "benchmarks"), ({"benchmarks": [{"name": "aime24"}, {"name": "aime24"}]}, "benchmarks"),
        ({"temprature": 1.0}, "temprature"),
        ({"generator": "server", "server": {"address": "localhost", "model": "m"}}, "server.address"),
    ],
)  # fmt: skip
def test_unknown_kind_and_wrong_evaluation_are_refused_by_field(change, field):
    with pytest.raises(SpecError) as refused:
        parse_any_spec(CONTENT | change, "form")
    assert refused.value.fields == (field,)


def test_evaluation_has_the_papers_sampling_and_a_server_may_sample_from_less_than_the_whole_distribution():
    spec = parse_any_spec(CONTENT, "form")
    assert (spec.temperature, spec.top_p, spec.max_response_tokens, spec.template) == (0.6, 1.0, 8192, "paper")
    server = ServerSpec(address="http://127.0.0.1:8000/v1", model="m")
    content = CONTENT | {"generator": "server", "server": server.model_dump(), "top_p": 0.95}
    assert parse_any_spec(content, "form").top_p == 0.95


def test_run_directory_and_commands_give_a_training_specification_only_of_a_training_run(tmp_path):
    run_id = queue_job(tmp_path, EVALUATION)
    with pytest.raises(SpecError):
        RunDirectory.open(tmp_path, run_id).spec()
    with pytest.raises(lookup.CommandError):
        run_actions.clone(tmp_path, run_id)


@pytest.mark.parametrize(
    "algorithm", [{"rollouts_per_question": 10**8}, {"rollouts_per_question": 0}, {"temperature": float("nan")}]
)
def test_a_specification_whose_buckets_or_numbers_no_page_could_draw_is_not_shown(algorithm):
    assert len(shape_mistakes({"algorithm": algorithm})) == 1
    assert shape_mistakes({"algorithm": {"rollouts_per_question": 1024}}) == ()
    assert shape_mistakes(CONTENT | {"algorithm": 5}) == ()


HALF = "a\udc80"


@pytest.mark.parametrize(
    "content",
    [
        {"tags": [HALF]},
        {"kind": "judge", "judge": "server", "judged": {"run_id": "a"}, "server": {"address": f"http://{HALF}/v1"}},
        {"kind": "judge", "judge": "server", "judged": {"file": HALF}, "server": {"address": "http://a/v1"}},
    ],
)
def test_half_of_a_character_in_any_field_is_refused(content):
    with pytest.raises(SpecError):
        parse_any_spec(content, "form")
