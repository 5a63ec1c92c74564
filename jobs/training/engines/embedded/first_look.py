"""A first look at a model before anything is trained, scored or answered: what would otherwise be wrong in silence.

Its weights are numbers; what it generates in a batch, with its cache, is scored the same alone and without; its files
can be written and read again. A model that keeps its state elsewhere (Mamba, RWKV) generates without memory, one that
sees padding scores a batch otherwise, and one that counts positions its own way (Kosmos-2.5) gives other log-probs when
we pass positions: the gap shows it.
"""

import json
import re
import sys
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from exgrpo.jobs.training.engines.embedded.model import (
    PolicyModel,
    generate,
    load_policy,
    model_class,
    resolve_device,
    score_sequences,
)
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.engines.embedded.settings_files import refuse_remote_code
from exgrpo.jobs.training.engines.tokenizer import load_tokenizer
from exgrpo.jobs.training.pretrained.model_shapes import model_file
from exgrpo_core.errors import EngineError, first_line
from exgrpo_core.types import Float32Array

MAX_GAP = {torch.float32: 0.005, torch.bfloat16: 0.05}
"""Mean nats between the log-probs of tokens as sampled and as scored in a run, by what a model is computed in."""
_LOOK_MAX_GAP = MAX_GAP | {torch.float32: 0.0005}
"""The same for the few tokens of this look. A correct model has 1e-6 on the CPU."""
_PROMPT_TOKENS = (3, 8)
"""Two lengths, so that the shorter prompt is padded where an engine pads."""
_RESPONSE_TOKENS = 16
_QUESTION = "What is the sum of 12 and 30? It is"
_PROBE = "<think>\nWhat is 12 + 30?\n</think> \\boxed{42}"


def open_model(source: str, device: str, revision: str | None = None) -> PolicyModel:
    """Load a policy and look at it.

    Raises:
        EngineError: It cannot be loaded, or would be wrong in silence.
    """
    policy = load_policy(source, resolve_device(device), revision)
    look_at(policy)
    return policy


def look_at(policy: PolicyModel) -> float:
    """Return the gap between sampled and scored log-probs, nats in the mean.

    Raises:
        EngineError: One sentence says what is wrong with the model.
    """
    _check_weights(policy)
    gap = _measure_gap(policy)
    limit = _LOOK_MAX_GAP[policy.compute_dtype]
    if not gap <= limit:
        raise EngineError(
            f"{policy.source} is a {policy.model.config.model_type} model whose tokens have "
            f"other log-probs where they are scored than where they are generated (mean gap {gap:.3g} nats, expected "
            f"at most {limit:g}): it keeps its state elsewhere than in a cache, sees padding, or counts positions its "
            "own way; choose another architecture.",
            "model.source",
        )
    _check_files(policy.source, policy.model.config, policy.tokenizer)
    return gap


def look_without_weights(source: str) -> None:
    """Do nothing if a model's architecture can be built and its files saved; no memory is taken for its weights.

    Raises:
        EngineError: One sentence says what is wrong with the model.
    """
    try:
        refuse_remote_code(source)
        config = AutoConfig.from_pretrained(source)
        with torch.device("meta"):
            model_class(config).from_config(config)
    except EngineError:
        raise
    except Exception as error:  # the readers of models raise errors of any kind
        raise EngineError(
            f"{source} is no causal language model ({first_line(error)}); choose another.", "model.source"
        ) from error
    _check_files(source, config, load_tokenizer(source))


def _check_weights(policy: PolicyModel) -> None:
    _refuse_whole_numbers(policy.source, policy.model)
    for name, weight in policy.model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise EngineError(
                f"{policy.source} has weights that are no finite numbers (in {name}); take "
                "another copy or an earlier checkpoint.",
                "model.source",
            )


