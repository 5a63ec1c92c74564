"""Warm start: small models taught by imitation before reinforcement begins, shipped or made on this machine.

The weights for the default chains are shipped so that runs on all machines begin alike: 1,200 steps at a high rate
amplify the last digit of a sum, which depends on the processor's instructions.
`ATEN_CPU_CAPABILITY=avx2 python -m exgrpo.jobs.training.warm_start` made them, in two minutes.

Models are cached in folders named by a hash of their settings and of `RECIPE`, so a change of either makes a new one.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging as transformers_logging

from exgrpo.jobs.tasks.chains.demonstrators import Demonstrators, make_tokenizer, write_demonstration
from exgrpo.jobs.tasks.chains.question_set import draw_problem
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.engines.embedded.model import PolicyModel, load_policy, wrap_model
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Scoring
from exgrpo.jobs.training.pretrained.sources import make_once

ROPE_THETA = 10000.0
INITIALIZER_RANGE = 0.04
MAX_POSITIONS = 1024
WARMUP_STEPS = 30
FINAL_LEARNING_RATE = 1e-5
SCORING = Scoring(temperature=1.0, has_entropies=False)
Progress = Callable[[int, int], None]
"""Hears of steps done and steps in all."""


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """Steps and peak learning rate; warmed up over 30 steps, then linear decay."""

    num_steps: int
    learning_rate: float


def make_demonstration(prompt_ids: list[int], response_ids: list[int]) -> TokenSequence:
    """Return token ids of a prompt and of a response to imitate, end-of-sequence token included."""
    return TokenSequence(np.asarray(prompt_ids, dtype=np.int32), np.asarray(response_ids, dtype=np.int32))


def make_small_policy(
    tokenizer: PreTrainedTokenizerFast, num_layers: int, width: int, num_heads: int, seed: int
) -> PolicyModel:
    """Return a fresh Qwen2 model with tied embeddings on the CPU; its vocabulary is the tokenizer's."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]
    return wrap_model(model, tokenizer, torch.device("cpu"))


def train_by_imitation(
    policy: PolicyModel,
    draw_batch: Callable[[float], list[TokenSequence]],
    settings: ImitationSettings,
    progress: Progress | None = None,
) -> float:
    """Train on batches from `draw_batch(share of steps done)`; return the last mean loss a token, in nats."""
    parameters = list(policy.model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=settings.learning_rate, weight_decay=0.0, betas=(0.9, 0.98), fused=True
    )
    loss = torch.zeros(())
    with _one_thread():
        for step in range(settings.num_steps):
            share_done = step / settings.num_steps
            warmth = min(1.0, (step + 1) / WARMUP_STEPS)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * warmth * (1 - share_done) + FINAL_LEARNING_RATE
            loss = -policy.backend.score(draw_batch(share_done), SCORING).log_probs.mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            policy.backend.weights_changed()
            if progress is not None:
                progress(step + 1, settings.num_steps)
    return loss.item()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Hold torch to one thread: for models this small more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


SHIPPED_WEIGHTS = Path(__file__).with_name("chains_warm.safetensors")
SHA256 = "9d0eb1fc31eddfd032d621c1c462f4258d160658e040f1cc5ac85f090b16aaee"
RECIPE = 1
"""Version of how warm models are made, these steps and the shipped weights: raise it when either changes."""

EASY_OPERATIONS = 4
FULL_RANGE_FROM = 0.4
FULL_NOISE_FROM = 0.55
EARLY_ERROR_SCALE = 0.3
NUM_LAST_STEPS = 120
LAST_LEARNING_RATE = 2e-3
LAST_MAX_ERROR = 0.9
LARGE_ERROR_SCALE = 5.0
"""Above it more of the last steps are taken in proportion, as a model that knows its tables unlearns them slowly."""


@dataclass(frozen=True, slots=True)
class WarmStartSettings:
    """What the warm model of register chains is and sees; the defaults solve about half at temperature 0.6."""

    num_layers: int = 2
    width: int = 64
    num_heads: int = 4
    num_steps: int = 1200
    """SFT steps; from about 1,000 on the model knows its tables and reinforcement has something to sharpen."""
    batch_size: int = 32
    """Demonstrations a step."""
    learning_rate: float = 8e-3
    max_operations: int = 10
    """Longest demonstrated chain; the shortest has one operation."""
    modulus: int = 10
    error_scale: float = 1.5
    """Multiplies the demonstrators' error rates; sets Pass@1."""
    last_error_scale: float | None = None
    """As `error_scale`, in 120 or more further steps on one model of few errors: its Pass@1 can have several values."""
    seed: int = 0


