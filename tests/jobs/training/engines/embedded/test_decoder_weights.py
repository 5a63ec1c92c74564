import pytest
import torch

from exgrpo.jobs.machine.hardware import MIN_BFLOAT16_PARAMETERS, uses_bfloat16
from exgrpo.jobs.training.engines.embedded.decoder import MIN_PACKED_ELEMENTS, linear, pack_matrix

pytestmark = pytest.mark.slow

ROWS, INNER = 5, 256
OUTER = MIN_PACKED_ELEMENTS // INNER


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(ROWS, INNER), torch.randn(OUTER, INNER) / 16, torch.randn(OUTER)


def product_and_gradients(product, dtype: torch.dtype) -> list[torch.Tensor]:
    leaves = [part.to(dtype).requires_grad_() for part in operands()]
    torch.manual_seed(1)
    result = product(*leaves)
    result.backward(torch.randn(ROWS, OUTER).to(dtype))
    return [result.detach(), *(leaf.grad for leaf in leaves)]


needs_bfloat16_units = pytest.mark.skipif(
    not uses_bfloat16(MIN_BFLOAT16_PARAMETERS), reason="the processor has no units for bfloat16"
)


@pytest.mark.parametrize(
    ("gradient_dtype", "tolerance"),
    [(torch.float32, 1e-5), pytest.param(torch.bfloat16, 1e-2, marks=needs_bfloat16_units)],
)
def test_a_large_product_and_its_gradients_are_those_of_float64(gradient_dtype, tolerance):
    ours = product_and_gradients(
        lambda x, weight, bias: linear(x, weight, bias, gradient_dtype=gradient_dtype), torch.float32
    )
    exact = product_and_gradients(torch.nn.functional.linear, torch.float64)
    torch.testing.assert_close(ours[0].double(), exact[0], rtol=1e-5, atol=1e-5)
    for computed, expected in zip(ours[1:], exact[1:], strict=True):
        assert computed.dtype == torch.float32
        assert (computed - expected).norm() <= tolerance * expected.norm()


def test_a_packed_weight_gives_the_same_product():
    x, weight, bias = operands()
    packed = pack_matrix(weight)
    assert packed.is_mkldnn
    torch.testing.assert_close(linear(x, packed, bias), torch.nn.functional.linear(x, weight, bias))


def test_bfloat16_is_packed_where_the_processor_has_units_for_it(monkeypatch):
    x, weight, bias = (part.bfloat16() for part in operands())
    monkeypatch.setattr("exgrpo.jobs.training.engines.embedded.decoder.uses_bfloat16", lambda _: False)
    assert pack_matrix(weight) is weight
    monkeypatch.undo()
    torch.testing.assert_close(linear(x, pack_matrix(weight), bias), torch.nn.functional.linear(x, weight, bias))