def _refuse_whole_numbers(source: str, model: PreTrainedModel) -> None:
    config = model_file(source, "config.json")
    if config is None or getattr(model.config, "quantization_config", None) is not None:
        return
    for path in sorted(config.parent.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - no mapping
        whole = [name for name, kind in kinds.items() if re.fullmatch(r"[IU]\d+|BOOL", kind)]
        own = [name for name in whole if any(weight.endswith(name) for weight, _ in model.named_parameters())]
        if own:
            raise EngineError(
                f"{path} has weights that are whole numbers ({own[0]}: {kinds[own[0]]}), which cannot be trained; take "
                "a copy in bfloat16, float16 or float32.",
                "model.source",
            )


def _measure_gap(policy: PolicyModel) -> float:
    # Of noise a trained model's log-probs differ most: bfloat16 alone would come near the bound.
    question = policy.tokenizer.encode(_QUESTION, add_special_tokens=False)
    if len(question) < max(_PROMPT_TOKENS):
        question = np.random.default_rng(0).integers(len(policy.tokenizer), size=max(_PROMPT_TOKENS)).tolist()
    prompts = [np.array(question[:size], dtype=np.int32) for size in _PROMPT_TOKENS]
    sampler = Sampler(1.0, torch.Generator(policy.device).manual_seed(0))
    length = min(_RESPONSE_TOKENS, (policy.limit_after(max(_PROMPT_TOKENS)) or 1024) - max(_PROMPT_TOKENS))
    try:
        responses = generate(policy, prompts, length, sampler)
        pairs = zip(prompts, responses, strict=True)
        sequences = [TokenSequence(prompt, item.token_ids) for prompt, item in pairs]
        batch = score_sequences(policy, sequences, 1.0).log_probs
        alone = [forward_alone(policy, item) for item in sequences]
    except Exception as error:  # a model's code raises errors of any kind
        raise EngineError(
            f"{policy.source} is a {policy.model.config.model_type} model, which this engine cannot "
            f"generate with ({first_line(error)}); choose another architecture.",
            "model.source",
        ) from error
    sampled = np.concatenate([item.log_probs for item in responses])
    gaps = (np.abs(np.concatenate(scores) - np.concatenate(alone)).mean() for scores in ([sampled], batch))
    return float(max(gaps))


def forward_alone(policy: PolicyModel, item: TokenSequence) -> Float32Array:
    """Return the log-probs (T,) of a response by the model's own forward of one row, which is given its tokens only."""
    ids = torch.from_numpy(np.concatenate([item.prompt_ids, item.token_ids]).astype(np.int64))[None].to(policy.device)
    is_mixed = policy.compute_dtype is not torch.float32
    with torch.no_grad(), torch.autocast(policy.device.type, policy.compute_dtype, enabled=is_mixed):
        logits = policy.model(input_ids=ids, use_cache=False).logits[0, item.prompt_ids.size - 1 : -1]
    taken = logits.float().log_softmax(-1).gather(-1, ids[0, item.prompt_ids.size :, None])
    log_probs: Float32Array = taken[:, 0].cpu().numpy()
    return log_probs


def _check_files(source: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    expected = tokenizer.encode(_PROBE)
    with TemporaryDirectory() as folder:
        try:
            config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            AutoConfig.from_pretrained(folder)
            read = load_tokenizer(folder).encode(_PROBE)
        except Exception as error:  # the writers and readers of models raise errors of any kind
            raise EngineError(
                f"{source} could not be saved as a checkpoint and read again "
                f"({first_line(error)}); fix its configuration and tokenizer files.",
                "model.source",
            ) from error
    if read != expected:
        raise EngineError(
            f"the tokenizer of {source} gives other tokens once it is saved and read again; "
            "take a model with a tokenizer.json of its own.",
            "model.source",
        )


def main() -> None:
    """Look at the model that is named, with `files` behind it without its weights, and write a line of JSON."""
    source, *options = sys.argv[1:]
    found: dict[str, object] = {}
    try:
        if options:
            look_without_weights(source)
        else:
            found = {"gap": look_at(load_policy(source, resolve_device("cpu")))}
    except EngineError as error:
        found = {"error": str(error)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
