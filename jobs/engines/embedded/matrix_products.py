"""Products with weights that oneDNN packs: on a CPU up to three times as fast where rows are few.

The two operators are those of torch's compiler; torch has no public ones for a packed float32 weight.
"""

import torch
import torch.nn.functional as F

MIN_PACKED_ELEMENTS = 2**18
"""Below this a product's call costs more than its packed weight saves."""


def pack_matrix(weight: torch.Tensor) -> torch.Tensor:
    """Return a packed copy for products without gradients; the weight itself where packing does not pay or exist."""
    is_large = weight.numel() >= MIN_PACKED_ELEMENTS
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not is_large or not has_packing():
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
    if bias is None and not weight.is_mkldnn and hidden.dtype == x.dtype == weight.dtype:
        return torch.addmm(hidden, x, weight.t())
    return hidden + linear(x, weight, bias)


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return x W^T + b in the weight's dtype; the weight may be packed."""
    x = x.to(weight.dtype)
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias)
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product
