"""A policy: a Hugging Face causal language model, its tokenizer and the way to compute it; its rollouts and scores."""

import copy
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from exgrpo.jobs.machine.hardware import uses_bfloat16
from exgrpo.jobs.runs.checkpoints import ADAPTER_CONFIG
from exgrpo.jobs.training.engines.embedded.backend import Backend, PackedBackend, PaddedBackend
from exgrpo.jobs.training.engines.embedded.decoder import Decoder, WeightOf, adapted_weight, base_weight, is_supported
from exgrpo.jobs.training.engines.embedded.decoding import DecodedRows, is_end
from exgrpo.jobs.training.engines.embedded.length_rope import LengthRope
from exgrpo.jobs.training.engines.embedded.lora import (
    LoraSettings,
    add_adapters,
    has_adapters,
    merge_adapters,
    read_base,
)
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Sampler, Scoring
from exgrpo.jobs.training.engines.embedded.settings_files import refuse_remote_code
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer, response_texts
from exgrpo_core.engine import read_end_tokens
from exgrpo_core.errors import EngineError, first_line
from exgrpo_core.types import BoolArray, Float32Array, Int32Array, TrajectoryScores

logger = logging.getLogger(__name__)
CPU_BYTES = 2 * 2**30
_GPU_SHARE = 0.6
"""Share of a GPU's memory beyond the model; the rest is for short-lived tensors and fragments."""
_BYTES_PER_WEIGHT = 18
"""Float32 weight, gradient and two moments, and a bfloat16 copy."""
_MIN_GPU_BYTES = 2**30
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """pi_theta: float32 weights in `model`, computed by `backend` in `compute_dtype`.

    `end_token_ids` (E,) end a response. `context_tokens` is the longest prompt and response together, None if the
    model sets no limit; a response that begins within `rope_border` tokens ends there. `source` is where the model was
    loaded from.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    backend: Backend
    device: torch.device
    end_token_ids: torch.Tensor
    context_tokens: int | None
    source: str
    compute_dtype: torch.dtype = torch.float32
    rope_border: int | None = None

    def limit_after(self, num_prompt_tokens: int) -> int | None:
        """Return the most tokens of a prompt and its response: beyond longrope's border the prompt would be another."""
        is_within = self.rope_border is not None and num_prompt_tokens <= self.rope_border
        return self.rope_border if is_within else self.context_tokens

    @property
    def working_bytes(self) -> int:
        """Memory for the keys and values of a batch of rollouts, or for the activations of a micro-batch.

        It follows from machine and model alone, never from what happens to be free: batches, and with them every random
        draw, are the same when a run is repeated or resumed.
        """
        if self.device.type != "cuda":
            return CPU_BYTES
        total: int = torch.cuda.get_device_properties(self.device).total_memory
        return max(_MIN_GPU_BYTES, int(_GPU_SHARE * (total - _BYTES_PER_WEIGHT * self.model.num_parameters())))

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
        raise EngineError("expected a CUDA GPU, but torch sees none; use auto or cpu.", "model.device")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def load_policy(source: str, device: torch.device, revision: str | None = None) -> PolicyModel:
    """Load a causal language model and its tokenizer from a folder or the hub; code of theirs is never run.

    Raises:
        EngineError: The model comes with code, has no safetensors weights, or cannot be found or read.
    """
    try:
        model = _load_model(source, revision)
        tokenizer = load_tokenizer(source, revision)
        return wrap_model(model, tokenizer, device, source)
    except EngineError:
        raise
    except Exception as error:  # the readers of models raise errors of any kind
        known = "" if os.path.exists(source) else "is no folder here and "
        raise EngineError(
            f"{source} {known}cannot be loaded as a causal language model ({first_line(error)}); choose another "
            "folder, GGUF file, hub name or pip:PACKAGE.",
            "model.source",
        ) from error


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
            f"the tokenizer of {source} has {len(tokenizer)} tokens but the model only {num_embeddings}; "
            "take the tokenizer that belongs to the model.",
            "model.source",
        )
    nn.Module.to(model, device=device, dtype=torch.float32).train(mode=False)
    _freeze_towers(model)
    compute_dtype = choose_dtype(device, model.num_parameters())
    logger.info("%s is computed in %s, with weights in float32.", source, str(compute_dtype).removeprefix("torch."))
    return PolicyModel(
        model=model,
        tokenizer=tokenizer,
        backend=_make_backend(model, compute_dtype),
        device=device,
        end_token_ids=torch.tensor(_end_token_ids(model, tokenizer, source), device=device),
        context_tokens=getattr(model.config.get_text_config(), "max_position_embeddings", None),
        source=source,
        compute_dtype=compute_dtype,
        rope_border=LengthRope(model).border,
    )


