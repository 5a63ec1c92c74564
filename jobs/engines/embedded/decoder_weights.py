"""One decoder layer's weights: fused so that a layer is four matrix products, packed where no gradient is needed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from jobs.engines.embedded.lora import adapted_weight
from jobs.engines.embedded.matrix_products import pack_matrix

WeightOf = Callable[[nn.Module], torch.Tensor]
"""A projection's weight, with its adapter or without."""
DecoderLayer = Any
"""A Hugging Face layer of Qwen2, Qwen3 or Llama: `self_attn` and `mlp` with their projections, and two norms."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Attention heads: `num_heads` queries share `num_kv_heads` keys and values, each `head_dim` wide."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def num_rotated(self) -> int:
        """Heads that are rotated by position: queries and keys."""
        return self.num_heads + self.num_kv_heads

    @property
    def sizes(self) -> list[int]:
        """Heads of the fused projection: queries, keys and values."""
        return [self.num_heads, self.num_kv_heads, self.num_kv_heads]

    @property
    def num_fused(self) -> int:
        """All heads of the fused projection."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights of one layer. Rows of queries and keys are interleaved: see `interleave_halves`."""

    attention_norm: torch.Tensor
    fused_qkv: torch.Tensor
    fused_qkv_bias: torch.Tensor | None
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: torch.Tensor
    output_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


def interleave_halves(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Reorder each head's rows from (first half, second half) to pairs, so that a rotation is a complex product.

    Queries and keys are reordered alike, which leaves their products as they were.
    """
    halves = weight.view(-1, 2, head_dim // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def fuse_layer(
    layer: DecoderLayer, shape: HeadShape, dtype: torch.dtype, weight_of: WeightOf = adapted_weight
) -> LayerWeights:
    """Return a layer's weights in `dtype`; under grad mode gradients flow back to the module's parameters."""
    attention, mlp = layer.self_attn, layer.mlp
    head_dim = shape.head_dim
    rotated = [attention.q_proj, attention.k_proj]
    qkv = [*(interleave_halves(weight_of(linear), head_dim) for linear in rotated), weight_of(attention.v_proj)]
    qkv_bias = None
    if attention.q_proj.bias is not None:
        biases = [*(interleave_halves(linear.bias, head_dim) for linear in rotated), attention.v_proj.bias]
        qkv_bias = torch.cat(biases).to(dtype)
    gate_up_bias = None
    if mlp.gate_proj.bias is not None:
        gate_up_bias = torch.cat([mlp.gate_proj.bias, mlp.up_proj.bias]).to(dtype)
    return LayerWeights(
        attention_norm=layer.input_layernorm.weight,
        fused_qkv=torch.cat(qkv).to(dtype),
        fused_qkv_bias=qkv_bias,
        query_norm=_head_norm(attention, "q_norm", head_dim),
        key_norm=_head_norm(attention, "k_norm", head_dim),
        output=weight_of(attention.o_proj).to(dtype),
        output_bias=_cast(attention.o_proj.bias, dtype),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=torch.cat([weight_of(mlp.gate_proj), weight_of(mlp.up_proj)]).to(dtype),
        gate_up_bias=gate_up_bias,
        down=weight_of(mlp.down_proj).to(dtype),
        down_bias=_cast(mlp.down_proj.bias, dtype),
    )


def pack_layer(weights: LayerWeights) -> LayerWeights:
    """Return the same weights with packed matrices."""
    return replace(
        weights,
        fused_qkv=pack_matrix(weights.fused_qkv),
        output=pack_matrix(weights.output),
        gate_up=pack_matrix(weights.gate_up),
        down=pack_matrix(weights.down),
    )


def _head_norm(attention: nn.Module, name: str, head_dim: int) -> torch.Tensor | None:
    norm = getattr(attention, name, None)
    return None if norm is None else interleave_halves(norm.weight, head_dim)


def _cast(tensor: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    return None if tensor is None else tensor.to(dtype)
