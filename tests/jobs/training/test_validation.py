import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.benchmarks import list_scores
from exgrpo.db.queries.metrics import list_evaluations
from exgrpo.jobs.execution.supervisor.indexing import rebuild_index
from exgrpo.jobs.execution.worker.control import WorkerControl
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import parse_spec
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response
from exgrpo.jobs.tasks.grading.rewards import open_reward
from exgrpo.jobs.training.run_components import RunComponents, Validator
from exgrpo.jobs.training.run_data import open_data
from exgrpo_core.recording.file_recorder import FileRecorder
from tests.data_files import write_lines
from tests.jobs.training.test_dataset import row

pytestmark = pytest.mark.slow

ANSWERS = [
    ("1/2", [r"\boxed{0.5}", r"\boxed{\frac{1}{3}}", "no box"]),
    ("p - q", [r"\boxed{-q + p}", r"\boxed{p+q}", r"\boxed{p-q} or \boxed{q-p}"]),
    ("12", [r"\boxed{12}", r"\boxed{x = 12}", r"\boxed{6 \cdot 2}"]),
]
"""Gold answers of the held-out questions, and what the engine answers."""
NUM_SAMPLES = 3


class WrittenAnswers:
    """An engine that gives the answers above to the questions it is asked."""

    def __init__(self):
        self.temperatures = []

    def generate_for_evaluation(self, questions, num_samples, temperature, max_new_tokens, seed):  # noqa: ARG002 - the protocol's
        self.temperatures.append(temperature)
        written = dict(ANSWERS)
        return [
            [Response(text, question.prompt_ids, is_truncated=False) for text in written[question.answer][:num_samples]]
            for question in questions
        ]


@pytest.fixture
def spec(tmp_path):
    """A math data set of four questions: the first is trained on, the others are held out."""
    golds = ["5", *(gold for gold, _ in ANSWERS)]
    path = write_lines(tmp_path / "rows.jsonl", [row(str(number), gold) for number, gold in enumerate(golds)])
    data = {"source": str(path), "num_questions": 1, "num_held_out": 3}
    validation = {"interval": 2, "samples_per_question": NUM_SAMPLES, "num_training_questions": 0}
    algorithm = {"batch_size": 1, "mini_batch_size": 1}
    content = {"model": {"source": "mine"}, "data": data, "algorithm": algorithm, "validation": validation}
    return parse_spec(content, "test")


def validate(spec, run, step, benchmarks=()):
    """Evaluate the held-out questions, and those of `benchmarks` too; return the temperatures."""
    questions, held_out = open_data(spec).encode(make_tokenizer())
    recorder = FileRecorder(run, run.claim_attempt(), spec.recording)
    with open_reward(spec) as reward:
        engine = WrittenAnswers()
        components = RunComponents(engine, reward, questions, held_out, {}, dict.fromkeys(benchmarks, held_out))
        Validator(spec, components, recorder, WorkerControl(run, run.attempt_path(1))).evaluate(
            step, is_end=step == spec.num_steps
        )
    recorder.close()
    return engine.temperatures


def test_validation_counts_what_the_benchmarks_training_scheme_calls_correct_and_is_no_score(spec, tmp_path):
    run = RunDirectory.create(tmp_path / "runs", spec)
    validate(spec, run, 2)
    assert rebuild_index(tmp_path / "runs", None) == 1
    database = open_database(None, tmp_path / "runs")
    try:
        [evaluation] = list_evaluations(database, run.run_id)
        assert list_scores(database) == []
    finally:
        database.close()
    with AnswerGrader() as grader:
        expected = [
            [item.training for item in grader.grade_side_by_side([GradeItem(gold, text, "math") for text in texts])]
            for gold, texts in ANSWERS
        ]
    counts = [outcomes.count(Grade.CORRECT) for outcomes in expected]
    assert 0 < sum(counts) < 9
    assert evaluation.avg_at_n == pytest.approx(sum(counts) / 9)
    assert (evaluation.question_set, evaluation.samples_per_question) == ("held_out", NUM_SAMPLES)


def evaluations_of(run):
    return [event for event in EventReader(run).read(max_steps=10).events if event["kind"] == "evaluation"]


def test_a_benchmark_is_sampled_as_its_entry_says(spec, tmp_path):
    benchmarks = {
        "mine": {"source": "mine.jsonl", "samples_per_question": 2, "temperature": 0.0},
        "other": "other.jsonl",
    }
    validation = spec.validation.model_dump() | {"benchmarks": benchmarks}
    spec = parse_spec(spec.model_dump() | {"validation": validation}, "test")
    run = RunDirectory.create(tmp_path / "runs", spec)
    assert validate(spec, run, 2, benchmarks=benchmarks) == [0.6, 0.0, 0.6]
    sampled = [
        (event["question_set"], event["samples_per_question"], event["temperature"]) for event in evaluations_of(run)
    ]
    assert sampled == [("held_out", NUM_SAMPLES, 0.6), ("mine", 2, 0.0), ("other", NUM_SAMPLES, 0.6)]
