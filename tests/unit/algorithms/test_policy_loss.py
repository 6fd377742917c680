import math

import pytest
import torch

from peira.algorithms.policy_loss import clipped_surrogate, token_weights
from tests.unit.algorithms.tensors import every


def loss_and_gradient(ratios, advantages, *, mask=None, dtype=torch.float64, **options):
    """Loss per token and its derivative by the log-prob, for old log-probs of 0."""
    logprobs = torch.tensor([[math.log(r) for r in ratios]], dtype=dtype, requires_grad=True)
    mask = every(logprobs) if mask is None else torch.tensor([mask])
    advantages = torch.tensor([advantages], dtype=dtype)
    loss = clipped_surrogate(logprobs, torch.zeros_like(advantages), advantages, mask, **options)
    loss.sum().backward()
    return loss.detach()[0], logprobs.grad[0]


@pytest.mark.parametrize(
    ("advantage", "ratio", "surrogate", "slope"),
    [
        # J = min(ratio * A, clip(ratio) * A) and dJ/d log pi = ratio * dJ/d ratio, clip at [0.8, 1.2]
        (1.0, 0.7, 0.7, 0.7),
        (1.0, 1.0, 1.0, 1.0),
        (1.0, 1.3, 1.2, 0.0),
        (-1.0, 0.7, -0.8, 0.0),
        (-1.0, 1.0, -1.0, -1.0),
        (-1.0, 1.3, -1.3, -1.3),
        (-1.0, 4.0, -4.0, -4.0),
    ],
)
def test_surrogate_and_slope_at_each_side_of_each_bound(advantage, ratio, surrogate, slope):
    loss, gradient = loss_and_gradient([ratio], [advantage], clip_low=0.2, clip_high=0.2)
    assert loss.item() == pytest.approx(-surrogate)
    assert gradient.item() == pytest.approx(-slope)


def test_bounds_are_separate():
    # up to 1.28 a positive advantage still pushes; below 0.9 a negative one no longer does
    loss, gradient = loss_and_gradient(
        [1.25, 1.3, 0.95, 0.85], [1.0, 1.0, -1.0, -1.0], clip_low=0.1, clip_high=0.28
    )
    assert loss.tolist() == pytest.approx([-1.25, -1.28, 0.95, 0.9])
    assert gradient.tolist() == pytest.approx([-1.25, 0.0, 0.95, 0.0])


def test_dual_clip_bounds_the_loss_of_a_bad_token_that_became_likely():
    # A = -1, ratio 4 > c = 3: loss 3, gradient 0; ratio 2: loss 2; A = +1 keeps its own clip
    loss, gradient = loss_and_gradient(
        [4.0, 2.0, 4.0], [-1.0, -1.0, 1.0], clip_low=0.2, clip_high=0.2, dual_clip=3.0
    )
    assert loss.tolist() == pytest.approx([3.0, 2.0, -1.2])
    assert gradient.tolist() == pytest.approx([0.0, 2.0, 0.0])


def test_one_update_per_rollout_never_clips():
    wide = loss_and_gradient([1.0, 1.0], [2.0, -3.0], clip_low=0.999, clip_high=1e9)
    tight = loss_and_gradient([1.0, 1.0], [2.0, -3.0], clip_low=0.001, clip_high=0.001)
    assert [x.tolist() for x in wide] == [x.tolist() for x in tight] == [[-2.0, 3.0], [-2.0, 3.0]]


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 1e30])
def test_what_stands_at_masked_positions_reaches_neither_loss_nor_gradient(garbage):
    logprobs = torch.tensor([[math.log(1.5), math.log(0.5), garbage]], requires_grad=True)
    loss = clipped_surrogate(
        logprobs,
        torch.tensor([[0.0, 0.0, garbage]]),
        torch.tensor([[2.0, 2.0, garbage]]),
        torch.tensor([[True, True, False]]),
        clip_low=0.2,
        clip_high=0.28,
        dual_clip=3.0,
    )
    loss.sum().backward()
    # 1.5 is above 1.28: loss -1.28 * 2, gradient 0; 0.5 is not clipped from below for A > 0: -0.5 * 2
    torch.testing.assert_close(loss.detach(), torch.tensor([[-2.56, -1.0, 0.0]]))
    torch.testing.assert_close(logprobs.grad, torch.tensor([[0.0, -1.0, 0.0]]))


