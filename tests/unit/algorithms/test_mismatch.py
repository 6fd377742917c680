import math

import pytest
import torch

from peira.algorithms.objective import token_objective
from peira.algorithms.policy_loss import clipped_surrogate, score_function_loss
from peira.algorithms.ratio import (
    effective_sample_size,
    log_gap,
    log_linear_proximal,
    mismatch_weights,
    rows_in_agreement,
    sampling_capacity,
    too_stale,
    with_mismatch_weights,
)
from tests.unit.algorithms.policies import TwoBits
from tests.unit.algorithms.tensors import every, train_batch

OLD = torch.tensor([[0.5, 0.2, 0.9, 0.1]], dtype=torch.float64).log()
SAMPLING = torch.tensor([[0.4, 0.25, 0.9, 0.01]], dtype=torch.float64).log()
PLAIN = {"level": "token", "excess": "truncate", "low": 0.0, "high": math.inf}


def weights(old=OLD, sampling=SAMPLING, mask=None, **options):
    return mismatch_weights(old, sampling, every(old) if mask is None else mask, **(PLAIN | options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1.25, 0.8, 1.0, 10.0]),
        ({"high": 2.0}, [1.25, 0.8, 1.0, 2.0]),
        ({"high": 2.0, "low": 0.9}, [1.25, 0.8, 1.0, 2.0]),  # small weights are left alone
        ({"excess": "mask", "low": 0.5, "high": 5.0}, [1.25, 0.8, 1.0, 0.0]),
        ({"level": "sequence_product"}, [10.0] * 4),
        ({"level": "sequence_product", "high": 3.0}, [3.0] * 4),
        ({"level": "sequence_product", "excess": "mask", "high": 3.0}, [0.0] * 4),
        ({"level": "sequence_geometric"}, [1.778279] * 4),
        ({"level": "sequence_geometric", "excess": "mask", "low": 0.999, "high": 1.001}, [0.0] * 4),
        ({"veto": 0.9}, [0.0] * 4),
        ({"veto": 0.7}, [1.25, 0.8, 1.0, 10.0]),
        # mean 13.05 / 4
        ({"normalise": True}, [w / 3.2625 for w in (1.25, 0.8, 1.0, 10.0)]),
    ],
)
def test_weights_of_four_tokens(options, expected):
    assert weights(**options)[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_effective_sample_size_of_capped_weights():
    assert effective_sample_size(weights(high=2.0)) == pytest.approx(3.540784, abs=1e-6)
    assert effective_sample_size(torch.zeros(3)) == 0.0
    assert effective_sample_size(torch.full((7,), 0.3)) == pytest.approx(7.0)


def test_products_blow_up_with_length_and_geometric_means_do_not():
    for length, product in ((10, 2.593742), (100, 13780.61)):
        old = torch.full((1, length), math.log(1.1), dtype=torch.float64)
        zeros = torch.zeros_like(old)
        assert weights(old, zeros, level="sequence_product")[0, 0].item() == pytest.approx(product, rel=1e-6)
        assert weights(old, zeros, level="sequence_geometric")[0, 0].item() == pytest.approx(1.1)


def test_an_absurd_gap_stays_finite():
    old = torch.full((1, 50), 10.0)
    assert weights(old, torch.zeros_like(old), level="sequence_product").isfinite().all()


@pytest.mark.parametrize("level", ["token", "sequence_product", "sequence_geometric"])
@pytest.mark.parametrize("excess", ["truncate", "mask"])
@pytest.mark.parametrize("normalise", [True, False])
def test_equal_policies_have_weight_one_and_masked_garbage_none(level, excess, normalise):
    old = torch.tensor([[-1.0, math.nan]])
    got = weights(
        old,
        old.clone(),
        torch.tensor([[True, False]]),
        level=level,
        excess=excess,
        low=0.5,
        high=2.0,
        veto=1e-4,
        normalise=normalise,
    )
    assert got.tolist() == [[1.0, 0.0]]


def test_weights_carry_no_gradient():
    old = OLD.clone().requires_grad_()
    assert not weights(old).requires_grad
    assert not log_gap(old, SAMPLING, every(OLD), level="sequence_product").requires_grad


def test_a_row_is_rejected_by_its_mean_divergence():
    # mean k3 of this row is 1.686854
    assert rows_in_agreement(OLD, SAMPLING, every(OLD), measure="k3", limit=1.69).tolist() == [True]
    assert rows_in_agreement(OLD, SAMPLING, every(OLD), measure="k3", limit=1.68).tolist() == [False]
    # mean of l^2 / 2: (log^2 1.25 + log^2 .8 + log^2 10) / 8
    mean = (2 * math.log(1.25) ** 2 + math.log(10) ** 2) / 8
    assert rows_in_agreement(OLD, SAMPLING, every(OLD), measure="k2", limit=mean - 1e-6).tolist() == [False]
    assert rows_in_agreement(OLD, SAMPLING, every(OLD), measure="k2", limit=mean + 1e-6).tolist() == [True]
    assert rows_in_agreement(OLD, SAMPLING, ~every(OLD), measure="k3", limit=0.0).tolist() == [True]


# --- the modes, on one token --------------------------------------------------------------------------------


def loss_of(*, old, sampling=0.2, now=0.299):
    """Policy loss and slope of one token of advantage 1, prepared as the trainer does it."""
    logprobs = torch.tensor([[math.log(now)]], dtype=torch.float64, requires_grad=True)
    batch = train_batch(
        mask=torch.ones(1, 1, dtype=torch.bool),
        advantages=torch.ones(1, 1, dtype=torch.float64),
        old_logprobs=torch.tensor([[math.log(old)]], dtype=torch.float64),
        sampling_logprobs=torch.tensor([[math.log(sampling)]], dtype=torch.float64),
    )
    batch = with_mismatch_weights(
        batch, level="token", excess="truncate", low=0.0, high=2.0, veto=None, normalise=False
    )
    loss = token_objective(
        logprobs, batch, policy_loss=lambda *columns: clipped_surrogate(*columns, clip_low=0.2, clip_high=0.2)
    )
    loss.sum().backward()
    return loss.item(), logprobs.grad.item()


def test_decoupled_weighs_outside_the_clip():
    # mu .2, old .25, now .299: weight 1.25, ratio 1.196: unclipped, 1.495
    loss, slope = loss_of(old=0.25)
    assert loss == pytest.approx(-1.25 * 0.299 / 0.25)
    assert slope == pytest.approx(-1.25 * 0.299 / 0.25)


def test_bypass_clips_against_the_sampler_and_weighs_nothing_twice():
    # old log-probs are the sampler's: ratio 1.495 clipped to 1.2, gradient 0; a second weight would give more
    loss, slope = loss_of(old=0.2)
    assert loss == pytest.approx(-1.2)
    assert slope == 0.0


def test_a_batch_in_bypass_is_left_as_it_is():
    batch = train_batch(mask=torch.ones(2, 3, dtype=torch.bool))
    options = {"level": "token", "excess": "mask", "low": 0.5, "high": 2.0, "veto": None, "normalise": True}
    assert with_mismatch_weights(batch, **options) is batch


def test_one_token_on_which_both_agree_does_not_make_a_bypass():
    batch = train_batch(
        mask=torch.ones(1, 2, dtype=torch.bool),
        old_logprobs=torch.tensor([[-1.0, -1.0]]),
        sampling_logprobs=torch.tensor([[-1.0, -2.0]]),
    )
    options = {
        "level": "token",
        "excess": "truncate",
        "low": 0.5,
        "high": 2.0,
        "veto": None,
        "normalise": False,
    }
    assert with_mismatch_weights(batch, **options).mismatch_weights.tolist() == [[1.0, 2.0]]


# --- bias of each weight, by enumeration
# ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, (0.0, 0.12, -0.12)),
        ({}, (0.0, 0.105, -0.08)),
        ({"level": "sequence_product"}, (-0.024, 0.084, -0.096)),
        ({"level": "sequence_geometric"}, (-0.009747, 0.099845, -0.104719)),
        ({"high": 1.2}, (0.0, 0.105, -0.0768)),
        ({"level": "sequence_product", "high": 1.2}, (-0.0048, 0.084, -0.0864)),
        ({"level": "sequence_product", "excess": "mask", "high": 1.2}, (0.0528, 0.084, -0.0576)),
        ({"excess": "mask", "low": 0.7, "high": 1.3}, (0.0, 0.105, 0.0)),
    ],
    ids=["none", "token", "product", "geometric", "tis", "sequence_tis", "sequence_mis", "icepop"],
)
def test_expected_gradient_under_each_weight(options, expected):
    # reward 1 when exactly one bit is 1; trainer's value .24, engine's .40; baseline .40
    trainer, engine = TwoBits(0.6, 0.3, 0.8), TwoBits(0.5, 0.4, 0.6)
    reward = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    assert (trainer.chances() * reward).sum().item() == pytest.approx(0.24)
    assert (engine.chances() * reward).sum().item() == pytest.approx(0.40)
    logprobs, sampling = trainer.logprobs(), engine.logprobs().detach()
    advantages = (reward - 0.40)[:, None].expand(4, 2)
    weight = torch.ones_like(sampling) if options is None else weights(logprobs.detach(), sampling, **options)
    loss = weight * score_function_loss(logprobs, logprobs.detach(), advantages, every(sampling))
    gradient = -trainer.gradient((engine.chances()[:, None] * loss).sum())
    assert gradient.tolist() == pytest.approx(expected, abs=1e-6)


