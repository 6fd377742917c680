import math

import pytest
import torch

from peira.algorithms.kl import kl_penalty
from tests.unit.algorithms.tensors import every

POLICY, REFERENCE = (0.5, 0.3, 0.2), (0.25, 0.25, 0.5)


def penalty(logprobs, reference, estimator, mask=None, **options):
    mask = every(logprobs) if mask is None else mask
    return kl_penalty(logprobs, reference, mask, estimator=estimator, **options)


@pytest.mark.parametrize(
    ("estimator", "values", "mean"),
    [
        # d = log(pi / ref) = log 2, log 1.2, log 0.4; means are weighted by pi
        ("k1", (0.693147, 0.182322, -0.916291), 0.218012),
        ("k2", (0.240227, 0.016621, 0.419794), 0.209058),
        ("k3", (0.193147, 0.015655, 0.583709), 0.218012),
    ],
)
def test_values_and_means_on_three_tokens(estimator, values, mean):
    pi = torch.tensor(POLICY, dtype=torch.float64)
    got = penalty(pi.log()[None], torch.tensor(REFERENCE, dtype=torch.float64).log()[None], estimator)[0]
    assert got.tolist() == pytest.approx(values, abs=1e-6)
    assert (pi * got).sum().item() == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(
    ("u", "value", "slope"),
    [(2.0, 1 - math.log(2), -1.0), (0.5, math.log(2) - 0.5, 0.5), (1.0, 0.0, 0.0)],
)
def test_k3_value_and_slope_by_reference_over_policy(u, value, slope):
    # k3 = u - 1 - log u; d k3 / d logprob = 1 - u
    logprobs = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    got = penalty(logprobs, torch.full((1, 1), math.log(u), dtype=torch.float64), "k3")
    got.sum().backward()
    assert got.item() == pytest.approx(value)
    assert logprobs.grad.item() == pytest.approx(slope)


@pytest.mark.parametrize(("estimator", "slope"), [("k1", 1.0), ("k2", 0.3), ("k3", 1 - math.exp(-0.3))])
def test_slopes_at_a_log_ratio_of_three_tenths(estimator, slope):
    logprobs = torch.full((1, 1), 0.3, dtype=torch.float64, requires_grad=True)
    penalty(logprobs, torch.zeros(1, 1, dtype=torch.float64), estimator).sum().backward()
    assert logprobs.grad.item() == pytest.approx(slope)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_masked_garbage_is_harmless_and_the_reference_gets_no_gradient(estimator):
    logprobs = torch.tensor([[0.3, math.nan]], requires_grad=True)
    reference = torch.tensor([[0.0, math.inf]], requires_grad=True)
    got = penalty(logprobs, reference, estimator, torch.tensor([[True, False]]))
    got.sum().backward()
    assert got[0, 1].item() == 0
    assert logprobs.grad[0, 1].item() == 0
    assert math.isfinite(logprobs.grad[0, 0].item())
    assert reference.grad is None


def test_a_tiny_log_ratio_keeps_its_digits_in_float32():
    # k3 = d^2 / 2 - d^3 / 6 + ...: at d = 1e-4 that is 5e-9; exp(-d) - 1 + d would lose it all in float32
    got = penalty(torch.full((1, 1), 1e-4), torch.zeros(1, 1), "k3").item()
    assert got == pytest.approx(5e-9, rel=0.5)


def test_clamping_the_log_ratio_bounds_the_value_and_stops_the_gradient_beyond():
    logprobs = torch.tensor([[-30.0, -1.0]], dtype=torch.float64, requires_grad=True)
    got = penalty(logprobs, torch.zeros(1, 2, dtype=torch.float64), "k3", max_log_ratio=20.0)
    got.sum().backward()
    assert got[0, 0].item() == pytest.approx(math.exp(20) - 21)
    assert logprobs.grad[0].tolist() == pytest.approx([0.0, 1 - math.e])
