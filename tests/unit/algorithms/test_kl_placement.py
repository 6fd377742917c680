"""Which gradient each placement of a KL penalty has, by enumeration of every sample."""

import math
from dataclasses import replace

import pytest
import torch

from peira.algorithms.advantage import group_advantages
from peira.algorithms.kl import (
    anchor_divergence,
    anchor_loss,
    kl_in_reward,
    kl_loss,
    kl_penalty,
    vocabulary_kl,
)
from peira.algorithms.policy_loss import score_function_loss
from tests.unit.algorithms.policies import TwoBits
from tests.unit.algorithms.tensors import every, train_batch

POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REFERENCE = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)


def batch_of(logprobs, reference, old=None):
    """One row per sequence, each its own group."""
    n = logprobs.shape[0]
    old = logprobs.detach() if old is None else old
    return train_batch(
        mask=every(logprobs),
        advantages=torch.zeros_like(logprobs.detach()),
        old_logprobs=old,
        sampling_logprobs=old,
        reference_logprobs=reference,
        group=torch.arange(n),
    )


def penalty_loss(logprobs, batch, place, estimator, level="sequence", off_policy=False):
    """Loss per token of a penalty of coefficient 1 alone."""
    loss = torch.zeros_like(logprobs)
    if place in ("loss", "both"):
        loss = loss + kl_loss(logprobs, batch, coefficient=1.0, estimator=estimator, off_policy=off_policy)
    if place in ("reward", "both"):
        inside = kl_in_reward(batch, coefficient=1.0, estimator=estimator, level=level)
        loss = loss + score_function_loss(logprobs, inside.old_logprobs, inside.advantages, inside.mask)
    return loss


REVERSE = (0.237568, -0.010707, -0.226861)


@pytest.mark.parametrize(
    ("place", "estimator", "expected"),
    [
        ("loss", "k1", (0.0, 0.0, 0.0)),
        ("loss", "k2", REVERSE),
        ("loss", "k3", (0.25, 0.05, -0.30)),  # policy - reference
        ("reward", "k1", REVERSE),
        ("reward", "k2", (0.015584, -0.057731, 0.042147)),
        ("reward", "k3", (-0.012432, -0.060707, 0.073139)),
        ("both", "k1", REVERSE),
        ("both", "k3", REVERSE),
    ],
)
def test_one_step(place, estimator, expected):
    logits = POLICY.log().requires_grad_()
    logprobs = torch.log_softmax(logits, dim=0)[:, None]  # the three possible samples
    batch = batch_of(logprobs, REFERENCE.log()[:, None])
    loss = penalty_loss(logprobs, batch, place, estimator)
    (gradient,) = torch.autograd.grad((POLICY[:, None] * loss).sum(), logits)
    assert gradient.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_weighing_by_the_ratio_repairs_samples_of_another_policy(estimator):
    sampler = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    logits = POLICY.log().requires_grad_()
    logprobs = torch.log_softmax(logits, dim=0)[:, None]
    batch = batch_of(logprobs, REFERENCE.log()[:, None], old=sampler.log()[:, None])
    loss = penalty_loss(logprobs, batch, "loss", estimator, off_policy=True)
    (gradient,) = torch.autograd.grad((sampler[:, None] * loss).sum(), logits)
    assert gradient.tolist() == pytest.approx(REVERSE, abs=1e-6)


@pytest.mark.parametrize(
    ("place", "estimator", "level", "expected"),
    [
        ("reward", "k1", "sequence", (0.157915, -0.071173, 0.172009)),
        ("reward", "k1", "return_to_go", (0.157915, -0.071173, 0.172009)),
        ("reward", "k1", "token", (0.097312, -0.071173, 0.172009)),
        ("loss", "k2", "token", (0.097312, -0.071173, 0.172009)),
        ("loss", "k3", "token", (0.1, -0.08, 0.24)),
        ("both", "k3", "sequence", (0.157915, -0.071173, 0.172009)),
    ],
)
def test_two_steps(place, estimator, level, expected):
    policy, reference = TwoBits(0.6, 0.3, 0.8), TwoBits(0.5, 0.5, 0.4)
    logprobs = policy.logprobs()
    batch = batch_of(logprobs, reference.logprobs().detach())
    loss = penalty_loss(logprobs, batch, place, estimator, level)
    gradient = policy.gradient((policy.chances()[:, None] * loss).sum())
    assert gradient.tolist() == pytest.approx(expected, abs=1e-6)


