"""Every advantage's exact expected gradient on a policy of five arms: a multiple w(p) of the true one."""

import math
from functools import partial

import pytest
import torch

from peira.algorithms.advantage import (
    group_advantages,
    maximum_likelihood_advantages,
    pass_at_k_advantages,
    sign_advantages,
)
from peira.algorithms.collapse import avspo_constant, avspo_repair
from peira.algorithms.family import StepContext
from tests.unit.algorithms.policies import Arms, binomial
from tests.unit.algorithms.tensors import every

POLICY = Arms([0.3, -1.0, 0.5, 0.1, -0.4], right=[1])
P, G = POLICY.success.item(), 4
group = partial(group_advantages, eps=0.0)


def avspo_always(rewards, judged):
    plain = group(rewards, judged, baseline="group_mean", scale="population_std")
    return avspo_repair(
        plain,
        judged,
        StepContext(outcomes=rewards, state={"avspo/trigger": 0.0}),
        exponent=1e-9,  # as many imagined rewards as rollouts
        anchor=0.1,
        initial_trigger=0.5,
        scope="step",
        window_steps=1,
        decay=0.0,
        sample_std=False,
        eps=0.0,
    )


def scaled_weight(p, size):
    spread = sum(binomial(size, k, p) * math.sqrt(k / size * (1 - k / size)) for k in range(size + 1))
    return spread / (p * (1 - p))


def test_the_policy_is_the_one_the_numbers_were_made_for():
    assert pytest.approx(0.0715447265, abs=1e-10) == P


@pytest.mark.parametrize(
    ("advantages", "weight"),
    [
        (partial(group, baseline="leave_one_out", scale="none"), 1.0),
        (partial(group, baseline="group_mean", scale="none"), 0.75),
        (partial(group, baseline="group_mean", scale="population_std"), 1.7012223572),
        (partial(group, baseline="group_mean", scale="sample_std"), 1.7012223572 * math.sqrt(3 / 4)),
        (sign_advantages, 2.0),
        (avspo_always, 2.3779557630),
        # gradient of sum_{k < 4} pass@k / k
        (maximum_likelihood_advantages, 1 + (1 - P) + (1 - P) ** 2),
        (partial(pass_at_k_advantages, k=1, baseline="leave_one_out", scale="none", eps=0.0), 1.0),
        (partial(pass_at_k_advantages, k=2, baseline="leave_one_out", scale="none", eps=0.0), 2 * (1 - P)),
        (
            partial(pass_at_k_advantages, k=3, baseline="leave_one_out", scale="none", eps=0.0),
            3 * (1 - P) ** 2,
        ),
    ],
    ids=[
        "rloo",
        "dr_grpo",
        "grpo",
        "grpo_bessel",
        "sign",
        "avspo",
        "max_likelihood",
        "pass1",
        "pass2",
        "pass3",
    ],
)
def test_expected_gradient_is_a_multiple_of_the_true_one(advantages, weight):
    got = POLICY.expected_gradient(G, advantages)
    torch.testing.assert_close(got, weight * POLICY.success_gradient, rtol=0, atol=1e-10)


def test_the_weights_follow_their_formulas():
    assert scaled_weight(P, G) == pytest.approx(1.7012223572, abs=1e-9)
    push = avspo_constant(G, G) * (P ** (G - 1) + (1 - P) ** (G - 1))
    assert scaled_weight(P, G) + push == pytest.approx(2.3779557630, abs=1e-9)


def test_rare_success_still_weighs_the_root_of_its_siblings():
    assert scaled_weight(1e-7, 8) == pytest.approx(math.sqrt(7), abs=1e-5)


def test_the_published_pass_at_k_form_points_the_right_way_too():
    analytic = partial(pass_at_k_advantages, k=2, baseline="group_mean", scale="population_std", eps=0.0)
    got = POLICY.expected_gradient(G, analytic)
    weights = got / POLICY.success_gradient
    assert weights[0] > 0
    torch.testing.assert_close(weights, weights[0].expand(5))


@pytest.mark.parametrize(
    ("size", "p", "expected"), [(2, 0.5, 0.5), (4, 0.5, 0.125), (8, 0.5, 0.0078125), (8, 0.1, 0.43046722)]
)
def test_collapse_is_as_likely_as_the_formula_says(size, p, expected):
    assert p**size + (1 - p) ** size == pytest.approx(expected, abs=1e-8)
    arms = Arms([math.log(p), math.log(1 - p)], right=[0])
    groups, chance = arms.groups(size)
    rewards = arms.rewards[groups]
    dead = (group(rewards, every(rewards), baseline="group_mean", scale="none") == 0).all(dim=1)
    assert chance[dead].sum().item() == pytest.approx(expected, abs=1e-8)


