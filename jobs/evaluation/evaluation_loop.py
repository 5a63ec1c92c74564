"""The evaluation's job: every benchmark checked, then asked, graded and written question by question, then scored."""

import logging
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from exgrpo.jobs.evaluation.benchmark_questions import (
    BenchmarkQuestion,
    LoadedBenchmark,
    load_benchmark,
    refuse_control_tokens,
)
from exgrpo.jobs.evaluation.generation import AnswerGenerator, PromptedQuestion, SampledQuestion, derive_seed
from exgrpo.jobs.evaluation.model_folder import model_source
from exgrpo.jobs.evaluation.protocols import protocol_of
from exgrpo.jobs.evaluation.recorded_answers import (
    FOLDER,
    AnsweredQuestion,
    AnswerLog,
    benchmark_event,
    repetition_notices,
    reward_means,
)
from exgrpo.jobs.runs.attempts import write_plan
from exgrpo.jobs.runs.checkpoints import ADAPTER_CONFIG
from exgrpo.jobs.runs.control import Control, Phase, TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader, GradeItem, grader_version
from exgrpo.jobs.tasks.grading.rewards import MathReward
from exgrpo.jobs.training.reward_parts import RewardParts, open_reward_parts
from exgrpo.jobs.training.templates import TemplateName, render_prompt
from exgrpo_core.errors import EngineError, InputError
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)

LOG_SECONDS = 10.0


