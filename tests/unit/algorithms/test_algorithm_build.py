import pickle
from dataclasses import fields, replace

import pytest
import torch
from pydantic import ValidationError

from peira.algorithms.family import StepContext
from peira.build.algorithm import build_algorithm
from peira.config.algorithm import AlgorithmConfig
from peira.config.presets import PRESETS
from tests.unit.algorithms.tensors import every, train_batch


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_builds_and_survives_the_journey_to_a_worker(name):
    algorithm = build_algorithm(
        AlgorithmConfig.model_validate(name), max_tokens=8, channels={"math": 1.0, "format": 0.5}
    )
    travelled = pickle.loads(pickle.dumps(algorithm))
    rewards, mask = torch.tensor([[1.0, 0.0, 0.0, 1.0]]), torch.ones(4, 3, dtype=torch.bool)
    context = StepContext(
        outcomes=rewards,
        channels=torch.stack([rewards, 1 - rewards], dim=2),
        num_tokens=torch.full((1, 4), 3),
    )
    advantages = algorithm.advantages(rewards, every(rewards), context=context)
    assert torch.equal(travelled.advantages(rewards, every(rewards), context=context), advantages)
    assert (advantages[0, 0] > advantages[0, 1]).item()
    batch = algorithm.prepare(train_batch(mask=mask, advantages=advantages.T.expand(4, 3)))
    logprobs = torch.zeros(4, 3, requires_grad=True)
    loss = travelled.token_loss(logprobs, batch)
    (algorithm.weights(mask) * loss).sum().backward()
    # on-policy, every policy loss pushes each token by its advantage
    share = {"constant": 1 / 8, "sequence_sum": 1.0}.get(
        AlgorithmConfig.model_validate(name).average, 1 / 3
    ) / 4
    torch.testing.assert_close(logprobs.grad, -share * advantages.T.expand(4, 3))


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("rows", [[[0], [1], [2], [3]], [[0, 1, 2], [3]], [[3, 1], [0, 2]]])
def test_cutting_the_batch_changes_no_gradient(name, rows):
    settings = {"name": name, "kl": {"coefficient": 0.1}, "mismatch": {"max_drop": 0.05}}
    algorithm = build_algorithm(AlgorithmConfig.model_validate(settings), max_tokens=8)
    generator = torch.Generator().manual_seed(0)

    def noise():
        return 0.3 * torch.randn(4, 6, dtype=torch.float64, generator=generator)

    lengths = torch.tensor([6, 2, 5, 4])
    mask = (torch.arange(6) < lengths[:, None]) & (torch.arange(6) > 0)
    batch = algorithm.prepare(
        train_batch(
            mask=mask,
            lengths=lengths,
            group=torch.tensor([0, 0, 1, 1]),
            advantages=torch.tensor([[1.0], [-1.0], [0.5], [-0.5]], dtype=torch.float64).expand(4, 6),
            weights=algorithm.weights(mask),
            old_logprobs=noise(),
            sampling_logprobs=noise(),
            reference_logprobs=noise(),
        )
    )
    logprobs = (batch.old_logprobs + noise()).requires_grad_()
    (batch.weights * algorithm.token_loss(logprobs, batch)).sum().backward()
    whole = logprobs.grad.clone()
    logprobs.grad = None
    for part in rows:
        micro = batch.select(torch.tensor(part))
        own = logprobs[part][:, : micro.mask.shape[1]]
        (micro.weights * algorithm.token_loss(own, micro)).sum().backward()
    torch.testing.assert_close(logprobs.grad, whole, rtol=1e-12, atol=1e-15)


@pytest.mark.slow  # the first use of the meta device takes seconds
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_token_loss_stays_on_its_device_and_never_waits_for_it(name):
    # the meta device has no values: reading one, or mixing in a tensor of another device, raises
    settings = {"name": name, "kl": {"coefficient": 0.1}, "mismatch": {"max_drop": 0.5}}
    algorithm = build_algorithm(AlgorithmConfig.model_validate(settings), max_tokens=8)
    mask = torch.ones(4, 3, dtype=torch.bool)
    batch = train_batch(mask=mask, reference_logprobs=torch.zeros(4, 3), mismatch_weights=torch.ones(4, 3))
    moved = {
        field.name: value.to("meta")
        for field in fields(batch)
        if isinstance(value := getattr(batch, field.name), torch.Tensor)
    }
    logprobs = torch.zeros(4, 3, device="meta", requires_grad=True)
    loss = algorithm.token_loss(logprobs, replace(batch, **moved))
    loss.sum().backward()
    assert loss.shape == logprobs.grad.shape == (4, 3)


def test_a_preset_row_fills_what_is_not_given_and_yields_to_what_is():
    config = AlgorithmConfig.model_validate({"name": "dr_grpo", "clip_high": 0.3})
    assert (config.scale, config.average, config.clip_high) == ("none", "constant", 0.3)


def test_a_misspelt_preset_names_the_nearest():
    with pytest.raises(ValidationError, match="did you mean 'dr_grpo'"):
        AlgorithmConfig(name="drgrpo")


def test_the_default_is_the_standard_row():
    assert AlgorithmConfig() == AlgorithmConfig.model_validate("standard")


def test_the_token_loss_adds_policy_and_penalty():
    # ratio 1, A = 2: policy loss -2; times mismatch weight 0.5: -1
    # reference log-prob 0, log-prob 0.1: k2 = 0.005, coefficient 0.4 adds 0.002
    config = AlgorithmConfig.model_validate({"name": "grpo", "kl": {"coefficient": 0.4, "estimator": "k2"}})
    algorithm = build_algorithm(config, max_tokens=8)
    assert algorithm.needs_reference
    mask = torch.tensor([[True, False]])
    batch = train_batch(
        mask=mask,
        advantages=torch.tensor([[2.0, float("nan")]]),
        old_logprobs=torch.tensor([[0.1, float("nan")]]),
        reference_logprobs=torch.tensor([[0.0, float("nan")]]),
        mismatch_weights=torch.tensor([[0.5, float("nan")]]),
    )
    logprobs = torch.tensor([[0.1, float("nan")]], requires_grad=True)
    loss = algorithm.token_loss(logprobs, batch)
    loss.sum().backward()
    torch.testing.assert_close(loss.detach(), torch.tensor([[-1.0 + 0.4 * 0.005, 0.0]]))
    # d(-0.5 * 2 * ratio) = -1; d(0.4 * d^2 / 2) = 0.4 * 0.1
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-1.0 + 0.04, 0.0]]))


def test_without_a_penalty_no_reference_is_asked_for():
    assert not build_algorithm(AlgorithmConfig(), max_tokens=8).needs_reference