def test_the_true_divergences_of_the_two_steps():
    policy, reference = TwoBits(0.6, 0.3, 0.8), TwoBits(0.5, 0.5, 0.4)
    own, other = policy.logprobs().sum(dim=1), reference.logprobs().detach().sum(dim=1)
    reverse = (own.exp() * (own - other)).sum()
    assert reverse.item() == pytest.approx(0.253926, abs=1e-6)
    assert policy.gradient(reverse).tolist() == pytest.approx((0.157915, -0.071173, 0.172009), abs=1e-6)
    own = policy.logprobs().sum(dim=1)
    forward = (other.exp() * (other - own)).sum()
    assert policy.gradient(forward).tolist() == pytest.approx((0.1, -0.1, 0.2), abs=1e-6)
    # k3 on the whole sequence, in the loss, descends it
    own = policy.logprobs().sum(dim=1, keepdim=True)
    loss = kl_penalty(own, other[:, None], every(own), estimator="k3")
    gradient = policy.gradient((policy.chances()[:, None] * loss).sum())
    assert gradient.tolist() == pytest.approx((0.1, -0.1, 0.2), abs=1e-6)


def test_siblings_are_the_baseline_of_the_sequence_penalty():
    # sums .02, .01, .03, .02 in one group: each against the mean of the other three
    old = torch.tensor([[0.01, 0.01], [0.01, 0.0], [0.02, 0.01], [0.02, 0.0]], dtype=torch.float64)
    batch = replace(batch_of(old, torch.zeros_like(old)), group=torch.zeros(4, dtype=torch.int64))
    got = kl_in_reward(batch, coefficient=0.1, estimator="k1", level="sequence").advantages
    expected = [
        -0.1 * (own - others / 3) for own, others in ((0.02, 0.06), (0.01, 0.07), (0.03, 0.05), (0.02, 0.06))
    ]
    assert got[:, 0].tolist() == pytest.approx(expected)
    assert got[:, 1].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("beta", "scale", "eps", "largest"),
    [
        (0.1, "population_std", 0.0, 1.414214),
        (0.001, "population_std", 0.0, 1.414214),  # a hundredth of the penalty, the same advantage
        (0.001, "population_std", 1e-6, 1.2390),
        (0.001, "sample_std", 1e-4, 0.0925),
    ],
)
def test_a_std_taken_over_the_penalised_reward_cancels_the_coefficient(beta, scale, eps, largest):
    shaped = -beta * torch.tensor([[0.02, 0.01, 0.03, 0.02]], dtype=torch.float64)
    got = group_advantages(shaped, every(shaped), baseline="group_mean", scale=scale, eps=eps)
    assert got[0].tolist() == pytest.approx([0, largest, -largest, 0], abs=5e-5)


def test_penalties_of_several_references_add_up():
    logprobs = torch.tensor([[0.3]], dtype=torch.float64)
    batch = replace(
        batch_of(logprobs, torch.zeros(1, 1, dtype=torch.float64)),
        other_reference_logprobs=torch.tensor([[[0.1, -0.2]]], dtype=torch.float64),
    )
    got = kl_loss(logprobs, batch, coefficient=2.0, estimator="k2", other_coefficients=(1.0, 4.0))
    # 2 * .3^2/2 + 1 * .2^2/2 + 4 * .5^2/2
    assert got.item() == pytest.approx(0.09 + 0.02 + 0.5)
    rows = torch.tensor([0])
    assert batch.select(rows).other_reference_logprobs.shape == (1, 1, 2)


def test_groups_of_the_sequence_penalty_do_not_mix():
    # groups 7 and 3: a lone row keeps its own penalty; the pair is compared with each other
    old = torch.tensor([[0.5], [0.2], [0.4]], dtype=torch.float64)
    batch = replace(batch_of(old, torch.zeros_like(old)), group=torch.tensor([7, 3, 3]))
    got = kl_in_reward(batch, coefficient=1.0, estimator="k1", level="sequence").advantages
    assert got[:, 0].tolist() == pytest.approx([-0.5, 0.2, -0.2])


def test_garbage_behind_the_end_reaches_no_advantage():
    old = torch.tensor([[0.2, math.nan]])
    batch = replace(batch_of(old, torch.tensor([[0.0, math.inf]])), mask=torch.tensor([[True, False]]))
    for level in ("token", "return_to_go", "sequence"):
        got = kl_in_reward(batch, coefficient=1.0, estimator="k1", level=level).advantages
        torch.testing.assert_close(got, torch.tensor([[-0.2, 0.0]]))


# --- the whole vocabulary, and samples of the reference -------------------------------------------------


@pytest.mark.parametrize(
    ("divergence", "value", "expected"),
    [("reverse", 0.218012, REVERSE), ("forward", 0.239278, (0.25, 0.05, -0.30)), ("js", 0.111165 / 2, None)],
)
def test_exact_divergence_over_the_vocabulary(divergence, value, expected):
    logits = POLICY.log().requires_grad_()
    logprobs = torch.log_softmax(logits, dim=0)[None, None]
    got = vocabulary_kl(logprobs, REFERENCE.log()[None, None], divergence=divergence)
    assert got.item() == pytest.approx(value, abs=1e-6)
    (gradient,) = torch.autograd.grad(got.sum(), logits)
    if expected is not None:
        assert gradient.tolist() == pytest.approx(expected, abs=1e-6)
    assert gradient.sum().item() == pytest.approx(0.0, abs=1e-12)


