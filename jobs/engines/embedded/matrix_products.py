"""Products by oneDNN, of weights that it packs where no gradient is needed: on a CPU up to three times as fast.

The two operators are those of torch's compiler; torch has no public ones for a packed weight, and its own float32
products are MKL's, which leaves AVX512 unused on AMD's processors.
"""

from typing import Any

import torch
import torch.nn.functional as F

from jobs.machine.hardware import MIN_BFLOAT16_PARAMETERS, uses_bfloat16

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
        """Return the gradients of x, of the weight and of the bias, those that are needed."""
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