def train_adapters(policy: PolicyModel, settings: LoraSettings, seed: int) -> None:
    """Freeze a policy's weights and add low-rank adapters to them, which alone are trained then.

    Raises:
        EngineError: The model's architecture is one that our decoder does not compute.
    """
    if not policy.is_packed:
        raise EngineError(
            f"expected a Qwen2, Qwen3 or Llama model, {policy.source} is a "
            f"{type(policy.model).__name__}; leave lora out.",
            "model.lora",
        )
    add_adapters(policy.model, settings, seed)
    policy.backend.weights_changed()


def frozen_reference(policy: PolicyModel) -> PolicyModel:
    """Return the policy as it is now, for a KL penalty: a copy, or with adapters the same weights without them."""
    if has_adapters(policy.model):
        return replace(policy, backend=_make_backend(policy.model, policy.compute_dtype, base_weight))
    model = copy.deepcopy(policy.model).requires_grad_(False)
    return wrap_model(model, policy.tokenizer, policy.device, policy.source)


def _make_backend(model: PreTrainedModel, compute_dtype: torch.dtype, weight_of: WeightOf = adapted_weight) -> Backend:
    if is_supported(model):
        decoder = Decoder(model, compute_dtype, weight_of)
        return PackedBackend(decoder, checkpoints_gradients=model.device.type == "cuda")
    return PaddedBackend(model, compute_dtype)


def _load_model(source: str, revision: str | None) -> PreTrainedModel:
    """Return a float32 model; adapters in a folder are merged into the model that they belong to."""
    refuse_remote_code(source, revision)
    folder = Path(source)
    if (folder / ADAPTER_CONFIG).is_file():
        return merge_adapters(folder, _load_model(read_base(folder), None))
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call] # untyped in transformers
    return load_weights(source, revision, dtype=torch.float32, use_safetensors=True)


def refuse_odd_files(source: str) -> None:
    """Refuse a model that another program will load: with code, damaged settings, or weights that are not its own.

    Raises:
        EngineError: It is one.
        OSError: It cannot be found.
    """
    refuse_remote_code(source)
    if Path(source).is_dir():
        load_weights(source, device_map="meta")


def load_weights(source: str, revision: str | None = None, **options: object) -> PreTrainedModel:
    """Return a model as transformers loads it; on the device "meta" its files are looked through alone.

    Raises:
        EngineError: They lack weights of the model, which transformers would draw at random, hold further layers, or
            have other sizes.
        OSError, ValueError: They cannot be found or read.
    """
    loaded: Any = model_class(AutoConfig.from_pretrained(source, revision=revision)).from_pretrained(
        source,
        revision=revision,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # refused below, by name
        **options,
    )
    model, report = cast(tuple[PreTrainedModel, dict[str, set[Any]]], loaded)
    if other := sorted(report["mismatched_keys"], key=str):
        name, found, expected = other[0]
        raise EngineError(
            f"{source} has weights of other sizes than its config.json says, such as {name}: expected "
            f"{list(expected)}, got {list(found)}; take the config.json that belongs to them.",
            "model.source",
        )
    own = {_DIGITS.sub("", name) for name in model.state_dict()}
    missing = sorted(report["missing_keys"])
    further = sorted(name for name in report["unexpected_keys"] if _DIGITS.sub("", name) in own)
    if missing:
        raise EngineError(
            f"{source} lacks {len(missing)} of the weights of a {type(model).__name__}, such as "
            f"{missing[0]}; take a whole language model, not one with another head or other names.",
            "model.source",
        )
    if further:
        raise EngineError(
            f"{source} has weights of more layers than its config.json says, such as {further[0]}; take "
            "the config.json that belongs to them.",
            "model.source",
        )
    if unused := sorted(report["unexpected_keys"]):
        logger.warning(
            "%s has %d weights, such as %s, that a %s does not have: no checkpoint will hold them.",
            source, len(unused), unused[0], type(model).__name__,
        )  # fmt: skip
    return model


def model_class(config: PreTrainedConfig) -> Any:  # noqa: ANN401 (auto classes have no type)
    """Return the auto class of a language model: of one that also sees images, the class with its towers."""
    name = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(config.model_type)
    named = config.architectures[0] if config.architectures else name
    has_towers = name is not None and named == name and config.get_text_config() is not config
    return AutoModelForImageTextToText if has_towers else AutoModelForCausalLM


