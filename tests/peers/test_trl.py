"""The same tensors through TRL's loss and ours give the same number and the same gradient.

TRL's own `_compute_loss` runs, on a stand-in for the trainer that holds its settings and hands it our
log-probs.
"""

import warnings
from collections import defaultdict
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from peira.algorithms.batch import TrainBatch
from peira.build.algorithm import build_algorithm
from peira.config.algorithm import AlgorithmConfig

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("trl") is None, reason="TRL comes with the `peers` extra, not installed here"
    ),
]

MAX_TOKENS = 8


@pytest.fixture(scope="module")
def trl_loss():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL's imports warn; nothing of ours is imported here
        from trl import GRPOTrainer

    def loss(logprobs, batch, mask, *, loss_type, level="token", beta=0.0, importance=None, **settings):
        options = {
            "epsilon_low": 0.2,
            "epsilon_high": 0.2,
            "delta": None,
            "use_bias_correction_kl": False,
            "off_policy_mask_threshold": None,
        } | settings
        trainer = SimpleNamespace(
            _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None),
            get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
            aux_loss_enabled=False,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=options["off_policy_mask_threshold"],
            importance_sampling_level=level,
            beta=beta,
            args=SimpleNamespace(
                use_bias_correction_kl=options["use_bias_correction_kl"],
                delta=options["delta"],
                steps_per_generation=1,
            ),
            loss_type=loss_type,
            epsilon_low=options["epsilon_low"],
            epsilon_high=options["epsilon_high"],
            use_vllm=importance is not None,
            vllm_importance_sampling_correction=True,
            model=SimpleNamespace(training=True),
            current_gradient_accumulation_steps=1,
            max_completion_length=MAX_TOKENS,
            accelerator=SimpleNamespace(
                num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x, sync_gradients=True
            ),
            _entropy_bonus_enabled=False,
            _metrics={"train": defaultdict(list)},
        )
        empty = torch.zeros(logprobs.shape[0], 0, dtype=torch.int64)
        inputs = {
            "prompt_ids": empty,
            "prompt_mask": empty,
            "completion_ids": torch.zeros_like(logprobs, dtype=torch.int64),
            "completion_mask": mask.long(),
            "advantages": batch.advantages[:, 0],
            "old_per_token_logps": batch.old_logprobs,
            "sampling_per_token_logps": batch.old_logprobs,
            "ref_per_token_logps": batch.reference_logprobs,
            "importance_sampling_ratio": importance,
            "num_items_in_batch": mask.sum(),
        }
        return GRPOTrainer._compute_loss(trainer, None, inputs)

    return loss


def tensors():
    """Four completions of two to six tokens, far enough from the old policy to meet every bound."""
    generator = torch.Generator().manual_seed(3)

    def noise(scale):
        return scale * torch.randn(4, 6, dtype=torch.float64, generator=generator)

    mask = torch.arange(6) < torch.tensor([[6], [2], [5], [4]])
    old = -1.5 + noise(0.3)
    advantages = torch.tensor([[1.2], [-0.7], [0.4], [-1.1]], dtype=torch.float64).expand(4, 6)
    batch = TrainBatch(
        token_ids=torch.zeros(4, 6, dtype=torch.int64),
        lengths=mask.sum(dim=1),
        prompt_lengths=torch.zeros(4, dtype=torch.int64),
        group=torch.tensor([0, 0, 1, 1]),
        mask=mask,
        advantages=advantages.contiguous(),
        weights=torch.zeros(4, 6),
        sampling_logprobs=old + noise(0.3),
        old_logprobs=old,
        reference_logprobs=old + noise(0.5),
        policy_version=torch.zeros(4, dtype=torch.int64),
        temperature=1.0,
    )
    return (old + noise(0.4)).requires_grad_(), batch


CASES = {
    "grpo": ({"name": "grpo"}, {"loss_type": "grpo"}),
    "dr_grpo": ({"name": "dr_grpo"}, {"loss_type": "dr_grpo"}),
    "dapo": ({"name": "dapo"}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "bnpo": ({"name": "grpo", "average": "token_mean"}, {"loss_type": "bnpo"}),
    "dual clip": ({"name": "grpo", "dual_clip": 1.4}, {"loss_type": "grpo", "delta": 1.4}),
    "gspo": (
        {"name": "gspo", "clip_low": 0.05, "clip_high": 0.06},
        {"loss_type": "grpo", "level": "sequence", "epsilon_low": 0.05, "epsilon_high": 0.06},
    ),
    "cispo": ({"name": "cispo", "clip_high": 0.3}, {"loss_type": "cispo", "epsilon_high": 1.3}),
    "k3 in the loss": ({"name": "grpo", "kl": {"coefficient": 0.04}}, {"loss_type": "grpo", "beta": 0.04}),
    "ratio-weighted k3": (
        {"name": "dapo", "kl": {"coefficient": 0.04, "off_policy": True}},
        {"loss_type": "dapo", "epsilon_high": 0.28, "beta": 0.04, "use_bias_correction_kl": True},
    ),
    "off-policy mask": (
        {"name": "grpo", "mismatch": {"max_drop": 0.05}},
        {"loss_type": "grpo", "off_policy_mask_threshold": 0.05},
    ),
}


@pytest.mark.parametrize(("ours", "theirs"), CASES.values(), ids=CASES)
def test_loss_and_gradient_equal_those_of_trl(trl_loss, ours, theirs):
    settings = ours | {"mismatch": {"correction": "none"} | ours.get("mismatch", {})}
    algorithm = build_algorithm(AlgorithmConfig.model_validate(settings), max_tokens=MAX_TOKENS)
    logprobs, batch = tensors()
    mine = (algorithm.weights(batch.mask) * algorithm.token_loss(logprobs, algorithm.prepare(batch))).sum()
    (my_gradient,) = torch.autograd.grad(mine, logprobs)
    other = trl_loss(logprobs, batch, batch.mask, **theirs)
    (other_gradient,) = torch.autograd.grad(other, logprobs)
    torch.testing.assert_close(mine.double(), other, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(my_gradient, other_gradient, rtol=1e-6, atol=1e-8)
    assert my_gradient.abs().sum() > 0


def test_truncated_sampler_correction_equals_that_of_trl(trl_loss):
    config = AlgorithmConfig.model_validate({"name": "dapo", "mismatch": {"high": 1.1}})
    algorithm = build_algorithm(config, max_tokens=MAX_TOKENS)
    logprobs, batch = tensors()
    prepared = algorithm.prepare(batch)
    mine = (algorithm.weights(batch.mask) * algorithm.token_loss(logprobs, prepared)).sum()
    weights = (batch.old_logprobs - batch.sampling_logprobs).exp().clamp(max=1.1)
    other = trl_loss(logprobs, batch, batch.mask, loss_type="dapo", epsilon_high=0.28, importance=weights)
    torch.testing.assert_close(mine.double(), other, rtol=1e-6, atol=1e-8)
    assert prepared.mismatch_weights is not None
