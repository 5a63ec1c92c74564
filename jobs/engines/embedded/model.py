"""A policy: a Hugging Face causal language model, its tokenizer and the way to compute it."""

import logging
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as transformers_logging

from jobs.engines.embedded.backend import Backend, PackedBackend
from jobs.engines.embedded.decoder import Decoder, is_supported
from jobs.engines.embedded.memory import working_bytes
from jobs.engines.embedded.padded import PaddedBackend
from jobs.engines.errors import EngineError
from jobs.machine.processor import uses_bfloat16
from jobs.specs.model_code import named_code

logger = logging.getLogger(__name__)
_PLAIN_TOKENIZERS = frozenset({"TokenizersBackend", "PreTrainedTokenizerFast"})
"""Tokenizers that follow their tokenizer.json exactly; for some model types AutoTokenizer adds tokens to them."""


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """pi_theta: float32 weights in `model`, computed by `backend` in `compute_dtype`.

    `end_token_ids` (E,) end a response. `context_tokens` is the longest prompt and response together, None if the
    model sets no limit. `source` is where it was loaded from.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    backend: Backend
    device: torch.device
    end_token_ids: torch.Tensor
    context_tokens: int | None
    source: str
    compute_dtype: torch.dtype = torch.float32

    @property
    def working_bytes(self) -> int:
        """Memory for a batch's cache or activations."""
        return working_bytes(self.device, self.model.num_parameters())

    @property
    def is_packed(self) -> bool:
        """Whether our decoder computes this policy, not the model's Hugging Face forward."""
        return isinstance(self.backend, PackedBackend)


def resolve_device(name: str) -> torch.device:
    """Return the device that `auto`, `cpu` or `cuda` means.

    Raises:
        EngineError: `cuda` is given and there is none.
    """
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise EngineError("model.device: expected a CUDA GPU, but torch sees none; use auto or cpu.")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def load_policy(source: str, device: torch.device, revision: str | None = None) -> PolicyModel:
    """Load a causal language model and its tokenizer from a folder or the hub; code of theirs is never run.

    Raises:
        EngineError: The model comes with code, has no safetensors weights, or cannot be found or read.
    """
    try:
        refuse_remote_code(source, revision)
        options = {"revision": revision, "trust_remote_code": False}
        tokenizer = load_tokenizer(source, revision)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # untyped in transformers
        model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, use_safetensors=True, **options)
    except (OSError, ValueError, KeyError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise EngineError(f"model.source: {source} cannot be loaded as a causal language model ({reason})") from error
    return wrap_model(model, tokenizer, device, source)


def choose_dtype(device: torch.device, num_parameters: int) -> torch.dtype:
    """Return in what a model is computed: bfloat16 on a GPU and where a CPU multiplies it faster, else float32."""
    is_fast = device.type == "cuda" or uses_bfloat16(num_parameters)
    return torch.bfloat16 if is_fast else torch.float32


def wrap_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, device: torch.device, source: str = "memory"
) -> PolicyModel:
    """Return a policy of a float32 model that is loaded already; it is moved to `device` and put into eval mode.

    Dropout stays off in training too: the log-probs of a rollout and of its update must be of one policy.

    Raises:
        EngineError: The tokenizer knows tokens that the model lacks, or nothing ends a response.
    """
    num_embeddings = cast(torch.Tensor, model.get_input_embeddings().weight).shape[0]
    if len(tokenizer) > num_embeddings:
        raise EngineError(
            f"model.source: the tokenizer of {source} has {len(tokenizer)} tokens but the model only {num_embeddings}; "
            "take the tokenizer that belongs to the model."
        )
    nn.Module.to(model, device=device, dtype=torch.float32).train(mode=False)
    is_gpu = device.type == "cuda"
    compute_dtype = choose_dtype(device, model.num_parameters())
    logger.info("%s is computed in %s, with weights in float32.", source, str(compute_dtype).removeprefix("torch."))
    backend: Backend
    if is_supported(model):
        backend = PackedBackend(Decoder(model, compute_dtype), checkpoints_gradients=is_gpu)
    else:
        backend = PaddedBackend(model, compute_dtype)
    return PolicyModel(
        model=model,
        tokenizer=tokenizer,
        backend=backend,
        device=device,
        end_token_ids=torch.tensor(_end_token_ids(model, tokenizer, source), device=device),
        context_tokens=getattr(model.config, "max_position_embeddings", None),
        source=source,
        compute_dtype=compute_dtype,
    )


def refuse_remote_code(source: str, revision: str | None = None) -> None:
    """Refuse a model whose folder or hub repository names code.

    Raises:
        EngineError: It does.
        OSError: It cannot be found.
    """
    settings = {
        "config.json": PreTrainedConfig.get_config_dict(source, revision=revision)[0],
        "tokenizer_config.json": get_tokenizer_config(source, revision=revision),
    }
    for name, content in settings.items():
        field = named_code(content)
        if field is not None:
            raise EngineError(
                f"model.source: {source} comes with code ({field} in {name}), which is never run; choose a model "
                "whose architecture transformers knows."
            )


def load_tokenizer(source: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model's files; code in them is never run."""
    settings = get_tokenizer_config(source, revision=revision)
    is_plain = settings.get("tokenizer_class") in _PLAIN_TOKENIZERS
    loader = PreTrainedTokenizerFast if is_plain else AutoTokenizer
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    return cast(PreTrainedTokenizerBase, loader.from_pretrained(source, **options))


def _end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> list[int]:
    generation = model.generation_config.eos_token_id if model.generation_config is not None else None
    end_tokens: set[int] = set()
    for value in (generation, model.config.eos_token_id, tokenizer.eos_token_id):
        end_tokens |= set(value) if isinstance(value, list) else {value} if value is not None else set()
    if not end_tokens:
        raise EngineError(
            f"model.source: {source} names no end-of-sequence token; set eos_token_id in its config.json."
        )
    return sorted(end_tokens)
