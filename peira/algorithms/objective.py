"""The loss of one token: policy term, corrected for the sampler's mismatch, plus penalties."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.batch import TrainBatch

PolicyLoss = Callable[
    [Float[Tensor, "N T"], Float[Tensor, "N T"], Float[Tensor, "N T"], Bool[Tensor, "N T"]],
    Float[Tensor, "N T"],
]
"""(logprobs, old logprobs, advantages, mask) -> loss per token, 0 where the mask is False."""
Penalty = Callable[[Float[Tensor, "N T"], Float[Tensor, "N T"], Bool[Tensor, "N T"]], Float[Tensor, "N T"]]
"""(logprobs, reference logprobs, mask) -> penalty per token, 0 where the mask is False."""


def token_objective(
    logprobs: Float[Tensor, "N T"],
    batch: TrainBatch,
    *,
    policy_loss: PolicyLoss,
    penalty: Penalty | None = None,
    penalty_coefficient: float = 0.0,
) -> Float[Tensor, "N T"]:
    """mismatch weight * policy loss + coefficient * penalty, per token.

    The mismatch weight multiplies after clipping, so it scales the step and never moves a clip bound; it does
    not touch the penalty. The penalty is averaged by the same weights as the policy loss, so the coefficient
    keeps its meaning at any length. This is a `TokenLoss` once the keywords are bound.
    """
    loss = policy_loss(logprobs, batch.old_logprobs, batch.advantages, batch.mask)
    if batch.mismatch_weights is not None:
        loss = loss * torch.where(batch.mask, batch.mismatch_weights.detach(), 0.0)
    if penalty is not None:
        assert batch.reference_logprobs is not None, "the algorithm says needs_reference; the batch has none"
        loss = loss + penalty_coefficient * penalty(logprobs, batch.reference_logprobs, batch.mask)
    return loss