def test_the_variance_of_weights_grows_with_length():
    # log-noise of sd s over 20 tokens: products have ESS / n near exp(-20 s^2); capped token weights stay
    # near 1
    generator = torch.Generator().manual_seed(0)
    for sd, product, token in ((0.1, 0.819, 0.990), (0.3, 0.165, 0.917)):
        old = sd * torch.randn(4000, 20, dtype=torch.float64, generator=generator)
        zeros = torch.zeros_like(old)
        rows = weights(old, zeros, level="sequence_product")[:, 0]
        assert effective_sample_size(rows) / 4000 == pytest.approx(product, abs=0.08)
        assert effective_sample_size(weights(old, zeros, high=2.0)) / old.numel() == pytest.approx(
            token, abs=0.01
        )


# --- staleness ----------------------------------------------------------------------------------------------


def test_capacity_of_an_asynchronous_sampler():
    # (2 + 3 + 1) * 4 - (18 + 3) = 3
    room = {"batch_size": 4, "max_lag": 2, "current_version": 3}
    assert sampling_capacity(**room, accepted=18, running=3, max_concurrent=100) == 3
    assert sampling_capacity(**room, accepted=18, running=3, max_concurrent=4) == 1
    assert sampling_capacity(**room, accepted=30, running=3, max_concurrent=100) == 0


def test_rows_beyond_the_lag_are_named():
    versions = torch.tensor([10, 2, 1])
    assert too_stale(versions, current_version=10, max_lag=8).tolist() == [False, False, True]


def test_the_proximal_policy_on_the_line_between_sampler_and_learner():
    # versions 1 (sampled), 3 (proximal), 4 (now); log-probs -2 and -1: -2 + 2/3
    got = log_linear_proximal(
        torch.tensor([[-1.0], [-1.0]], requires_grad=True),
        torch.tensor([[-2.0], [-2.0]]),
        sampled_version=torch.tensor([1, 4]),
        proximal_version=3,
        current_version=4,
    )
    assert got[0].item() == pytest.approx(-4 / 3)
    assert got[1].item() == -2.0
    assert not got.requires_grad
