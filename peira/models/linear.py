"""Linear layers through oneDNN, where that is the faster of torch's two matrix libraries.

In float32 on x86 processors torch multiplies with MKL. oneDNN's kernels, which torch ships too and uses for
compiled models, are faster on the shapes of a decode step (32 rows against weights that do not fit in the
cache: 1.4 to 1.8 times as fast where it was measured) and a little faster on long batches. Everywhere else,
and in any other dtype, this is `torch.nn.functional.linear`.
"""

import platform
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

AVAILABLE = (
    platform.machine().lower() in ("x86_64", "amd64")
    and torch.backends.mkldnn.is_available()
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def linear(
    x: Float[Tensor, "*B F"], weight: Float[Tensor, "G F"], bias: Float[Tensor, "G"] | None
) -> Float[Tensor, "*B G"]:
    """x weight' + bias, with the gradients of `torch.nn.functional.linear`."""
    if not AVAILABLE or x.device.type != "cpu" or x.dtype != torch.float32 or weight.dtype != torch.float32:
        return nn.functional.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        product: Tensor = _Linear.apply(x, weight, bias)
        return product
    return _product(x, weight, bias)


def use_fast_linear(model: nn.Module) -> None:
    """Let every plain linear layer of this model compute here; weights and their names stay as they are."""
    if AVAILABLE:
        for layer in model.modules():
            if type(layer) is nn.Linear:
                layer.forward = MethodType(_forward, layer)  # type: ignore[method-assign]


def _forward(layer: nn.Linear, x: Tensor) -> Tensor:
    return linear(x, layer.weight, layer.bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        grad_x = _product(grad, weight.t(), None) if ctx.needs_input_grad[0] else None
        grad_weight = rows.t() @ x.reshape(-1, x.shape[-1]) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, rows.sum(0) if ctx.needs_input_grad[2] else None
