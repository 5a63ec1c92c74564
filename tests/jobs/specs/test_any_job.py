import pytest

from jobs.actions import run_actions
from jobs.actions.queueing import queue_job
from jobs.runs import lookup
from jobs.runs.directory import RunDirectory
from jobs.specs.any_job import load_any_spec, loop_name, parse_any_spec, shape_mistakes
from jobs.specs.evaluation import BenchmarkChoice, EvalModelSpec, EvalSpec, ServerSpec
from jobs.specs.train import DataSpec, SpecError, TrainSpec, dump_spec

EVALUATION = EvalSpec(model=EvalModelSpec(source="a-model"), benchmarks=(BenchmarkChoice(name="math500"),))
CONTENT = {"kind": "eval", "model": {"source": "a-model"}, "benchmarks": [{"name": "math500"}]}


ODDLY_NAMED = TrainSpec(data=DataSpec(source="data-\N{GRINNING FACE}.parquet", template="paper"))


@pytest.mark.parametrize("spec", [TrainSpec(name="mine", num_steps=7), EVALUATION, ODDLY_NAMED])
def test_every_kind_comes_back_from_its_file_unchanged(tmp_path, spec):
    path = tmp_path / "spec.json"
    path.write_text(dump_spec(spec))
    assert load_any_spec(path) == spec


def test_specification_without_a_kind_is_a_training_run():
    assert parse_any_spec({"num_steps": 3}, "form") == TrainSpec(num_steps=3)


@pytest.mark.parametrize("kind", ["bake", 3, None])
def test_unknown_kind_is_refused_with_those_there_are(kind):
    with pytest.raises(SpecError, match=r"form: kind: expected one of eval, .*train, got"):
        parse_any_spec({"kind": kind}, "form")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_p": 0.9}, "top_p: expected 1.0"),
        ({"generator": "server"}, "server: expected one exactly when generator is server"),
        ({"benchmarks": []}, "benchmarks"),
        ({"benchmarks": [{"name": "aime24"}, {"name": "aime24"}]}, "benchmarks: expected each one once"),
        ({"temprature": 1.0}, "temprature"),
        ({"generator": "server", "server": {"address": "localhost", "model": "m"}}, r"server\.address"),
    ],
)
def test_wrong_evaluation_is_refused_by_field(change, message):
    with pytest.raises(SpecError, match=message):
        parse_any_spec(CONTENT | change, "form")


def test_evaluation_has_the_papers_sampling_by_default():
    spec = parse_any_spec(CONTENT, "form")
    assert (spec.temperature, spec.top_p, spec.max_response_tokens, spec.template) == (0.6, 1.0, 8192, "paper")


def test_server_may_sample_from_less_than_the_whole_distribution():
    server = ServerSpec(address="http://127.0.0.1:8000/v1", model="m")
    content = CONTENT | {"generator": "server", "server": server.model_dump(), "top_p": 0.95}
    assert parse_any_spec(content, "form").top_p == 0.95


def test_loop_is_named_by_the_engine_of_a_training_run_and_by_the_kind_of_other_jobs():
    assert (loop_name(TrainSpec()), loop_name(EVALUATION)) == ("embedded", "eval")


def test_run_directory_gives_a_training_specification_only_of_a_training_run(tmp_path):
    run = RunDirectory.create(tmp_path, EVALUATION)
    assert run.job_spec() == EVALUATION
    with pytest.raises(SpecError, match=r"kind: expected train, got eval"):
        run.spec()


def test_command_for_training_runs_says_that_an_evaluation_is_none(tmp_path):
    run_id = queue_job(tmp_path, EVALUATION)
    with pytest.raises(lookup.CommandError, match="kind: expected train, got eval"):
        run_actions.clone(tmp_path, run_id)


@pytest.mark.parametrize("algorithm", [{"rollouts_per_question": 10**8}, {"rollouts_per_question": 0}])
def test_a_specification_whose_buckets_no_page_could_draw_is_not_shown(algorithm):
    (mistake,) = shape_mistakes({"algorithm": algorithm})
    assert mistake.startswith("algorithm.rollouts_per_question: expected 2 to 1,024, got ")
    assert shape_mistakes({"algorithm": {"rollouts_per_question": 1024}}) == ()
    assert shape_mistakes(CONTENT | {"algorithm": 5}) == ()


def test_a_specification_with_a_number_that_is_none_is_not_shown():
    assert shape_mistakes({"algorithm": {"temperature": float("nan")}})


HALF = "a\udc80"


@pytest.mark.parametrize(
    "content",
    [
        {"tags": [HALF]},
        {"kind": "judge", "judge": "server", "judged": {"run_id": "a"}, "server": {"address": f"http://{HALF}/v1"}},
        {"kind": "judge", "judge": "server", "judged": {"file": HALF}, "server": {"address": "http://a/v1"}},
    ],
)
def test_half_of_a_character_in_any_field_is_refused_with_a_sentence(content):
    with pytest.raises(SpecError, match=r"^form: .*half of a character; remove it\.$"):
        parse_any_spec(content, "form")