def test_a_token_that_one_side_cannot_say_costs_nothing_where_it_has_no_mass():
    policy = torch.tensor([[[0.0, -math.inf]]], requires_grad=True)
    reference = torch.tensor([[[math.log(0.5), math.log(0.5)]]])
    got = vocabulary_kl(policy, reference, divergence="reverse")
    assert got.item() == pytest.approx(math.log(2))
    got.sum().backward()
    assert not policy.grad.isnan().any()


U = (2.0, 1.2, 0.4)


@pytest.mark.parametrize(
    ("generator", "alpha", "values", "mean"),
    [
        ("forward", 0.2, (0.306853, 0.017678, 0.316291), 0.239278),
        ("js", 0.2, (0.169899, 0.009103, 0.132829), 0.111165),
        # 4 (1 - sum sqrt(pi ref))
        ("alpha", 0.5, None, 0.225430),
        # mean of u log u is KL(pi || ref), that of 1 - u is 0
        ("reverse", 0.2, None, 0.218012),
    ],
)
def test_generators_on_samples_of_the_reference(generator, alpha, values, mean):
    got = anchor_divergence(
        POLICY.log()[None], REFERENCE.log()[None], every(POLICY[None]), generator=generator, alpha=alpha
    )[0]
    assert (REFERENCE * got).sum().item() == pytest.approx(mean, abs=1e-6)
    if values is not None:
        assert got.tolist() == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize(
    ("generator", "slope"),
    [
        ("forward", lambda u: u - 1),
        ("reverse", lambda u: u * math.log(u)),
        ("js", lambda u: u * math.log(2 * u / (u + 1))),
        ("alpha", lambda u: 0.8 * (u**0.8 - u) / (0.2 * -0.8)),
    ],
)
def test_slopes_of_the_generators(generator, slope):
    logprobs = torch.tensor([[math.log(u) for u in U]], dtype=torch.float64, requires_grad=True)
    zeros = torch.zeros(1, 3, dtype=torch.float64)
    anchor_divergence(logprobs, zeros, every(zeros), generator=generator, alpha=0.2).sum().backward()
    assert logprobs.grad[0].tolist() == pytest.approx([slope(u) for u in U])


@pytest.mark.parametrize(
    ("generator", "expected"), [("forward", (0.25, 0.05, -0.30)), ("js", (0.114830, 0.008697, -0.123527))]
)
def test_gradient_of_an_anchor_loss_on_the_logits(generator, expected):
    logits = POLICY.log().requires_grad_()
    logprobs = torch.log_softmax(logits, dim=0)[:, None]
    batch = batch_of(logprobs, REFERENCE.log()[:, None])
    loss = anchor_loss(logprobs, batch, coefficient=1.0, generator=generator)
    (gradient,) = torch.autograd.grad((REFERENCE[:, None] * loss).sum(), logits)
    assert gradient.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_clamped_anchor_ratio_stays_finite_and_stops_pulling():
    logprobs = torch.tensor([[-30.0, -1.0]], dtype=torch.float64, requires_grad=True)
    zeros = torch.zeros(1, 2, dtype=torch.float64)
    got = anchor_divergence(logprobs, zeros, every(zeros), generator="forward", max_log_ratio=5.0)
    got.sum().backward()
    # u - 1 - log u at log u = -5 and -1; slope u - 1 only inside the clamp
    assert got[0].tolist() == pytest.approx([math.exp(-5) + 4, math.exp(-1)])
    assert logprobs.grad[0].tolist() == pytest.approx([0.0, math.exp(-1) - 1])


def test_alpha_runs_from_reverse_to_forward():
    def mean(alpha):
        got = anchor_divergence(
            POLICY.log()[None], REFERENCE.log()[None], every(POLICY[None]), generator="alpha", alpha=alpha
        )
        return (REFERENCE * got[0]).sum().item()

    assert mean(1e-6) == pytest.approx(0.218012, abs=1e-5)
    assert mean(1 - 1e-6) == pytest.approx(0.239278, abs=1e-5)


@pytest.mark.parametrize("generator", ["forward", "reverse", "js", "alpha"])
def test_anchors_ignore_what_is_masked(generator):
    logprobs = torch.tensor([[0.1, math.nan]], requires_grad=True)
    got = anchor_divergence(
        logprobs, torch.tensor([[0.0, math.inf]]), torch.tensor([[True, False]]), generator=generator
    )
    got.sum().backward()
    assert got[0, 1].item() == 0
    assert logprobs.grad[0, 1].item() == 0
