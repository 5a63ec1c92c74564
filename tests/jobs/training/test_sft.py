import numpy as np
import pytest
import torch

from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import SpecError, parse_spec
from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.tasks.chains.oracle import judge_response
from exgrpo.jobs.tasks.chains.question_set import read_problem
from exgrpo.jobs.training.composition import batch_indexes, run_training
from exgrpo.jobs.training.demonstrations import read_demonstrations
from exgrpo.jobs.training.engines.embedded.model import load_policy
from exgrpo.jobs.training.engines.embedded.update import OptimSettings
from exgrpo.jobs.training.run_data import open_data
from exgrpo_core.recording.run_status import RunStatus
from tests.data_files import verl_row, write_lines
from tests.faults.small_training import StepControl
from tests.jobs.training.conftest import SMALL
from tests.jobs.training.test_composition import MemoryRecorder

pytestmark = pytest.mark.slow

SPEC = {
    "sft": {}, "data": {"num_questions": 24, "num_held_out": 4, "max_operations": 4},
    "algorithm": SMALL | {"batch_size": 8, "mini_batch_size": 8, "max_response_tokens": 112, "experience_ratio": 0.0},
    "optim": {"learning_rate": 1e-2, "warmup_steps": 2}, "num_steps": 6,
    "validation": {"interval": 3, "samples_per_question": 2, "num_training_questions": 2}, "checkpoint_interval": 2,
}  # fmt: skip


def new_run(tmp_path, model, **changes) -> RunDirectory:
    content = SPEC | {"model": {"source": str(model), "device": "cpu"}} | changes
    return RunDirectory.create(tmp_path, parse_spec(content, "test"))


def train(run, control=None):
    recorder = MemoryRecorder()
    return run_training(run.spec(), run, recorder, control or StepControl()), recorder


def weights(run, step):
    folder = run.checkpoints_path / f"step-{step:08d}" / "policy"
    return load_policy(str(folder), torch.device("cpu")).model.state_dict()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, model):
    run = new_run(tmp_path_factory.mktemp("tuned"), model)
    status, recorder = train(run)
    assert status is RunStatus.FINISHED
    return run, recorder


def test_fine_tuning_lowers_the_loss_and_records_steps_scores_and_checkpoints(tuned):
    _, recorder = tuned
    losses = [report.metrics["loss/sft"] for report in recorder.steps]
    assert [report.step for report in recorder.steps] == [1, 2, 3, 4, 5, 6]
    assert losses[0] == pytest.approx(np.log(len(make_tokenizer())), rel=0.1)
    assert losses[-1] < losses[0] - 0.3
    scored = [(record.step, record.question_set) for record in recorder.evaluations]
    assert scored == [(0, "training"), (0, "held_out"), (3, "held_out"), (6, "training"), (6, "held_out")]
    assert recorder.checkpoints == [2, 4, 6]


def test_stopped_fine_tuning_goes_on_to_the_same_weights_bit_for_bit(tuned, tmp_path, model):
    stopped = new_run(tmp_path, model)
    status, first = train(stopped, StepControl(3))
    assert status is RunStatus.STOPPED
    assert first.checkpoints == [2, 3]
    status, second = train(stopped)
    assert status is RunStatus.FINISHED
    assert [report.step for report in second.steps] == [4, 5, 6]
    expected = weights(tuned[0], 6)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(stopped, 6).items())


def test_demonstrations_of_chains_are_right_whole_and_the_same_for_a_seed(tmp_path, model):
    spec = new_run(tmp_path, model).spec()
    tokenizer = make_tokenizer()
    questions, _ = open_data(spec).encode(tokenizer)
    demonstrations = read_demonstrations(spec, questions, tokenizer)
    for question, demonstration in zip(questions, demonstrations, strict=True):
        text = tokenizer.decode(demonstration.token_ids, skip_special_tokens=True)
        assert judge_response(read_problem(question), text).is_correct
        assert demonstration.token_ids[-1] == tokenizer.eos_token_id
    again = read_demonstrations(spec, questions, tokenizer)
    assert [item.token_ids.tolist() for item in again] == [entry.token_ids.tolist() for entry in demonstrations]


def write_rows(path, target):
    write_lines(path, [verl_row(f"1+{number}", str(number + 1), target=target(number)) for number in range(9)])
    return {"source": str(path), "template": "none", "num_questions": 8, "num_held_out": 1}


@pytest.mark.parametrize(
    "target",
    [lambda number: f"{number};", lambda number: [{"role": "assistant", "content": f"{number};"}]],
    ids=["text", "messages"],
)
def test_demonstrations_come_from_a_column_of_the_data_set_as_text_or_messages(tmp_path, model, target):
    spec = new_run(tmp_path, model, data=write_rows(tmp_path / "rows.jsonl", target)).spec()
    tokenizer = make_tokenizer()
    questions, held_out = open_data(spec).encode(tokenizer)
    demonstrations = read_demonstrations(spec, questions, tokenizer)
    texts = [tokenizer.decode(item.token_ids, skip_special_tokens=True) for item in demonstrations]
    assert texts == [f"{number};" for number in range(8)]
    assert len(held_out) == 1


def test_missing_demonstrations_are_named_long_ones_left_out_and_too_few_refused(tmp_path, model, caplog):
    data = write_rows(tmp_path / "rows.jsonl", lambda number: None if number == 3 else "5;")
    with pytest.raises(TrainingError, match=r"row 4, target: .* sft.response_column"):
        train(new_run(tmp_path, model, data=data))
    data = write_rows(tmp_path / "rows.jsonl", lambda number: "5;" * (200 if number == 0 else 1))
    algorithm = SPEC["algorithm"] | {"batch_size": 7, "mini_batch_size": 7}
    status, _ = train(new_run(tmp_path, model, data=data, algorithm=algorithm, num_steps=1))
    assert status is RunStatus.FINISHED
    assert "1 demonstrations longer than 112 tokens are left out" in caplog.text
    with pytest.raises(TrainingError, match=r"7 demonstrations fit .* algorithm.batch_size \(8\)"):
        train(new_run(tmp_path, model, data=data))


def test_every_demonstration_is_shown_once_a_round_in_an_order_of_the_round():
    indexes = [item for step in range(1, 7) for item in batch_indexes(12, 4, step, seed=1)]
    assert sorted(indexes[:12]) == sorted(indexes[12:]) == list(range(12))
    assert indexes[:12] != indexes[12:]
    assert indexes[:4] == batch_indexes(12, 4, 1, seed=1)


def test_learning_rate_warms_up_and_falls_to_nothing_along_a_cosine():
    settings = OptimSettings(learning_rate=1.0, warmup_steps=2, decay_steps=6)
    assert [settings.learning_rate_at(done) for done in range(7)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.5 + 0.25 * 2**0.5, 0.5, 0.5 - 0.25 * 2**0.5, 0.0]
    )
    assert OptimSettings(learning_rate=1.0, warmup_steps=2).learning_rate_at(100) == 1.0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"algorithm": SPEC["algorithm"] | {"experience_ratio": 0.5}}, "algorithm.experience_ratio"),
        ({"engine": "verl"}, "engine"),
        ({"sft": {"num_facts": 1}}, "sft.num_facts"),
    ],
)
def test_settings_that_fine_tuning_cannot_follow_are_refused(changes, field):
    with pytest.raises(SpecError) as refused:
        parse_spec(SPEC | changes, "test")
    assert refused.value.fields[0] == field
