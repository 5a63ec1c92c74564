"""The recorded runs that pages are checked on, made by the real workers of the embedded engine within half a minute.

`python -m tests.numbers.record ROOT` makes them in a process of its own, so that no page's process loads torch: chains
by ExGRPO and on-policy, a judge of the former, word problems by a model that learned some by heart, and evaluations.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHAINS, ON_POLICY, LEARNED, STORIES = "chains", "on-policy", "learned", "stories"
"""Ids of training runs."""
JUDGE, STORIES_JUDGE = "judge of chains", "judge of stories"
"""Names of judges' jobs."""
EVALUATIONS = {"first third": f"{CHAINS}@7", "at the end": f"{CHAINS}@last"}
"""Scored checkpoint of each evaluation by its name, on a benchmark of the user's own, `sums`, of chains."""
FAILED = "out of memory"
"""Name of an evaluation that failed before its first question."""
BENCHMARK, NUM_SUMS = "sums", 20
STUDY = "main-table"
"""The study whose cells the training runs are said to be by their tags."""
SEEDS = {CHAINS: ("exgrpo", 0), ON_POLICY: ("on-policy", 0), STORIES: ("exgrpo", 1), LEARNED: ("on-policy", 1)}
MARK, MARKED = "odd", 5
"""A mark and the trajectory of the first run that has it."""
CASES = "kept"
"""Name of a set of saved cases."""
_CHAINS: dict[str, Any] = {
    "name": "chains ExGRPO", "num_steps": 21,
    "data": {"num_questions": 40, "num_held_out": 16},
    "algorithm": {
        "batch_size": 8, "mini_batch_size": 4, "rollouts_per_question": 8, "max_prompt_tokens": 64,
        "max_response_tokens": 112, "policy_loss_factor": 3.5, "entropy_coefficient": 0.0, "start_pass_rate": 0.1,
    },
    "validation": {"interval": 5, "samples_per_question": 4, "num_training_questions": 8},
    "checkpoint_interval": 7, "num_checkpoints_kept": 3,
}  # fmt: skip
_STORIES: dict[str, Any] = {
    "data": {"source": "word_problems", "num_questions": 24, "max_operations": 1, "number_size": "tiny", "seed": 7},
    "algorithm": {"max_prompt_tokens": 400, "max_response_tokens": 100, "entropy_coefficient": 0.0},
}


def tags_of(run_id):
    cell, seed = SEEDS.get(run_id, ("", 0))
    return [f"cell:{cell}", "scale:chains", f"seed:{seed}", f"study:{STUDY}"] if cell else []


def record(runs_root):
    command = [sys.executable, "-m", "tests.numbers.record", str(runs_root)]
    subprocess.run(command, check=True, capture_output=True, text=True)


def _train(runs_root, run_id, content):
    from exgrpo.jobs.runs.directory import RunDirectory
    from exgrpo.jobs.specs.train import parse_spec

    _work(RunDirectory.create(runs_root, parse_spec(content, "test"), run_id=run_id))


def _work(run):
    """Do a job's first attempt in this process, as a worker does."""
    from exgrpo.jobs.execution.worker.__main__ import main

    run.request_attempt(1)
    run.claim_attempt(1)
    with run.log_path.open("wb") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    assert main([str(run.path), "1"]) == 0, run.log_path.read_text()


def _train_on_stories(runs_root):
    """Let a random model learn word problems by heart, and train it on them."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from exgrpo.jobs.tasks.word_problems.question_set import make_stories
    from tests.jobs.training.chat_model import CHAT_TEMPLATE
    from tests.jobs.training.format_tokenizer import make_format_tokenizer

    folder = runs_root.parent / "random-model"
    tokenizer = make_format_tokenizer([story.prompt for story in make_stories(60, 0)], vocabulary_size=600)
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, **sizes, **ends)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _train(runs_root, LEARNED, _STORIES | {
        "name": "stories by heart", "model": {"source": str(folder), "device": "cpu"}, "sft": {"num_facts": 0},
        "data": _STORIES["data"] | {"num_held_out": 8}, "num_steps": 100, "checkpoint_interval": 100,
        "algorithm": _STORIES["algorithm"] | {"experience_ratio": 0.0, "batch_size": 24, "mini_batch_size": 24},
        "optim": {"learning_rate": 5e-3, "warmup_steps": 6},
        "validation": {"interval": 100, "samples_per_question": 4, "num_training_questions": 0},
    })  # fmt: skip
    policy = runs_root / LEARNED / "checkpoints" / "step-00000100" / "policy"
    _train(runs_root, STORIES, _STORIES | {
        "name": "stories ExGRPO", "model": {"source": str(policy), "device": "cpu"}, "num_steps": 12,
        "data": _STORIES["data"] | {"num_held_out": 8}, "checkpoint_interval": 12,
        "algorithm": _STORIES["algorithm"]
        | {"batch_size": 4, "mini_batch_size": 2, "rollouts_per_question": 4, "start_pass_rate": 0.0},
        "optim": {"learning_rate": 1e-4},
        "validation": {"interval": 4, "samples_per_question": 4, "num_training_questions": 4},
    })  # fmt: skip


def _queue(runs_root, spec, work=_work):
    """Queue a job that reads another run, and do it."""
    from exgrpo.jobs.actions.queueing import queue_job
    from exgrpo.jobs.runs.directory import RunDirectory

    work(RunDirectory.open(runs_root, queue_job(runs_root, spec)))


def _fail(run):
    from exgrpo.jobs.runs.attempts import write_outcome
    from exgrpo_core.recording.run_status import RunStatus

    run.request_attempt(1)
    run.claim_attempt(1)
    write_outcome(run.attempt_path(1), RunStatus.FAILED, "no memory is left")


def _judge(runs_root, name, judged):
    from exgrpo.jobs.specs.base import checked
    from exgrpo.jobs.specs.judging import JudgeSpec

    _queue(runs_root, checked(JudgeSpec, {"judge": "oracle", "judged": {"run_id": judged}, "name": name}, "test"))


def _evaluate(runs_root):
    from exgrpo.jobs.actions.evaluations import plan_evaluation
    from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
    from exgrpo.jobs.tasks.chains.question_set import make_questions

    path = runs_root.parent / f"{BENCHMARK}.jsonl"
    questions = make_questions(NUM_SUMS, 99, make_tokenizer())
    lines = [json.dumps({"question": item.prompt_text, "answer": item.answer}) for item in questions]
    path.write_text("\n".join(lines) + "\n")
    choice = {"name": BENCHMARK, "source": str(path), "samples_per_question": 4}
    for name, target in (EVALUATIONS | {FAILED: f"{CHAINS}@last"}).items():
        spec = plan_evaluation(runs_root, target, {"benchmarks": [choice], "name": name}, "test")
        _queue(runs_root, spec, _fail if name == FAILED else _work)


def _record(runs_root):
    runs_root.mkdir(parents=True, exist_ok=True)
    _train(runs_root, CHAINS, _CHAINS)
    on_policy = {"name": "chains on-policy", "num_steps": 9, "checkpoint_interval": 9}
    _train(runs_root, ON_POLICY, _CHAINS | on_policy | {"algorithm": _CHAINS["algorithm"] | {"experience_ratio": 0.0}})
    _judge(runs_root, JUDGE, CHAINS)
    _evaluate(runs_root)
    _train_on_stories(runs_root)
    _judge(runs_root, STORIES_JUDGE, STORIES)


if __name__ == "__main__":
    _record(Path(sys.argv[1]))