def warm_model(settings: WarmStartSettings, cache_dir: Path, progress: Progress | None = None) -> Path:
    """Return the Hugging Face folder of the warm model for register chains, making it if it is not in the cache.

    That of the default settings is shipped; others are trained here, where the processor's rounding may change them.
    Processes may call this at once: each returns a whole folder.
    """

    def build(folder: Path) -> None:
        if settings.last_error_scale is not None:
            knowing = replace(settings, last_error_scale=None, error_scale=EARLY_ERROR_SCALE)
            policy = _teach_errors(warm_model(knowing, cache_dir, progress), settings, progress)
        elif settings == WarmStartSettings():
            policy = _fresh_policy(make_tokenizer(), settings)
            policy.model.load_state_dict(read_shipped())
        else:
            policy = teach_chains(settings, progress)
        _save(policy, folder)

    content = {"recipe": RECIPE, "settings": asdict(settings)}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return make_once(cache_dir / f"chains-warm-{digest}", build)


def _teach_errors(finished: Path, settings: WarmStartSettings, progress: Progress | None) -> PolicyModel:
    """Return a finished model that imitated demonstrators with other error rates at last."""
    policy = load_policy(str(finished), torch.device("cpu"))
    chain_tokenizer, rng = make_tokenizer(), random.Random(settings.seed)
    last = Demonstrators(error_scale=settings.last_error_scale or 0.0, max_error=LAST_MAX_ERROR)

    def draw_batch(_share_done: float) -> list[TokenSequence]:
        drawn = (rng, settings.max_operations, settings.modulus, last, chain_tokenizer)
        return [_write(*drawn) for _ in range(settings.batch_size)]

    num_steps = int(NUM_LAST_STEPS * max(1.0, last.error_scale / LARGE_ERROR_SCALE))
    train_by_imitation(policy, draw_batch, ImitationSettings(num_steps, LAST_LEARNING_RATE), progress)
    return policy


def teach_chains(settings: WarmStartSettings, progress: Progress | None = None) -> PolicyModel:
    """Return a fresh model that imitated demonstrators of register chains."""
    chain_tokenizer = make_tokenizer()
    rng = random.Random(settings.seed)

    def draw_batch(share_done: float) -> list[TokenSequence]:
        return [_draw_demonstration(settings, share_done, rng, chain_tokenizer) for _ in range(settings.batch_size)]

    policy = _fresh_policy(chain_tokenizer, settings)
    train_by_imitation(policy, draw_batch, ImitationSettings(settings.num_steps, settings.learning_rate), progress)
    return policy


def _fresh_policy(model_tokenizer: PreTrainedTokenizerFast, settings: WarmStartSettings) -> PolicyModel:
    return make_small_policy(
        model_tokenizer, settings.num_layers, settings.width, settings.num_heads, seed=settings.seed
    )


def _save(policy: PolicyModel, folder: Path) -> None:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # untyped in transformers
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)


def _draw_demonstration(
    settings: WarmStartSettings, share_done: float, rng: random.Random, chain_tokenizer: PreTrainedTokenizerFast
) -> TokenSequence:
    is_full_range = share_done > FULL_RANGE_FROM
    longest = settings.max_operations if is_full_range else min(EASY_OPERATIONS, settings.max_operations)
    scale = settings.error_scale if share_done > FULL_NOISE_FROM else min(EARLY_ERROR_SCALE, settings.error_scale)
    return _write(rng, longest, settings.modulus, Demonstrators(error_scale=scale), chain_tokenizer)


def _write(
    rng: random.Random, longest: int, modulus: int, writers: Demonstrators, chain_tokenizer: PreTrainedTokenizerFast
) -> TokenSequence:
    drawn = draw_problem(rng, rng.randint(1, longest), modulus)
    ids = chain_tokenizer.encode(write_demonstration(drawn, rng, writers), add_special_tokens=False)
    return make_demonstration(chain_tokenizer.encode(drawn.text), [*ids, int(chain_tokenizer.eos_token_id)])


def read_shipped(path: Path = SHIPPED_WEIGHTS) -> dict[str, Tensor]:
    """Return the tensors by name.

    Raises:
        DataError: The file is missing or damaged.
    """
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{path}: the shipped warm weights are missing or damaged; install the program again.")
    return load(content)


def main() -> None:
    """Train the default warm model, write its weights, and print the checksum for `SHA256`."""
    policy = teach_chains(WarmStartSettings())
    save_file({name: tensor.clone() for name, tensor in policy.model.state_dict().items()}, SHIPPED_WEIGHTS)
    print(hashlib.sha256(SHIPPED_WEIGHTS.read_bytes()).hexdigest())  # noqa: T201 (its output)


if __name__ == "__main__":
    main()
