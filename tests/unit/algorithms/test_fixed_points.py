"""Where GRPO comes to rest: advantages, loss, KL and averaging together, against the closed forms.

One token, two answers, reward 1 for the first; every group is enumerated. The policy's logit gradient is
taken by autograd through the built algorithm, and its root found by bisection.
"""

import pytest
import torch

from peira.build.algorithm import build_algorithm
from peira.config.algorithm import AlgorithmConfig
from tests.unit.algorithms.policies import binomial
from tests.unit.algorithms.tensors import every, train_batch


def descent(algorithm, p, reference, size):
    """d(expected loss)/d(logit of the first answer), exactly."""
    groups = size + 1  # one for each number of right answers
    right = torch.arange(size) < torch.arange(groups)[:, None]
    rewards = right.double()
    advantages = algorithm.advantages(rewards, every(rewards))
    logit = torch.tensor(p, dtype=torch.float64).logit().requires_grad_()
    both = torch.stack([torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)])
    answers = (~right).long().flatten()  # 0: right, 1: wrong
    logprobs = both[answers][:, None]
    mask = torch.ones(size, 1, dtype=torch.bool)
    weights = algorithm.weights(mask)  # each group is a batch of its own
    chosen = torch.tensor([reference, 1 - reference], dtype=torch.float64).log()
    batch = algorithm.prepare(
        train_batch(
            mask=mask.repeat(groups, 1),
            advantages=advantages.reshape(-1, 1),
            old_logprobs=logprobs.detach(),
            sampling_logprobs=logprobs.detach(),
            reference_logprobs=chosen[answers][:, None],
            group=torch.arange(groups).repeat_interleave(size),
        )
    )
    losses = (weights.repeat(groups, 1) * algorithm.token_loss(logprobs, batch)).reshape(groups, size)
    chance = torch.tensor([binomial(size, k, p) for k in range(groups)], dtype=torch.float64)
    (slope,) = torch.autograd.grad((chance * losses.sum(dim=1)).sum(), logit)
    return slope.item()


def resting_point(size, beta, reference, **settings):
    kl = {"coefficient": beta} | settings.pop("kl", {})
    config = AlgorithmConfig.model_validate({"name": "grpo", "std_eps": 0.0, "kl": kl} | settings)
    algorithm = build_algorithm(config, max_tokens=1)
    low, high = 1e-6, 1 - 1e-6
    for _ in range(22):
        middle = (low + high) / 2
        if descent(algorithm, middle, reference, size) < 0:  # the logit still rises
            low = middle
        else:
            high = middle
    return (low + high) / 2


@pytest.mark.parametrize(
    ("beta", "reference", "expected"),
    [
        (0.5, 0.3, {2: 0.710977, 4: 0.810384, 8: 0.853564, 16: 0.878441}),
        (0.04, 0.5, {2: 0.980400, 4: 0.988552, 8: 0.992418, 16: 0.994762}),
        (0.04, 0.1, {2: 0.964149, 4: 0.979151, 16: 0.990380}),
        (1.0, 0.25, {2: 0.500000, 4: 0.628940, 8: 0.674949, 64: 0.702713}),
        (2.0, 0.3, {2: 0.421954, 4: 0.502000, 16: 0.540890}),
    ],
)
def test_fixed_points_of_k3_in_the_loss_with_population_std(beta, reference, expected):
    for size, point in expected.items():
        assert resting_point(size, beta, reference) == pytest.approx(point, abs=2e-5)


@pytest.mark.parametrize(
    ("beta", "reference", "expected"), [(0.5, 0.3, 0.629746), (0.04, 0.5, 0.972515), (1.0, 0.25, 0.422533)]
)
def test_the_other_divisor_of_the_std_rests_elsewhere(beta, reference, expected):
    assert resting_point(2, beta, reference, scale="sample_std") == pytest.approx(expected, abs=2e-5)


UNSCALED = {"scale": "none", "baseline": "leave_one_out"}


@pytest.mark.parametrize("size", [2, 4])
def test_without_a_std_every_group_size_rests_where_the_divergence_says(size):
    # k3 in the loss: forward KL, g(x) = 1 / (1 - x): the same point as G = 2 with a std
    assert resting_point(size, 0.5, 0.3, **UNSCALED) == pytest.approx(0.710977, abs=2e-5)
    # k1 in the reward: reverse KL, the logit moves by 1 / beta: logit 0.3 + 2 = 1.1527
    in_reward = {"estimator": "k1", "place": "reward"}
    got = resting_point(size, 0.5, 0.3, **UNSCALED, kl=in_reward)
    assert got == pytest.approx(0.760004, abs=2e-5)
    # k2 in the loss descends the same divergence as k1 in the reward, for one step
    assert resting_point(size, 0.5, 0.3, **UNSCALED, kl={"estimator": "k2"}) == pytest.approx(
        0.760004, abs=2e-5
    )


def test_k1_in_the_loss_holds_nothing_back():
    kl = {"estimator": "k1", "allow_biased": True}
    assert resting_point(2, 0.5, 0.3, **UNSCALED, kl=kl) > 0.99
