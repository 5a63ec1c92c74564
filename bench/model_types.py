"""Which of transformers' language models the embedded engine trains: each type, tiny and with random weights.

    python -m bench.model_types            # tries every type and writes docs/model-types.md; some minutes
    python -m bench.model_types phi3 gpt2  # only these rows

A type is correct if a folder of it loads, what is sampled and scored in a padded batch has the log-probs of
transformers' forward of each row alone, a step changes the text part and no tower, and the checkpoint loads as the same
architecture with the same log-probs.
"""

import logging
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers  # type: ignore[import-untyped]
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from exgrpo.jobs.training.engines.embedded.first_look import forward_alone, look_without_weights, open_model
from exgrpo.jobs.training.engines.embedded.model import (
    PolicyModel,
    generate,
    load_weights,
    model_class,
    score_sequences,
)
from exgrpo.jobs.training.engines.embedded.packing import TokenSequence
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.engines.embedded.state_files import check_saved_model, save_model
from exgrpo.jobs.training.engines.embedded.update import OptimSettings, PolicyOptimizer, PolicyUpdater
from exgrpo_core.errors import EngineError, first_line

DOCUMENT = Path(__file__).parents[1] / "docs" / "model-types.md"
TYPES = sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES})
OUTCOMES = CORRECT, REFUSED, NOT_TRIED, WRONG = "correct", "refused", "not tried", "wrong"
_VOCABULARY = 96
_MOST_WEIGHTS = 20_000_000
_SIZES: dict[str, Any] = {
    "vocab_size": _VOCABULARY, "hidden_size": 32, "d_model": 32, "n_embd": 32, "embed_dim": 32, "dim": 32,
    "intermediate_size": 48, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "ffn_dim": 48,
    "d_ff": 48, "n_inner": 48, "ffn_hidden_size": 48, "num_hidden_layers": 4, "num_layers": 4, "n_layer": 2,
    "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "depth": 2, "num_attention_heads": 4, "n_head": 4,
    "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "attention_head_dim": 8, "max_position_embeddings": 128,
    "n_positions": 128, "max_seq_len": 128, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "num_experts_per_token": 2, "moe_num_experts": 4, "moe_k": 2, "moe_topk": 2,
    "n_group": 1, "topk_group": 1, "image_size": 32, "patch_size": 8, "out_hidden_size": 32,
    "projection_dim": 32, "vision_feature_layer": -1, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16, "q_lora_rank": 16,
    "index_head_dim": 8, "index_n_heads": 2, "rotary_dim": 8, "dim_head": 8, "dim_ff": 48, "n_shared_experts": 1,
    "expert_ffn_hidden_size": 16, "zero_expert_num": 1, "encoder_hash_byte_group_vocab": 96, "global_head_dim": 8,
    "vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8, "mamba_n_heads": 8, "mamba_d_head": 8,
    "mamba_d_ssm": 64, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_num_heads": 8, "mamba_head_dim": 8,
    "ssm_state_size": 8, "state_size": 8, "n_groups": 1, "mamba_chunk_size": 8, "chunk_size": 8, "base_channels": 32,
}  # fmt: skip
_OWN_SIZES: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "bamba": {"attn_layer_indices": [1, 3]},
    "gemma3n_text": {
        "intermediate_size": 48, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0] * 4,
    },
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"head_dim": 16},
}  # fmt: skip
_WITH_SECTIONS = {
    "qwen2_vl",
    "qwen2_5_vl",
    "glm4v",
    "glm4v_moe",
    "glm46v",
    "glm_ocr",
    "glmga",
    "paddleocr_vl",
    "qwen2_5_omni_thinker",
}
_SECTIONS = {
    "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "partial_rotary_factor": 1.0
}  # fmt: skip
"""Rotary embeddings of time, height and width, which these types need."""
_TOKENS = {"vocab_size": _VOCABULARY, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
_TEXT = _TOKENS | {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
}  # fmt: skip
_VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_ASSISTANT = {
    "text_config": _TEXT | {
        "global_head_dim": 8, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
        "num_kv_shared_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "backbone_hidden_size": 32, "num_centroids": 4, "centroid_intermediate_top_k": 2,
}  # fmt: skip
_MUSIC = {
    "text_encoder": {"model_type": "t5", "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2},
    "audio_encoder": {
        "model_type": "encodec", "num_filters": 4, "hidden_size": 8, "codebook_size": 32, "codebook_dim": 8,
        "upsampling_ratios": [2, 2],
    },
    "decoder": {
        "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48,
        "num_codebooks": 2,
    },
}  # fmt: skip
_GEMMA_LAYERS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
_WHOLE: dict[str, dict[str, Any]] = {
    "dbrx": _TOKENS | {
        "d_model": 32, "n_heads": 4, "n_layers": 4, "max_seq_len": 128,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_ocr2": {
        "text_config": _TEXT | {
            "n_group": 1, "topk_group": 1, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
            "moe_intermediate_size": 16, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        },
        "vision_config": {
            "sam_config": _VISION | {"output_channels": 8, "downsample_channels": [16, 32], "global_attn_indexes": [1]},
            "encoder_config": _TEXT,
        },
    },
    "emu3": {
        "text_config": _TEXT,
        "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1], "hidden_size": 32, "codebook_size": 8},
        "vocabulary_map": {"<image>": 90, "<|extra_200|>": 91, "<|visual token 000000|>": 80},
    },
    "ernie4_5_vl_moe": {
        "text_config": _TEXT | {
            "moe_intermediate_size": [16, 16], "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
        },
        "vision_config": {"depth": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48},
    },
    "fast_vlm": {
        "text_config": _TEXT | {"model_type": "qwen2"},
        "vision_config": {"architecture": "fastvit_t8", "hidden_size": 768},
    },
    "gemma3n": {
        "text_config": _TEXT | _OWN_SIZES["gemma3n_text"] | {
            "vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8,
        },
        "vision_config": {"architecture": "mobilenetv3_small_050", "hidden_size": 32, "vocab_offset": 96},
        "audio_config": {
            "hidden_size": 32, "conf_num_hidden_layers": 1, "conf_num_attention_heads": 4, "vocab_offset": 224,
            "sscp_conv_channel_size": [8, 8],
        },
    },
    "gemma4_assistant": _ASSISTANT,
    "gemma4_unified_assistant": _ASSISTANT,
    "granite4_vision": {
        "text_config": _TEXT | {"model_type": "granite4_vision_text"},
        "vision_config": _VISION | {"model_type": "siglip_vision_model"},
        "qformer_config": {
            "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48,
            "encoder_hidden_size": 32,
        },
        "downsample_rate": "1/2", "deepstack_layer_map": [[0, 1]], "spatial_target_layers": [0, 1, 2, 3],
    },
    "musicgen": _MUSIC,
    "musicgen_melody": _MUSIC,
    "perception_lm": {
        "text_config": _TEXT | {"model_type": "llama"},
        "vision_config": {
            "architecture": "vit_pe_core_tiny_patch16_384", "model_args": {"embed_dim": 192, "depth": 1},
        },
    },
    "reformer": _TOKENS | {
        "is_decoder": True, "hidden_size": 32, "num_attention_heads": 4, "attention_head_size": 8,
        "feed_forward_size": 48, "max_position_embeddings": 128, "axial_pos_shape": [8, 16],
        "axial_pos_embds_dim": [16, 16], "attn_layers": ["local", "lsh"], "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8, "num_buckets": 4,
    },
    "t5gemma2": {
        "encoder": {"text_config": _TEXT | _GEMMA_LAYERS, "vision_config": _VISION, "mm_tokens_per_image": 4},
        "decoder": _TEXT | _GEMMA_LAYERS,
        "image_token_index": 90,
    },
    "vision-encoder-decoder": {
        "encoder": _VISION | {"model_type": "vit"},
        "decoder": _TEXT | {"model_type": "bert", "is_decoder": True, "add_cross_attention": True},
    },
    "zamba": _TEXT | {
        "num_hidden_layers": 5, "num_key_value_heads": 4, "head_dim": 16, "attn_layer_period": 2,
        "attn_layer_offset": 1, "use_mamba_kernels": False,
    },
    "zamba2": _TEXT | {
        "layers_block_type": ["mamba", "hybrid"] * 2, "num_key_value_heads": 4, "mamba_d_state": 8, "n_mamba_heads": 8,
        "mamba_ngroups": 1, "chunk_size": 8, "head_dim": 16, "mamba_headdim": 8, "adapter_rank": 4,
    },
}  # fmt: skip
"""Configurations of types that need more than small sizes."""
_SHAPES = (3, 9), (14, 5), (7, 12)


def main() -> None:
    """Try the types that are named, or all, and write their rows into the document."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    head, rows = read_table()
    for name in sys.argv[1:] or TYPES:
        rows[name] = row(name)
        DOCUMENT.write_text("\n".join([*head, *(rows[name] for name in sorted(rows))]) + "\n", encoding="utf-8")


def read_table() -> tuple[list[str], dict[str, str]]:
    """Return the lines before the table's rows, and the row of each type that was tried."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    return [line for line in lines if line not in rows.values()], rows


def row(name: str) -> str:
    """Return a type's row of the table."""
    outcome, why = examine(name)
    return f"| `{name}` | {outcome} | {why.replace('|', '/')} |"


def examine(name: str) -> tuple[str, str]:
    """Return what comes of a type, and why."""
    try:
        config = tiny_config(name)
        if type(config) not in model_class(config)._model_mapping:
            return REFUSED, "transformers has no causal language model of it"
        with torch.device("meta"):
            num_weights = model_class(config).from_config(config).num_parameters()
        if num_weights > _MOST_WEIGHTS:
            return NOT_TRIED, "its sizes have other names than those that are made small"
        torch.manual_seed(0)
        model = model_class(config).from_config(config).eval()
    except Exception as error:  # noqa: BLE001 - the configurations of some types need more than sizes
        if name in _WHOLE:
            return _look_without_weights(config)
        return NOT_TRIED, f"no tiny model of it could be made: {_short(error)}"
    with TemporaryDirectory() as folder:
        try:
            _randomize(model)
            model.save_pretrained(folder)
            _tokenizer().save_pretrained(folder)
        except Exception as error:  # noqa: BLE001 - the writers of models raise errors of any kind
            return NOT_TRIED, f"its tiny model cannot be saved: {_short(error)}"
        return _train(folder)


def _look_without_weights(config: PreTrainedConfig) -> tuple[str, str]:
    with TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        _tokenizer().save_pretrained(folder)
        try:
            look_without_weights(folder)
        except EngineError as error:
            return REFUSED, _short(error)
    return WRONG, "its model cannot be built and is not refused"


def tiny_config(name: str) -> Any:  # noqa: ANN401 (each type has a class of its own)
    """Return the configuration of a type with every size small."""
    if name in _WHOLE:
        return CONFIG_MAPPING[name](**deepcopy(_WHOLE[name]))
    config: Any = CONFIG_MAPPING[name]()
    if name in _WITH_SECTIONS:
        config.text_config.rope_parameters = _SECTIONS
    parts = {key: part for key, part in vars(config).items() if isinstance(part, PreTrainedConfig)}
    sizes: dict[str, Any] = {key: type(part)(**_small(part)) for key, part in parts.items()}
    return type(config)(**_small(config), **sizes)


def _small(config: PreTrainedConfig) -> dict[str, Any]:
    given = {key: getattr(config, key) for key in _SIZES if hasattr(config, key)}
    sizes = {
        key: [_SIZES[key]] * len(value) if isinstance(value, list | tuple) else _SIZES[key]
        for key, value in given.items()
        if value is not False and not isinstance(getattr(type(config), key, None), property)
    }
    if "kv_lora_rank" in sizes:  # latent attention has keys and values for every head
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    rope = getattr(config, "rope_parameters", None)
    return sizes | _OWN_SIZES.get(config.model_type, {}) | ({"rope_parameters": rope} if rope is _SECTIONS else {})


def _randomize(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))


def _tokenizer() -> Any:  # noqa: ANN401 (untyped in transformers)
    words = {"<pad>": 0, "<eos>": 1} | {f"{number}": number for number in range(2, _VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")


def _train(folder: str) -> tuple[str, str]:
    try:
        policy = open_model(folder, "cpu")
        sequences = list(_sequences())
        gap = max(_score_gap(policy, sequences), _sampling_gap(policy))
        if not gap < 1e-3:
            return WRONG, f"log-probs of a batch and of each row alone differ by {gap:.2g} nats"
        before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
        updater = PolicyUpdater(
            policy, PolicyOptimizer(policy.model, OptimSettings(learning_rate=1e-3, weight_decay=0.1)), 1.0, None
        )
        updater.imitate(sequences)
        trained = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
        changed = {name for name, weight in policy.model.named_parameters() if not torch.equal(weight, before[name])}
        if not changed <= trained or not changed:
            return WRONG, f"a step on text changed {sorted(changed - trained)[:1]}"
        save_model(Path(folder), policy.model)
        check_saved_model(Path(folder), policy)
        again = load_weights(folder, dtype=torch.float32)
    except EngineError as error:
        return REFUSED, _short(error)
    except Exception as error:  # noqa: BLE001 - a model's code raises errors of any kind
        return WRONG, _short(error)
    if again.state_dict().keys() != policy.model.state_dict().keys():
        return WRONG, "the checkpoint is another architecture"
    has_towers = again.config.get_text_config() is not again.config and len(trained) < len(before)
    return CORRECT, f"`{type(again).__name__}`" + (", towers kept" if has_towers else "")


def _sequences() -> Iterator[TokenSequence]:
    rng = np.random.default_rng(0)
    for sizes in _SHAPES:
        yield TokenSequence(*(rng.integers(2, _VOCABULARY, size).astype(np.int32) for size in sizes))


def _score_gap(policy: PolicyModel, sequences: list[TokenSequence]) -> float:
    found = score_sequences(policy, sequences, 1.0).log_probs
    return max(
        float(np.abs(row - forward_alone(policy, item)).max()) for row, item in zip(found, sequences, strict=True)
    )


def _sampling_gap(policy: PolicyModel) -> float:
    prompts = [item.prompt_ids for item in _sequences()]
    responses = generate(policy, prompts, 8, Sampler(1.0, torch.Generator().manual_seed(0)))
    pairs = [(item, TokenSequence(prompt, item.token_ids)) for prompt, item in zip(prompts, responses, strict=True)]
    return max(float(np.abs(item.log_probs - forward_alone(policy, sequence)).max()) for item, sequence in pairs)


def _short(error: Exception) -> str:
    sentence = re.sub(r"^/\S+ ", "", first_line(error).removeprefix("model.source: "))
    sentence = re.split(r"; choose| \(mean gap", sentence)[0]
    return textwrap.shorten(sentence, 160, placeholder=" ...")


if __name__ == "__main__":
    main()
