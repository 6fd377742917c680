"""The fast linear layer is the ordinary one: same values, same gradients, same module."""

import pytest
import torch
from torch import nn

from peira.models.linear import linear, use_fast_linear


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 4, 5), (0, 5)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_are_those_of_torch(shape, with_bias):
    torch.manual_seed(0)
    weight, bias = torch.randn(7, 5), torch.randn(7) if with_bias else None
    x, upstream = torch.randn(shape), torch.randn(*shape[:-1], 7)
    found = []
    for function in (linear, nn.functional.linear):
        leaves = [t.clone().requires_grad_() for t in (x, weight, *([bias] if with_bias else []))]
        value = function(leaves[0], leaves[1], leaves[2] if with_bias else None)
        value.backward(upstream)
        found.append([value.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_frozen_weight_gets_no_gradient_and_its_input_does():
    weight, x = torch.randn(7, 5), torch.randn(3, 5, requires_grad=True)
    linear(x, weight, None).sum().backward()
    assert weight.grad is None
    torch.testing.assert_close(x.grad, weight.sum(0).expand(3, 5), rtol=1e-5, atol=1e-5)


def test_other_dtypes_go_the_ordinary_way():
    x, weight = torch.randn(3, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    torch.testing.assert_close(linear(x, weight, None), x @ weight.t())


def test_a_model_keeps_its_weights_names_and_answers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3, bias=False))
    x, names = torch.randn(4, 5), list(model.state_dict())
    before = model(x)
    use_fast_linear(model)
    torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-5)
    assert list(model.state_dict()) == names
    with torch.no_grad():  # a step changes the weights in place: the layer must see it
        model[0].weight.mul_(2)
    assert not torch.allclose(model(x), before)