def _freeze_towers(model: PreTrainedModel) -> None:
    """Leave what sees or hears as it is: no text gives it a gradient, but weight decay would make it smaller."""
    whole: Any = model
    parts = [whole.get_decoder(), whole.get_input_embeddings(), whole.get_output_embeddings()]
    of_text = {id(weight) for part in parts if part is not None for weight in part.parameters()}
    for weight in model.parameters():
        if model.config.get_text_config() is not model.config and id(weight) not in of_text:
            weight.requires_grad_(False)


def _end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str) -> list[int]:
    generation = model.generation_config.eos_token_id if model.generation_config is not None else None
    of_text = getattr(model.config.get_text_config(), "eos_token_id", None)
    return read_end_tokens(source, generation, of_text, tokenizer.eos_token_id)


@dataclass(frozen=True, slots=True)
class GeneratedResponse:
    """One response: token ids (T,) with the end token, log-probs and entropies (T,) at sampling temperature.

    `is_truncated` means that no end token came within the limit.
    """

    token_ids: Int32Array
    log_probs: Float32Array
    entropies: Float32Array
    is_truncated: bool


def generate(
    policy: PolicyModel, prompts: Sequence[Int32Array], max_new_tokens: int, sampler: Sampler
) -> list[GeneratedResponse]:
    """Return one response a prompt, in order. Equal prompts are read once a batch, so keep them together."""
    if not prompts:
        return []
    longest = max(prompt.size for prompt in prompts) + max_new_tokens
    row_bytes = policy.backend.cached_bytes_per_token * longest
    num_rows = max(1, policy.working_bytes // row_bytes)
    responses: list[GeneratedResponse] = []
    for start in range(0, len(prompts), num_rows):
        batch = prompts[start : start + num_rows]
        of_batch = sampler.of_rows(slice(start, start + num_rows))
        decoded = policy.backend.decode(batch, max_new_tokens, of_batch, policy.end_token_ids)
        responses += _ragged(decoded, policy.end_token_ids.cpu())
    return responses


def decode_texts(policy: PolicyModel, responses: Sequence[GeneratedResponse]) -> list[str]:
    """Return the text of each response."""
    ids = [response.token_ids.tolist() for response in responses]
    return response_texts(policy.tokenizer, ids, policy.end_token_ids.tolist())


def _ragged(decoded: DecodedRows, end_token_ids: torch.Tensor) -> list[GeneratedResponse]:
    has_ended: BoolArray = is_end(decoded.token_ids, end_token_ids).numpy()
    is_truncated = np.logical_not(has_ended.any(axis=1))
    lengths = np.where(is_truncated, decoded.token_ids.shape[1], has_ended.argmax(axis=1) + 1)
    token_ids = decoded.token_ids.numpy().astype(np.int32)
    log_probs, entropies = decoded.log_probs.numpy(), decoded.entropies.numpy()
    # Copies: a view would keep the whole padded batch in memory as long as one trajectory lives.
    return [
        GeneratedResponse(
            token_ids[row, :length].copy(),
            log_probs[row, :length].copy(),
            entropies[row, :length].copy(),
            bool(is_truncated[row]),
        )
        for row, length in enumerate(lengths)
    ]


SCORING_BYTES_SHARE = 4
"""A pass that keeps no activations takes at most this fraction of what training takes a token."""


@torch.inference_mode()
def score_sequences(policy: PolicyModel, sequences: Sequence[TokenSequence], temperature: float) -> TrajectoryScores:
    """Return per-token log-probs and entropies of each response, in order."""
    log_probs: list[Float32Array] = [np.empty(0, dtype=np.float32)] * len(sequences)
    entropies = list(log_probs)
    max_tokens = max(1, SCORING_BYTES_SHARE * policy.working_bytes // policy.backend.training_bytes_per_token)
    for batch in policy.backend.batches(sequences, max_tokens):
        scores = policy.backend.score([sequences[i] for i in batch], Scoring(temperature))
        ends = np.cumsum([sequences[i].token_ids.size for i in batch])[:-1]
        batch_log_probs = np.split(scores.log_probs.cpu().numpy(), ends)
        batch_entropies = [] if scores.entropies is None else np.split(scores.entropies.cpu().numpy(), ends)
        for i, row_log_probs, row_entropies in zip(batch, batch_log_probs, batch_entropies, strict=True):
            log_probs[i] = row_log_probs.copy()
            entropies[i] = row_entropies.copy()
    return TrajectoryScores(log_probs, entropies)
