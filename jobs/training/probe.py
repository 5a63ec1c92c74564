"""A look at a model before a run: a few questions of the run, a few answers each, graded as the run would."""

import time

import numpy as np
import torch

from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.tasks.grading.reward_function import Grade, Response
from exgrpo.jobs.tasks.grading.rewards import open_reward
from exgrpo.jobs.training.engines.embedded.first_look import open_model
from exgrpo.jobs.training.engines.embedded.model import decode_texts, generate
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.probe_report import ProbedAnswer, ProbeReport
from exgrpo.jobs.training.run_data import FileData, open_data

NUM_QUESTIONS = 4
NUM_SAMPLES = 4
_HAS_ANSWER = frozenset({Grade.CORRECT.value, Grade.WRONG.value})


def probe(spec: TrainSpec, num_questions: int = NUM_QUESTIONS, num_samples: int = NUM_SAMPLES) -> ProbeReport:
    """Sample answers to the first training questions of a specification, with the embedded engine on this machine.

    Raises:
        DataError: The data cannot be used; the message names file, row or field.
        EngineError: The model cannot be loaded.
        ModelSourceError: The model cannot be downloaded or converted.
    """
    data_spec = spec.data.model_copy(update={"num_questions": num_questions, "num_held_out": 0})
    spec = spec.model_copy(update={"data": data_spec})
    data = open_data(spec)
    if isinstance(data, FileData):
        data = data.first(num_questions)
    policy = open_model(data.model_source, spec.model.device, spec.model.revision)
    questions, _ = data.encode(policy.tokenizer)
    repeated = [question for question in questions for _ in range(num_samples)]
    sampler = Sampler(spec.algorithm.temperature, torch.Generator(policy.device).manual_seed(spec.seed))
    began_at = time.perf_counter()
    prompts = [question.prompt_ids for question in repeated]
    generated = generate(policy, prompts, spec.algorithm.max_response_tokens, sampler)
    seconds = time.perf_counter() - began_at
    texts = decode_texts(policy, generated)
    responses = [Response(text, item.token_ids, item.is_truncated) for text, item in zip(texts, generated, strict=True)]
    with open_reward(spec) as reward:
        verdicts = [verdict.outcome for verdict in reward.grade(repeated, responses)]
    entropies = [float(item.entropies.mean()) for item in generated]
    answers = zip(texts, [question.answer for question in repeated], verdicts, strict=True)
    return ProbeReport(
        prompt=str(policy.tokenizer.decode(questions[0].prompt_ids.tolist())),
        num_questions=len(questions),
        num_samples=num_samples,
        pass_rate=float(np.mean([verdict == Grade.CORRECT.value for verdict in verdicts])),
        format_rate=float(np.mean([verdict in _HAS_ANSWER for verdict in verdicts])),
        truncation_rate=float(np.mean([item.is_truncated for item in generated])),
        mean_entropy=float(np.mean(entropies)),
        entropy_deviation=float(np.std(entropies, ddof=min(1, len(entropies) - 1))),
        mean_tokens=float(np.mean([item.token_ids.size for item in generated])),
        seconds=seconds,
        answers=tuple(ProbedAnswer(*answer) for answer in list(answers)[::num_samples]),
    )
