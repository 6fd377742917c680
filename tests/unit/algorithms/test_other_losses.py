import math
from functools import partial

import pytest
import torch

from peira.algorithms.advantage import group_advantages
from peira.algorithms.fipo import future_kl_weights
from peira.algorithms.objective import token_objective
from peira.algorithms.policy_loss import (
    clipped_surrogate,
    clipped_weight_loss,
    off_policy_rows,
    score_function_loss,
    sequence_surrogate,
    token_weights,
)
from tests.unit.algorithms.policies import binomial
from tests.unit.algorithms.tensors import every, train_batch

LOSSES = {
    "clipped": partial(clipped_surrogate, clip_low=0.2, clip_high=0.28),
    "gspo": partial(sequence_surrogate, clip_low=0.2, clip_high=0.28),
    "cispo": partial(clipped_weight_loss, clip_low=0.2, clip_high=0.28),
    "reinforce": score_function_loss,
}


def rows(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_on_policy_every_loss_pushes_each_token_by_its_advantage(loss):
    logprobs = rows([-1.0, -2.0], [-0.5, -0.1]).requires_grad_()
    advantages = rows([2.0, 2.0], [-1.0, -3.0])
    loss(logprobs, logprobs.detach(), advantages, every(advantages)).sum().backward()
    torch.testing.assert_close(logprobs.grad, -advantages)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_masked_garbage_is_harmless_and_old_values_get_no_gradient(loss, garbage):
    logprobs = rows([-0.9, garbage]).requires_grad_()
    old, advantages = rows([-1.0, garbage]).requires_grad_(), rows([1.5, garbage]).requires_grad_()
    value = loss(logprobs, old, advantages, torch.tensor([[True, False]]))
    value.sum().backward()
    assert value[0, 1].item() == 0
    assert logprobs.grad[0, 1].item() == 0
    assert math.isfinite(logprobs.grad[0, 0].item())
    assert logprobs.grad[0, 0].item() != 0
    assert old.grad is None
    assert advantages.grad is None


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_float32_agrees_with_float64(loss):
    logprobs, old, advantages = rows([-0.9, -1.4]), rows([-1.0, -1.2]), rows([1.5, 1.5])
    exact = loss(logprobs, old, advantages, every(old))
    rough = loss(logprobs.float(), old.float(), advantages.float(), every(old))
    torch.testing.assert_close(rough.double(), exact, rtol=1e-6, atol=1e-6)


# --- GSPO ------------------------------------------------------------------------------------------------


def gspo(log_ratios, advantage, clip_low, clip_high):
    logprobs = rows(log_ratios).requires_grad_()
    zeros = torch.zeros_like(logprobs.detach())
    loss = sequence_surrogate(
        logprobs, zeros, zeros + advantage, every(zeros), clip_low=clip_low, clip_high=clip_high
    )
    weights = token_weights(every(zeros), average="sequence_mean", max_tokens=8, count_dead=False).double()
    (weights * loss).sum().backward()
    return loss.detach()[0].tolist(), logprobs.grad[0].tolist()


def test_gspo_uses_one_geometric_ratio_for_the_row():
    # mean of .1, -.2, .3 is .0667: s = 1.068939; unclipped each token's coefficient is s / 3
    loss, gradient = gspo([0.1, -0.2, 0.3], 1.0, 0.5, 0.5)
    assert loss == pytest.approx([-1.068939] * 3, abs=1e-6)
    assert gradient == pytest.approx([-0.356313] * 3, abs=1e-6)


def test_a_row_above_the_gspo_bound_has_no_gradient_at_all():
    loss, gradient = gspo([0.1, -0.2, 0.3], 1.0, 3e-4, 4e-4)
    assert loss == pytest.approx([-1.0004] * 3)
    assert gradient == [0.0] * 3
    # (0.1, -0.05, 0.2): s = 1.086904, clipped to 1.0004
    assert gspo([0.1, -0.05, 0.2], 1.0, 3e-4, 4e-4)[0] == pytest.approx([-1.0004] * 3)
    assert gspo([0.1, -0.05, 0.2], -1.0, 3e-4, 4e-4)[0] == pytest.approx([1.086904] * 3, abs=1e-6)


def test_a_row_below_the_gspo_bound_keeps_a_bad_completion_from_falling_further():
    loss, gradient = gspo([-0.1, -0.1], -1.0, 3e-4, 4e-4)
    assert loss == pytest.approx([0.9997] * 2)
    assert gradient == [0.0] * 2


def test_gspo_leaves_padding_out_of_the_mean():
    logprobs = rows([0.2, 0.4, 77.0])
    mask = torch.tensor([[True, True, False]])
    loss = sequence_surrogate(
        logprobs, torch.zeros_like(logprobs), torch.ones_like(logprobs), mask, clip_low=0.9, clip_high=9.0
    )
    assert loss[0].tolist() == pytest.approx([-math.exp(0.3), -math.exp(0.3), 0.0])


# --- CISPO -----------------------------------------------------------------------------------------------


def test_cispo_caps_the_weight_and_keeps_the_gradient():
    # ratios 1.5, 0.5, 1.1 with bounds [0.8, 1.28]: weights 1.28, 0.8, 1.1; gradient -weight * A
    logprobs = rows([math.log(1.5), math.log(0.5), math.log(1.1)]).requires_grad_()
    advantages = rows([2.0, -1.0, 1.0])
    loss = clipped_weight_loss(
        logprobs, torch.zeros_like(advantages), advantages, every(advantages), clip_low=0.2, clip_high=0.28
    )
    loss.sum().backward()
    assert logprobs.grad[0].tolist() == pytest.approx([-2.56, 0.8, -1.1])
    assert loss[0].tolist() == pytest.approx(
        [-2.56 * math.log(1.5), 0.8 * math.log(0.5), -1.1 * math.log(1.1)]
    )


def test_cispo_without_a_lower_bound_is_reinforce_with_a_truncated_weight():
    # the other convention's "epsilon_high = 5" is the cap itself: clip_high = 4 here
    logprobs = rows([math.log(0.01), math.log(7.0)]).requires_grad_()
    ones = torch.ones_like(logprobs.detach())
    clipped_weight_loss(
        logprobs, torch.zeros_like(ones), ones, every(ones), clip_low=1.0, clip_high=4.0
    ).sum().backward()
    assert logprobs.grad[0].tolist() == pytest.approx([-0.01, -5.0])


# --- DeepSeek-V3.2's mask --------------------------------------------------------------------------------


def test_bad_rows_that_the_policy_has_left_are_dropped():
    # mean(old - new) = .6 > .5: dropped when bad, kept when good; .4 is kept
    logprobs = rows([-1.6, -1.6], [-1.6, -1.6], [-1.4, -1.4])
    advantages = rows([-1.0, -1.0], [1.0, 1.0], [-1.0, -1.0])
    kept = off_policy_rows(logprobs, rows(*[[-1.0, -1.0]] * 3), advantages, every(advantages), max_drop=0.5)
    assert kept.tolist() == [[False, False], [True, True], [True, True]]


def test_a_dropped_row_loses_its_policy_loss_and_keeps_its_penalty():
    batch = train_batch(
        mask=torch.ones(1, 2, dtype=torch.bool),
        advantages=-torch.ones(1, 2),
        old_logprobs=torch.zeros(1, 2),
    )
    loss = token_objective(
        -torch.ones(1, 2),
        batch,
        policy_loss=LOSSES["clipped"],
        kept=partial(off_policy_rows, max_drop=0.5),
        penalties=(lambda logprobs, batch: torch.full_like(logprobs, 0.25),),
    )
    assert loss.tolist() == [[0.25, 0.25]]


# --- what clipping does to rewards without information ----------------------------------------------------


@pytest.mark.parametrize(("probability", "expected"), [(0.37, -0.596355), (0.23, 0.370707), (0.33, 0.0)])
def test_under_random_rewards_clipping_pulls_back_to_the_old_policy(probability, expected):
    # one token, old probability .30, G = 16, reward a fair coin: E[A] = 0 whatever is clipped, so the only
    # expected gradient is what clipping removes: mean(max(A, 0)) * ratio, up below .8, down above 1.2
    size, ratio = 16, probability / 0.30
    total = 0.0
    for right in range(size + 1):
        rewards = (torch.arange(size) < right).double()[None]
        a = group_advantages(rewards, every(rewards), baseline="group_mean", scale="population_std", eps=0.0)
        logprobs = torch.full((1, size), math.log(ratio), dtype=torch.float64, requires_grad=True)
        loss = clipped_surrogate(logprobs, torch.zeros_like(a), a, every(a), clip_low=0.2, clip_high=0.2)
        loss.mean().backward()
        total -= binomial(size, right, 0.5) * logprobs.grad.sum().item()
    assert total == pytest.approx(expected, abs=1e-6)


# --- FIPO ------------------------------------------------------------------------------------------------

GAMMA_HALF = {"half_life_tokens": 1.0, "max_ratio": 10.0, "safety_ratio": 10.0, "safety": "one"}


def fipo(log_ratios, advantage=1.0, mask=None, **options):
    logprobs = rows(log_ratios)
    mask = every(logprobs) if mask is None else torch.tensor([mask])
    options = GAMMA_HALF | {"low": 1e-9, "high": 1e9} | options
    zeros = torch.zeros_like(logprobs)
    return future_kl_weights(logprobs, zeros, zeros + advantage, mask, **options)[0].tolist()


def test_future_weights_by_hand():
    # F = (.08125, -.0375, .325, .05) for D = (.1, -.2, .3, .05) and gamma = 1/2
    d = [0.1, -0.2, 0.3, 0.05]
    assert fipo(d) == pytest.approx([1.084642, 0.963194, 1.384031, 1.051271], abs=1e-6)
    assert fipo(d, low=0.8, high=1.2) == pytest.approx([1.084642, 0.963194, 1.2, 1.051271], abs=1e-6)
    assert fipo(d, low=1.0, high=1.2) == pytest.approx([1.084642, 1.0, 1.2, 1.051271], abs=1e-6)


def test_a_token_of_excessive_ratio_is_left_out_of_the_sum():
    # exp(2.5) = 12.18 > 10: F = (.00625, -.1875, .025, .05)
    expected = [math.exp(f) for f in (0.00625, -0.1875, 0.025, 0.05)]
    assert fipo([0.1, -0.2, 2.5, 0.05]) == pytest.approx(expected)


def test_half_lives_give_the_published_decays():
    for half_life, gamma in ((32.0, 0.978572), (8.0, 0.917004)):
        first, _ = fipo([0.0, 1.0], half_life_tokens=half_life)
        assert math.log(first) == pytest.approx(gamma, abs=1e-6)


def test_without_a_future_the_weight_is_the_tokens_own_ratio():
    assert fipo([0.1, -0.2], half_life_tokens=0.0) == pytest.approx([math.exp(0.1), math.exp(-0.2)])


def test_with_an_endless_half_life_the_first_weight_is_the_sequence_ratio():
    assert fipo([0.1, -0.2, 0.3], half_life_tokens=1e12)[0] == pytest.approx(math.exp(0.2))


def test_the_first_mini_batch_is_plain_dapo():
    assert fipo([0.0, 0.0, 0.0], low=0.8, high=1.2) == [1.0, 1.0, 1.0]


def test_bad_tokens_that_became_likely_are_not_amplified():
    d = [math.log(4.0), 0.0]
    assert fipo(d, -1.0, safety_ratio=3.0, low=0.5, high=1.2)[0] == 1.0
    assert fipo(d, -1.0, safety_ratio=3.0, low=0.5, high=1.2, safety="cap")[0] == 1.0
    falling = [math.log(4.0), -9.0]
    assert fipo(falling, -1.0, safety_ratio=3.0, low=0.5, high=1.2, safety="cap")[0] == pytest.approx(0.8)
    assert fipo(d, 1.0, safety_ratio=3.0, low=0.5, high=1.2)[0] == 1.2


def test_padding_changes_no_future_weight():
    short = fipo([0.1, -0.2])
    padded = fipo([0.1, -0.2, math.nan, 5.0], mask=[True, True, False, False])
    assert padded == pytest.approx([*short, 1.0, 1.0])


def test_the_weight_is_a_constant_to_the_gradient():
    logprobs = rows([0.1, -0.2]).requires_grad_()
    batch = train_batch(
        mask=torch.ones(1, 2, dtype=torch.bool),
        advantages=torch.ones(1, 2, dtype=torch.float64),
        old_logprobs=torch.zeros(1, 2, dtype=torch.float64),
    )
    factor = partial(future_kl_weights, **GAMMA_HALF, low=0.5, high=1.5)
    assert not factor(logprobs, batch.old_logprobs, batch.advantages, batch.mask).requires_grad
    token_objective(logprobs, batch, policy_loss=LOSSES["clipped"], advantage_factor=factor).sum().backward()
    # F = (0, -.2): factors 1 and exp(-.2); gradient -factor * ratio
    assert logprobs.grad[0].tolist() == pytest.approx([-math.exp(0.1), -math.exp(-0.2) * math.exp(-0.2)])