# --- the leave-one-out gradient is a U-statistic --------------------------------------------------------


def gradients(scores, rewards):
    """Leave-one-out gradient by our advantages, by pairs, and as a sample covariance."""
    size = len(rewards)
    a = group(rewards[None], every(rewards[None]), baseline="leave_one_out", scale="none")[0]
    ours = (a[:, None] * scores).mean(dim=0)
    pairs = torch.zeros_like(ours)
    for i in range(size):
        for j in range(i):
            pairs += 0.5 * (scores[i] - scores[j]) * (rewards[i] - rewards[j])
    covariance = (size * (scores * rewards[:, None]).sum(0) - scores.sum(0) * rewards.sum()) / (
        size * (size - 1)
    )
    return ours, 2 / (size * (size - 1)) * pairs, covariance


def test_three_forms_of_the_leave_one_out_gradient_agree():
    generator = torch.Generator().manual_seed(0)
    for size in (2, 3, 8):
        scores = torch.randn(size, 6, dtype=torch.float64, generator=generator)
        rewards = torch.rand(size, dtype=torch.float64, generator=generator)
        ours, pairs, covariance = gradients(scores, rewards)
        torch.testing.assert_close(ours, pairs, rtol=0, atol=1e-10)
        torch.testing.assert_close(ours, covariance, rtol=0, atol=1e-10)


def test_the_identity_by_hand():
    # scores 1, 2, 4; rewards 1, 0, 1: advantages 1/2, -1, 1/2; (1/2 - 2 + 2) / 3 = 1/6
    scores = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    rewards = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    assert [g.item() for g in gradients(scores, rewards)] == pytest.approx([1 / 6] * 3)


def test_std_scaling_breaks_the_identity():
    scores = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    rewards = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    a = group(rewards[None], every(rewards[None]), baseline="group_mean", scale="population_std")[0]
    assert (a[:, None] * scores).mean().item() != pytest.approx(1 / 6, abs=1e-3)


def bernoulli_moments(p, size, baseline, scale):
    """Exact mean and variance of the one-logit gradient: score 1 - p on success, -p on failure."""
    counts = torch.arange(size + 1)
    rewards = (torch.arange(size)[None] < counts[:, None]).double()
    if baseline == "zero":
        a = rewards
    elif baseline == "oracle":
        a = rewards - p
    else:
        a = group(rewards, every(rewards), baseline=baseline, scale=scale)
    g = (a * (rewards - p)).mean(dim=1)
    chance = torch.tensor([binomial(size, k, p) for k in range(size + 1)], dtype=torch.float64)
    mean = (chance * g).sum()
    return mean.item(), (chance * (g - mean) ** 2).sum().item()


@pytest.mark.parametrize(
    ("size", "leave_one_out", "oracle", "vanilla", "scaled_mean"),
    [
        (2, 0.0544, 0.0288, 0.0512, 0.16),
        (4, 0.018667, 0.0144, 0.0256, 0.2652),
        (8, 0.008114, 0.0072, 0.0128, 0.3371),
        (16, 0.003813, 0.0036, 0.0064, 0.3754),
        (64, 0.000913, 0.0009, 0.0016, None),
    ],
)
def test_variances_at_one_success_in_five(size, leave_one_out, oracle, vanilla, scaled_mean):
    p = 0.2
    mean, variance = bernoulli_moments(p, size, "leave_one_out", "none")
    assert mean == pytest.approx(p * (1 - p))
    assert variance == pytest.approx(leave_one_out, abs=1e-6)
    assert bernoulli_moments(p, size, "oracle", "none")[1] == pytest.approx(oracle, abs=1e-6)
    assert bernoulli_moments(p, size, "zero", "none")[1] == pytest.approx(vanilla, abs=1e-6)
    if scaled_mean is not None:
        assert bernoulli_moments(p, size, "group_mean", "population_std")[0] == pytest.approx(
            scaled_mean, abs=5e-5
        )


def test_the_best_group_size_does_not_depend_on_the_budget():
    # minimise (c1 + mean variance(G)) / (N / G): prompts of .3, .4, .5; c1 is the spread of their gradients
    population = [0.3, 0.4, 0.5]
    truths = torch.tensor([p * (1 - p) for p in population], dtype=torch.float64)
    between = truths.var(correction=0).item()

    def error(size, budget):
        inner = sum(bernoulli_moments(p, size, "leave_one_out", "none")[1] for p in population) / 3
        return size / budget * (between + inner)

    for budget in (256, 4096):
        assert min(range(2, 65), key=lambda size: error(size, budget)) == 20
