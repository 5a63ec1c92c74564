import json

import pytest
import torch
from typer.testing import CliRunner

from exgrpo.jobs.cli.main import app
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import parse_spec
from exgrpo.jobs.tasks.grading.rewards import TASKS, BuiltInTask
from exgrpo.jobs.tasks.questions import build_question
from exgrpo.jobs.tasks.word_problems.story import Story
from exgrpo.jobs.training.composition import run_training
from exgrpo.jobs.training.demonstrations import read_demonstrations
from exgrpo.jobs.training.engines.verl_ray.reward import compute_score, describe_question
from exgrpo.jobs.training.run_data import log_first_prompt, open_data
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from tests.faults.small_training import StepControl
from tests.jobs.training.conftest import SMALL

pytestmark = pytest.mark.slow

SPEC = {
    "data": {"source": "word_problems", "num_questions": 12, "num_held_out": 4},
    "algorithm": SMALL | {"max_prompt_tokens": 400},
    "num_steps": 2,
    "validation": {"interval": None, "samples_per_question": 1, "num_training_questions": 2},
}


def spec_of(folder, **changes):
    return parse_spec(SPEC | {"model": {"source": str(folder), "device": "cpu"}} | changes, "test")


def questions_of(spec, folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return *open_data(spec).encode(tokenizer), tokenizer


def test_a_question_is_one_user_message_in_the_models_chat_template_which_the_log_shows_whole(chat_model, caplog):
    training, held_out, tokenizer = questions_of(spec_of(chat_model), chat_model)
    assert [question.index for question in [*training, *held_out]] == list(range(16))
    story = Story.from_details(training[0].metadata)
    assert training[0].prompt_text == f"<|im_start|>user\n{story.prompt}<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(training[0].prompt_ids) == training[0].prompt_text
    assert "\\boxed{}" in story.prompt
    assert training[0].answer == story.answer
    assert training[0].metadata["question"] == story.text
    with caplog.at_level("INFO"):
        log_first_prompt(training, tokenizer)
    assert training[0].prompt_text in caplog.messages[0]


def test_a_task_of_a_contributor_is_put_to_the_model_in_its_chat_template_too(chat_model, monkeypatch):
    def make_sums(_data, num_questions, num_held_out, tokenizer):
        texts = [f"{number} + 1 =" for number in range(num_questions + num_held_out)]
        return [
            build_question(index, f"sum {index}", text, str(index + 1), tokenizer.encode(text), {"answer_kind": "sums"})
            for index, text in enumerate(texts)
        ]

    monkeypatch.setitem(TASKS, "sums", BuiltInTask(make_sums, TASKS["word_problems"].make_reward, "sum"))
    training, held_out, tokenizer = questions_of(
        spec_of(chat_model, data=SPEC["data"] | {"source": "sums"}), chat_model
    )
    assert (len(training), len(held_out)) == (12, 4)
    assert training[3].prompt_text == "<|im_start|>user\n3 + 1 =<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(training[3].prompt_ids) == training[3].prompt_text
    assert (training[3].answer, training[3].metadata["answer_kind"]) == ("4", "sums")


def test_verls_reward_is_the_same_from_what_its_rows_hold(chat_model):
    [question, *_], _, _ = questions_of(spec_of(chat_model), chat_model)
    extra_info = json.loads(json.dumps(describe_question(question))) | {"is_truncated": False}
    score = compute_score("word_problems", f"7 + 7 = 15. \\boxed{{{question.answer}}}", question.answer, extra_info)
    assert score == {"score": 1.0, "outcome": "correct", "is_valid": False, "has_code": False}


def test_facts_follow_the_demonstrations_and_have_no_end_of_answer(chat_model):
    algorithm = SPEC["algorithm"] | {"max_response_tokens": 600, "experience_ratio": 0.0}
    spec = spec_of(chat_model, sft={"num_facts": 5}, algorithm=algorithm)
    questions, _, tokenizer = questions_of(spec, chat_model)
    facts = read_demonstrations(spec, questions, tokenizer)[-5:]
    for fact in facts:
        prompt = tokenizer.decode(fact.prompt_ids)
        assert prompt.startswith("<|im_start|>user\nCalculate.<|im_end|>")
        assert prompt.endswith(" =")
        assert tokenizer.decode(fact.token_ids).strip().isdigit()
        assert tokenizer.eos_token_id not in fact.token_ids


def test_a_model_is_fine_tuned_on_demonstrations_with_the_threads_asked_for(tmp_path, chat_model, monkeypatch):
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    algorithm = SPEC["algorithm"] | {"max_response_tokens": 400, "experience_ratio": 0.0}
    spec = apply_settings(spec_of(chat_model, sft={"num_facts": 5}, algorithm=algorithm), ["model.num_threads=2"])
    run = RunDirectory.create(tmp_path, spec)
    recorder = FileRecorder(run, run.claim_attempt(), spec.recording)
    assert run_training(spec, run, recorder, StepControl()) is RunStatus.FINISHED
    recorder.close()
    batch = EventReader(run).read()
    assert batch.faults == []
    assert [event["step"] for event in batch.events if event["kind"] == "step"] == [1, 2]
    assert threads == [2]


def test_the_command_that_trains_says_how_many_questions_are_used(chat_model, tmp_path, monkeypatch):
    monkeypatch.setattr("exgrpo.jobs.cli.following.leave_to_supervisor", lambda *_: None)
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(f'{{"question": "{n} + 1?", "answer": "{n + 1}"}}\n' for n in range(40)))
    algorithm = {"batch_size": 4, "mini_batch_size": 4, "max_prompt_tokens": 400, "max_response_tokens": 8}
    spec = {
        "model": {"source": str(chat_model)},
        "data": {"source": str(data), "num_questions": 16, "num_held_out": 2},
        "algorithm": algorithm,
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    words = ["train", "--detach", "--spec", str(tmp_path / "spec.json"), "--runs-root", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "rows.jsonl: 18 of 40 questions are used" in result.stderr
