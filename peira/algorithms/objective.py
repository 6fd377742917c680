"""The loss of one token: policy term, weighted for the sampler's mismatch, plus penalties."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.batch import TokenLoss, TrainBatch

Columns = Callable[
    [Float[Tensor, "N T"], Float[Tensor, "N T"], Float[Tensor, "N T"], Bool[Tensor, "N T"]],
    Float[Tensor, "N T"],
]
"""(logprobs, old logprobs, advantages, mask) -> one number per token."""
TokenFilter = Callable[
    [Float[Tensor, "N T"], Float[Tensor, "N T"], Float[Tensor, "N T"], Bool[Tensor, "N T"]],
    Bool[Tensor, "N T"],
]
"""(logprobs, old logprobs, advantages, mask) -> the part of the mask that keeps its policy loss."""


def token_objective(
    logprobs: Float[Tensor, "N T"],
    batch: TrainBatch,
    *,
    policy_loss: Columns,
    advantage_factor: Columns | None = None,
    kept: TokenFilter | None = None,
    penalties: tuple[TokenLoss, ...] = (),
) -> Float[Tensor, "N T"]:
    """mismatch weight * policy loss + penalties, per token: a `TokenLoss` once the keywords are bound.

    The mismatch weight multiplies after clipping, so it scales the step and never moves a clip bound; it does
    not touch the penalties. Penalties are averaged by the same weights as the policy loss, so a coefficient
    keeps its meaning at any length.

    Args:
        advantage_factor: multiplies the advantages first (FIPO).
        kept: tokens whose policy loss counts (True); the others lose it and keep their place in the averages.
    """
    advantages = batch.advantages
    if advantage_factor is not None:
        advantages = advantages * advantage_factor(logprobs, batch.old_logprobs, advantages, batch.mask)
    loss = policy_loss(logprobs, batch.old_logprobs, advantages, batch.mask)
    if kept is not None:
        loss = torch.where(kept(logprobs, batch.old_logprobs, batch.advantages, batch.mask), loss, 0.0)
    if batch.mismatch_weights is not None:
        loss = loss * torch.where(batch.mask, batch.mismatch_weights.detach(), 0.0)
    for penalty in penalties:
        loss = loss + penalty(logprobs, batch)
    return loss
