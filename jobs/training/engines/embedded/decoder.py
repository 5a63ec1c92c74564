"""Our forward pass of Qwen2, Qwen3 and Llama decoders on the weights of a Hugging Face module.

The same block serves training, scoring, prefill and decoding; only attention differs, which
callers pass in. Matrix products run in the compute dtype, the residual stream and norms in float32. On a CPU norms
take fewer kernels where no gradient is needed, and may differ from the others in their last bits.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

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


SUPPORTED_CLASSES = frozenset({"Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM"})
_CHANGING_ROPE = frozenset({"dynamic", "longrope"})


class Attend(Protocol):
    """How tokens attend to each other."""

    def __call__(self, layer: int, heads: torch.Tensor) -> torch.Tensor:
        """Return outputs (N, H * D) for queries, keys and values in one: `heads` (N, H + 2 G, D)."""
        ...


def is_supported(model: PreTrainedModel) -> bool:
    """Tell whether `Decoder` computes this model: its class, activation, full attention and fixed RoPE."""
    config = model.config
    if type(model).__name__ not in SUPPORTED_CLASSES or config.hidden_act != "silu":
        return False
    layer_types = getattr(config, "layer_types", None) or ["full_attention"]
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    return set(layer_types) == {"full_attention"} and rope_type not in _CHANGING_ROPE


class Decoder:
    """Runs tokens through a model's layers. Fused and packed copies of weights are kept until `weights_changed`.

    `weight_of` says whether projections have their adapters, if the model has any.
    """

    def __init__(
        self, model: PreTrainedModel, compute_dtype: torch.dtype, weight_of: WeightOf = adapted_weight
    ) -> None:
        config = model.config
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.model = model
        self.compute_dtype = compute_dtype
        self._weight_of = weight_of
        self.shape = HeadShape(config.num_attention_heads, config.num_key_value_heads, head_dim)
        self.epsilon = float(config.rms_norm_eps)
        self._epsilon_bias = torch.tensor([self.epsilon])
        self._mean_rows: dict[int, torch.Tensor] = {}
        self.num_layers = int(config.num_hidden_layers)
        self._modules = list(model.model.layers)
        self._embedding = cast(torch.Tensor, model.get_input_embeddings().weight)
        self._output_embedding = cast(nn.Linear, model.lm_head).weight
        self.vocabulary_size = self._output_embedding.shape[0]
        self._layers: dict[int, LayerWeights] = {}
        self._head: torch.Tensor | None = None
        self.device = model.device
        self._rope = torch.empty(0)

    def weights_changed(self) -> None:
        """Forget fused and packed copies, which an optimizer step made stale."""
        self._layers.clear()
        self._head = None

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Return the residual stream (N, d) of tokens (N,)."""
        return F.embedding(token_ids, self._embedding)

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Return float32 logits (N, V) of normed hidden states (N, d)."""
        weight = self._output_embedding
        if torch.is_grad_enabled():
            return linear(normed, weight.to(normed.dtype), gradient_dtype=self.compute_dtype).float()
        if self._head is None:
            self._head = pack_matrix(weight.detach().to(normed.dtype))
        return linear(normed, self._head).float()

    def final_norm(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return normed hidden states (N, d): what the output embedding is applied to, on a CPU in float32.

        A product in bfloat16 rounds a logit of 20 to eighths, differently in a rollout than in its update.
        """
        normed = self._norm(hidden, self.model.model.norm.weight)
        return normed.float() if self.device.type == "cpu" else normed.to(self.compute_dtype)

    def rotation(self, positions: torch.Tensor) -> torch.Tensor:
        """Return complex rotary embeddings (N, 1, D / 2) of positions (N,), with the model's RoPE scaling."""
        return self._rope[positions]

    def prepare_positions(self, num_positions: int) -> None:
        """Compute the rotary embeddings of positions below `num_positions`."""
        if self._rope.shape[0] >= num_positions:
            return
        # Also used where gradients flow, which tensors made in inference mode may not be.
        with torch.inference_mode(mode=False), torch.no_grad():
            positions = torch.arange(num_positions, device=self.device)[None]
            cos, sin = self.model.model.rotary_emb(torch.empty(0, device=self.device), positions)
            half = self.shape.head_dim // 2
            self._rope = torch.complex(cos[0, :, :half], sin[0, :, :half])[:, None].contiguous()

    def run(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
        selected: torch.Tensor | None = None,
        is_checkpointed: bool = False,
    ) -> torch.Tensor:
        """Return hidden states (N, d) of tokens (N,) before the final norm, of the `selected` ones if given."""
        hidden = self.embed(token_ids)
        rotation = self.rotation(positions)
        for layer in range(self.num_layers):
            # In the last layer, tokens that are not selected are needed as keys and values only.
            chosen = selected if layer == self.num_layers - 1 else None
            if is_checkpointed and torch.is_grad_enabled():
                hidden = checkpoint(self._block, layer, hidden, rotation, attend, chosen, use_reentrant=False)
            else:
                hidden = self._block(layer, hidden, rotation, attend, chosen)
        return hidden

    def _block(
        self,
        layer: int,
        hidden: torch.Tensor,
        rotation: torch.Tensor,
        attend: Attend,
        selected: torch.Tensor | None,
    ) -> torch.Tensor:
        weights, shape = self._layer_weights(layer), self.shape
        normed = self._norm(hidden, weights.attention_norm)
        fused = linear(normed, weights.fused_qkv, weights.fused_qkv_bias).view(-1, shape.num_fused, shape.head_dim)
        mixed = attend(layer, self._rotate(fused, weights, rotation))
        if selected is not None:
            # A token may be selected twice: the gradient of a lookup adds up in one order, that of an index in any.
            hidden, mixed = F.embedding(selected, hidden), F.embedding(selected, mixed)
        hidden = add_linear(hidden, mixed, weights.output, weights.output_bias)
        normed = self._norm(hidden, weights.mlp_norm)
        gate, up = linear(normed, weights.gate_up, weights.gate_up_bias).chunk(2, -1)
        return add_linear(hidden, F.silu(gate) * up, weights.down, weights.down_bias)

    def _layer_weights(self, layer: int) -> LayerWeights:
        module = self._modules[layer]
        if torch.is_grad_enabled():
            return fuse_layer(module, self.shape, self.compute_dtype, self._weight_of)
        if layer not in self._layers:
            self._layers[layer] = pack_layer(fuse_layer(module, self.shape, self.compute_dtype, self._weight_of))
        return self._layers[layer]

    def _norm(self, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        size = hidden.shape[-1]
        if torch.is_grad_enabled() or hidden.device.type != "cpu" or hidden.dtype != torch.float32:
            return F.rms_norm(hidden, (size,), weight, self.epsilon)
        # On a CPU torch's norm is a dozen small kernels: with few rows, calls cost more than arithmetic.
        if size not in self._mean_rows:
            self._mean_rows[size] = torch.full((1, size), 1.0 / size)
        mean_square = F.linear(hidden * hidden, self._mean_rows[size], self._epsilon_bias)
        return hidden * mean_square.rsqrt_() * weight

    def _norm_heads(self, queries_keys: torch.Tensor, weights: LayerWeights) -> torch.Tensor:
        if weights.query_norm is None or weights.key_norm is None:
            return queries_keys
        sizes = [self.shape.num_heads, self.shape.num_kv_heads]
        queries, keys = torch.split(queries_keys.float(), sizes, dim=1)
        return torch.cat([self._norm(queries, weights.query_norm), self._norm(keys, weights.key_norm)], dim=1)

    def _rotate(self, heads: torch.Tensor, weights: LayerWeights, rotation: torch.Tensor) -> torch.Tensor:
        """Return the heads with queries and keys normed and rotated, in place where no gradient is needed."""
        shape = self.shape
        unrotated, values = torch.split(heads, [shape.num_rotated, shape.num_kv_heads], dim=1)
        normed = self._norm_heads(unrotated, weights).float()
        pairs = torch.view_as_complex(normed.view(*normed.shape[:-1], -1, 2))
        rotated = torch.view_as_real(pairs * rotation).flatten(-2).to(self.compute_dtype)
        if torch.is_grad_enabled():
            return torch.cat([rotated, values], dim=1)
        unrotated.copy_(rotated)
        return heads