def run_evaluation(spec: EvalSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
    """Run or resume an evaluation; return `finished`, or `stopped` where a stop was asked for.

    Raises:
        TrainingError: Data, model or server cannot be used; one sentence why.
    """
    try:
        benchmarks = [load_benchmark(choice, protocol_of(choice)) for choice in spec.benchmarks]
        (run.path / FOLDER).mkdir(exist_ok=True)
        write_plan(run.path / FOLDER, sum(len(benchmark.questions) for benchmark in benchmarks))
        with (
            AnswerGrader(spec.num_graders, spec.seconds_per_answer) as grader,
            open_reward_parts(MathReward(grader), dict.fromkeys(spec.reward_parts, 1.0)) as parts,
            closing(_make_generator(spec, run, benchmarks)) as generator,
        ):
            return EvaluationLoop(spec, run, recorder, control, generator, grader, parts).run(benchmarks)
    except (InputError, EngineError) as error:
        raise TrainingError(str(error)) from error


@dataclass
class EvaluationLoop:
    """One attempt at an evaluation; questions that an earlier attempt finished are not asked again."""

    spec: EvalSpec
    run_directory: RunDirectory
    recorder: RunRecorder
    control: Control
    generator: AnswerGenerator
    grader: AnswerGrader
    parts: RewardParts
    _num_done: int = 0
    _num_asked: int = 0
    _num_all: int = 0
    _began_at: float = field(default_factory=time.monotonic)
    _logged_at: float = field(default_factory=time.monotonic)

    def run(self, benchmarks: Sequence[LoadedBenchmark]) -> RunStatus:
        """Do all benchmarks in order."""
        self._num_all = sum(len(benchmark.questions) for benchmark in benchmarks)
        for benchmark in benchmarks:
            for notice in benchmark.notices:
                logger.warning("%s", notice)
            log = AnswerLog(self.run_directory.path, benchmark.protocol.name, self.run_directory.newest_attempt())
            try:
                if not self._answer(benchmark, log):
                    return RunStatus.STOPPED
            finally:
                log.close()
        return RunStatus.FINISHED

    def _answer(self, benchmark: LoadedBenchmark, log: AnswerLog) -> bool:
        """Ask the questions that are left and record the scores; False if a stop came before the end."""
        name, num_samples = benchmark.protocol.name, benchmark.samples_per_question
        began_at = time.monotonic()
        answers = self._finished(benchmark, log)
        self._num_done += sum(question.question_id in answers for question in benchmark.questions)
        self._beat(name)
        size = max(1, (self.generator.num_at_once or self.spec.batch_responses) // num_samples)
        for start in range(0, len(benchmark.questions), size):
            batch = benchmark.questions[start : start + size]
            missing = {item.question_id: item for item in batch if item.question_id not in answers}
            if not missing:
                continue
            if self.control.stop_requested():
                return False
            seed = derive_seed(self.spec.seed, name)
            prompted = [self._prompted(benchmark, question) for question in batch]
            with self.control.phase(Phase.ANSWERS):
                for sampled in self.generator.generate(prompted, frozenset(missing), num_samples, seed):
                    answered = self._grade(missing[sampled.question_id], sampled)
                    log.append(answered)
                    answers[answered.question_id] = answered
                    self._num_done += 1
                    self._num_asked += 1
                    self._beat(name)
                log.sync()
        event = benchmark_event(self.spec, benchmark, answers, time.monotonic() - began_at)
        means = reward_means(self.parts, benchmark.questions, answers) if self.spec.reward_parts else {}
        self.recorder.record("benchmark", event | {"reward_parts": means})
        for notice in repetition_notices(self.spec, benchmark, answers):
            logger.warning("%s: %s", name, notice)
        self._log_score(benchmark, event["num_correct"])
        if means:
            logger.info("%s rewards: %s", name, ", ".join(f"{part} {mean:.4f}" for part, mean in means.items()))
        return True

    def _finished(self, benchmark: LoadedBenchmark, log: AnswerLog) -> dict[str, AnsweredQuestion]:
        """Return the answers of earlier attempts; where the grader or the gold answer changed they are graded again.

        Where the question itself changed it is asked again.
        """
        finished: dict[str, AnsweredQuestion] = {}
        recorded, num_golds, num_texts = log.read(), 0, 0
        for question in benchmark.questions:
            answered = recorded.get(question.question_id)
            if answered is None or len(answered.samples) != benchmark.samples_per_question:
                continue
            if answered.question != question.text:
                num_texts += 1
                continue
            if (answered.grader_version, answered.gold) != (grader_version(), question.answer):
                num_golds += answered.gold != question.answer
                sampled = SampledQuestion(answered.question_id, answered.seed, answered.samples)
                answered = self._grade(question, sampled)
                log.append(answered)
            finished[question.question_id] = answered
        if num_golds or num_texts:
            logger.warning(
                "%s: the file changed since these answers: %d gold answers, by which they are graded again, and %d "
                "questions, which are asked again.", benchmark.protocol.name, num_golds, num_texts,
            )  # fmt: skip
        return finished

    def _prompted(self, benchmark: LoadedBenchmark, question: BenchmarkQuestion) -> PromptedQuestion:
        template = TemplateName(benchmark.template(self.spec))
        text = None if template is TemplateName.CHAT else render_prompt(template, question.messages)
        return PromptedQuestion(question.question_id, text, question.messages, benchmark.temperature(self.spec))

    def _grade(self, question: BenchmarkQuestion, sampled: SampledQuestion) -> AnsweredQuestion:
        items = [GradeItem(question.answer, sample.text, question.answer_kind) for sample in sampled.samples]
        outcomes = self.grader.grade_side_by_side(items)
        return AnsweredQuestion(
            question.question_id,
            question.text,
            question.answer,
            sampled.seed,
            sampled.samples,
            outcomes,
            grader_version(),
        )

    def _beat(self, name: str) -> None:
        """Report the progress in the heartbeat and, at times, in the log with the time left."""
        self.control.heartbeat(self._num_done)
        now = time.monotonic()
        if now - self._logged_at < LOG_SECONDS or not self._num_asked:
            return
        self._logged_at = now
        seconds_left = (now - self._began_at) / self._num_asked * (self._num_all - self._num_done)
        logger.info("%s: %d of %d questions, about %d s left", name, self._num_done, self._num_all, round(seconds_left))

    def _log_score(self, benchmark: LoadedBenchmark, num_correct: dict[str, list[int]]) -> None:
        num_answers = len(benchmark.questions) * benchmark.samples_per_question
        scores = ", ".join(f"{scheme} {sum(counts) / num_answers:.4f}" for scheme, counts in num_correct.items())
        logger.info("%s Avg@%d: %s", benchmark.protocol.name, benchmark.samples_per_question, scores)


def _make_generator(spec: EvalSpec, run: RunDirectory, benchmarks: Sequence[LoadedBenchmark]) -> AnswerGenerator:
    if spec.server is not None:
        from exgrpo.jobs.evaluation.server_generator import ServerGenerator

        return ServerGenerator(spec.server, spec, max(benchmark.samples_per_question for benchmark in benchmarks))
    from exgrpo.jobs.training.pretrained.conversion import prepare_model

    source = prepare_model(model_source(spec, run))
    if spec.generator == "vllm":
        if Path(source, ADAPTER_CONFIG).is_file():
            raise TrainingError(
                "generator: the checkpoint holds low-rank adapters, which vLLM is not given; write the model with "
                "`exgrpo export RUN@STEP FOLDER` and score FOLDER, or choose embedded."
            )
        from exgrpo.jobs.evaluation.local_generators import VllmGenerator
        from exgrpo.jobs.training.engines.tokenizer import load_tokenizer

        refuse_control_tokens(benchmarks, load_tokenizer(source, spec.model.revision))
        return VllmGenerator(source, spec)
    from exgrpo.jobs.evaluation.local_generators import EmbeddedGenerator
    from exgrpo.jobs.training.engines.embedded.first_look import open_model

    policy = open_model(source, spec.model.device, spec.model.revision)
    refuse_control_tokens(benchmarks, policy.tokenizer)
    return EmbeddedGenerator(policy, spec.max_response_tokens)
