"""One decoder layer's weights, fused so that a layer is four matrix products, and these products.

Products are by oneDNN where that pays, of weights that it packs where no gradient is needed: on a CPU up to three times
as fast. The two operators are those of torch's compiler; torch has no public ones for a packed weight, and its own
float32 products are MKL's, which leaves AVX512 unused on AMD's processors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from exgrpo.jobs.machine.hardware import MIN_BFLOAT16_PARAMETERS, uses_bfloat16
from exgrpo.jobs.training.engines.embedded.lora import ADAPTER

MIN_PACKED_ELEMENTS = 2**18
"""Below this a product's call costs more than its packed weight saves."""


def pack_matrix(weight: torch.Tensor) -> torch.Tensor:
    """Return a packed copy for products without gradients; the weight itself where packing does not pay or exist."""
    if not _pays(weight) or (weight.dtype != torch.float32 and not uses_bfloat16(MIN_BFLOAT16_PARAMETERS)):
        return weight
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    return packed


def has_packing() -> bool:
    """Tell whether this torch is built with oneDNN and its packed products."""
    is_built: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call] # untyped in torch
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return is_built and all(hasattr(torch.ops.mkldnn, name) for name in operators)


def add_linear(hidden: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return hidden + x W^T + b, in the dtype of `hidden`; the weight may be packed."""
    is_plain = bias is None and not weight.is_mkldnn and not _pays(weight)
    if is_plain and hidden.dtype == x.dtype == weight.dtype:
        return torch.addmm(hidden, x, weight.t())
    return hidden + linear(x, weight, bias)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    gradient_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Return x W^T + b in the weight's dtype; the weight may be packed.

    Where both are float32, `gradient_dtype` is what the products of the backward pass are computed in.
    """
    x = x.to(weight.dtype)
    if weight.is_mkldnn:
        return _multiply(x, weight, bias)
    if torch.is_grad_enabled() and weight.dtype == torch.float32 and _pays(weight):
        product: torch.Tensor = _Product.apply(x, weight, bias, gradient_dtype)  # type: ignore[no-untyped-call] # untyped
        return product
    return F.linear(x, weight, bias)


class _Product(torch.autograd.Function):
    """x W^T + b, forward and backward by oneDNN."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        gradient_dtype: torch.dtype,
    ) -> torch.Tensor:
        """Return the product (N, m) of x (N, n) and the weight (m, n)."""
        ctx.save_for_backward(x, weight)
        ctx.gradient_dtype = gradient_dtype
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401 - autograd's
        gradient: torch.Tensor,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, None]:
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        x, weight = ctx.saved_tensors
        of_bias = gradient.sum(0) if needs_bias else None
        gradient = gradient.to(ctx.gradient_dtype)
        of_x = _multiply(gradient, weight.to(gradient.dtype).t()).to(x.dtype) if needs_x else None
        of_weight = _multiply(gradient.t(), x.to(gradient.dtype).t()).to(weight.dtype) if needs_weight else None
        return of_x, of_weight, of_bias, None


def _multiply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _pays(weight: torch.Tensor) -> bool:
    return weight.device.type == "cpu" and weight.numel() >= MIN_PACKED_ELEMENTS and has_packing()


WeightOf = Callable[[nn.Module], torch.Tensor]
"""A projection's weight, with its adapter or without."""
DecoderLayer = Any
"""A Hugging Face layer of Qwen2, Qwen3 or Llama: `self_attn` and `mlp` with their projections, and two norms."""


def adapted_weight(linear: nn.Module) -> torch.Tensor:
    """Return a projection's weight W + (alpha / rank) B A, differentiably in A and B; W where it has no adapter."""
    weight = base_weight(linear)
    if not hasattr(linear, "lora_A"):
        return weight
    first, second = (cast(nn.ModuleDict, part)[ADAPTER].weight for part in (linear.lora_A, linear.lora_B))
    scaling = cast(dict[str, float], linear.scaling)[ADAPTER]
    return torch.addmm(weight, cast(torch.Tensor, second), cast(torch.Tensor, first), alpha=scaling)


def base_weight(linear: nn.Module) -> torch.Tensor:
    """Return a projection's weight without its adapter."""
    return cast(torch.Tensor, getattr(linear, "base_layer", linear).weight)


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