def test_no_gradient_reaches_old_logprobs_or_advantages():
    logprobs = torch.tensor([[-0.1]], requires_grad=True)
    old, advantages = torch.tensor([[-0.2]], requires_grad=True), torch.tensor([[1.0]], requires_grad=True)
    clipped_surrogate(logprobs, old, advantages, every(old), clip_low=0.2, clip_high=0.2).sum().backward()
    assert logprobs.grad is not None
    assert old.grad is None
    assert advantages.grad is None


def test_float32_agrees_with_float64():
    ratios, advantages = [0.5, 0.9, 1.1, 1.6], [1.0, -2.0, 0.5, 3.0]
    rough = loss_and_gradient(ratios, advantages, dtype=torch.float32, clip_low=0.2, clip_high=0.28)
    exact = loss_and_gradient(ratios, advantages, dtype=torch.float64, clip_low=0.2, clip_high=0.28)
    for a, b in zip(rough, exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-6, atol=1e-6)


TWO_AND_FOUR = torch.tensor([[True, True, False, False], [True, True, True, True]])


@pytest.mark.parametrize(
    ("average", "expected"),
    [
        ("sequence_mean", 0.75),  # (1 + 0.5) / 2: each row's mean, then the mean of the rows
        ("sequence_sum", 2.0),  # (2 + 2) / 2: each row's sum, then the mean of the rows
        ("token_mean", 4 / 6),  # six kept tokens
        ("constant", 0.25),  # (2 + 2) / (2 * 8): two rows of at most eight
    ],
)
def test_two_tokens_of_loss_one_and_four_of_one_half(average, expected):
    loss = torch.tensor([[1.0, 1.0, 99.0, 99.0], [0.5, 0.5, 0.5, 0.5]])
    weights = token_weights(TWO_AND_FOUR, average=average, max_tokens=8, count_dead=True)
    torch.testing.assert_close((weights * loss).sum(), torch.tensor(expected))


@pytest.mark.parametrize(
    ("average", "factor"),
    [
        ("sequence_mean", 4),  # 2 rows counted of 8
        ("sequence_sum", 4),
        ("token_mean", 4),  # 6 tokens of 24
        ("constant", 4),
    ],
)
def test_one_live_group_of_four_makes_four_times_the_gradient_when_the_dead_do_not_count(average, factor):
    dead = {"dead_sequences": 6, "dead_tokens": 18}
    counted = token_weights(TWO_AND_FOUR, average=average, max_tokens=8, count_dead=True, **dead)
    shared = token_weights(TWO_AND_FOUR, average=average, max_tokens=8, count_dead=False, **dead)
    torch.testing.assert_close(shared, factor * counted)


@pytest.mark.parametrize("average", ["sequence_mean", "sequence_sum", "token_mean", "constant"])
def test_leaving_dead_rows_out_and_counting_them_gives_the_same_weights_as_keeping_them(average):
    mask = torch.cat([TWO_AND_FOUR, TWO_AND_FOUR.flip(0)])
    whole = token_weights(mask, average=average, max_tokens=8, count_dead=True)
    part = token_weights(
        TWO_AND_FOUR, average=average, max_tokens=8, count_dead=True, dead_sequences=2, dead_tokens=6
    )
    assert torch.equal(whole[:2], part)


@pytest.mark.parametrize("average", ["sequence_mean", "sequence_sum", "token_mean", "constant"])
@pytest.mark.parametrize("count_dead", [True, False])
def test_an_empty_row_and_an_empty_batch_have_finite_weights(average, count_dead):
    for mask in (torch.zeros(2, 3, dtype=torch.bool), torch.zeros(0, 0, dtype=torch.bool)):
        weights = token_weights(mask, average=average, max_tokens=8, count_dead=count_dead)
        assert torch.equal(weights, torch.zeros(mask.shape))


def test_weights_are_zero_where_nothing_is_trained():
    for average in ("sequence_mean", "sequence_sum", "token_mean", "constant"):
        weights = token_weights(TWO_AND_FOUR, average=average, max_tokens=8, count_dead=False)
        assert torch.equal(weights != 0, TWO_AND_FOUR)
