"""Sampler against learner: importance weights for a gap that no loss sees.

Three policies meet in a batch. mu drew the tokens (`sampling_logprobs`), pi_old is the learner before the
batch's first update (`old_logprobs`), pi is the learner now. The clip of a policy loss handles pi against
pi_old. What stands between mu and pi_old (another implementation, another precision, older weights) is
handled here:

| mode | ratio inside the clip | weight outside | pass for old log-probs |
|---|---|---|---|
| uncorrected | pi / pi_old | none: biased | yes |
| decoupled | pi / pi_old | pi_old / mu, capped or masked | yes |
| bypass | pi / mu | none; a second weight would count the gap twice | no |

Weights are detached and fixed for every update on the batch. Only the product over the whole row is
unbiased; it also has a variance that grows exponentially with length.
"""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.algorithms.batch import TrainBatch

Level = Literal["token", "sequence_product", "sequence_geometric"]
Excess = Literal["truncate", "mask"]

MAX_LOG_WEIGHT = 20.0
"""Sums of log-ratios are held within this many nats before exp; far beyond any useful cap."""


def log_gap(
    old_logprobs: Float[Tensor, "N T"],
    sampling_logprobs: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    level: Level,
) -> Float[Tensor, "N T"]:
    """log(pi_old / mu) of each token, of its row's product, or of the row's geometric mean; 0 when masked.

    What libraries call the "sequence" ratio is the product in some and the geometric mean in others; here
    each has its own name.
    """
    gap = torch.where(mask, (old_logprobs - sampling_logprobs).detach(), 0.0)
    match level:
        case "token":
            return gap
        case "sequence_product":
            row = gap.sum(dim=1, keepdim=True)
        case "sequence_geometric":
            row = gap.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(mask, row, 0.0)


def mismatch_weights(
    old_logprobs: Float[Tensor, "N T"],
    sampling_logprobs: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    level: Level,
    excess: Excess,
    low: float,
    high: float,
    veto: float | None = None,
    normalise: bool = False,
) -> Float[Tensor, "N T"]:
    """pi_old / mu at this level, with what lies above `high` truncated, or outside [low, high] set to 0.

    "truncate" caps at `high` and leaves small weights alone (TIS); "mask" drops the loss of a token, or of a
    whole row at the sequence levels (masked IS; at the token level with [0.5, 5] IcePop). Exactly 0 where
    `mask` is False. A masked token keeps its place in the denominators, so masking shrinks the step.

    Args:
        low: read by "mask" only.
        veto: a row with any token ratio below this is dropped whole; 1e-4 or less.
        normalise: divide by the mean over trained tokens, so that the step keeps its size.

    Source: the library documentation of verl (rollout correction), TRL, AReaL and ms-swift; Ling team 2025
        (arXiv:2510.18855) for the token band, not read directly.
    """
    gap = log_gap(old_logprobs, sampling_logprobs, mask, level=level)
    weights = gap.clamp(-MAX_LOG_WEIGHT, MAX_LOG_WEIGHT).exp()
    match excess:
        case "truncate":
            weights = weights.clamp(max=high)
        case "mask":
            weights = torch.where((weights >= low) & (weights <= high), weights, 0.0)
    if veto is not None:
        tokens = log_gap(old_logprobs, sampling_logprobs, mask, level="token").exp()
        vetoed = (mask & (tokens < veto)).any(dim=1, keepdim=True)
        weights = torch.where(vetoed, 0.0, weights)
    weights = torch.where(mask, weights, 0.0)
    if normalise:
        mean = weights.sum() / mask.sum().clamp(min=1)
        weights = weights / torch.where(mean > 0, mean, 1.0)
    return weights


def with_mismatch_weights(
    batch: TrainBatch,
    *,
    level: Level,
    excess: Excess,
    low: float,
    high: float,
    veto: float | None,
    normalise: bool,
) -> TrainBatch:
    """The batch with `mismatch_weights`; as it is where the old log-probs are the sampler's own (bypass)."""
    same = torch.where(batch.mask, batch.old_logprobs == batch.sampling_logprobs, True)
    if same.all():
        return batch
    weights = mismatch_weights(
        batch.old_logprobs,
        batch.sampling_logprobs,
        batch.mask,
        level=level,
        excess=excess,
        low=low,
        high=high,
        veto=veto,
        normalise=normalise,
    )
    return replace(batch, mismatch_weights=weights)


def rows_in_agreement(
    old_logprobs: Float[Tensor, "N T"],
    sampling_logprobs: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    *,
    measure: Literal["k2", "k3"],
    limit: float,
) -> Bool[Tensor, "N"]:
    """Rows whose mean k2 or k3 between sampler and learner stays within `limit`; empty rows agree.

    Source: verl's documentation of rollout correction (k3 limits of 0.001 to 0.01).
    """
    gap = log_gap(old_logprobs, sampling_logprobs, mask, level="token")
    value = gap.square() / 2 if measure == "k2" else torch.expm1(gap) - gap
    mean = torch.where(mask, value, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    return mean <= limit


def effective_sample_size(weights: Float[Tensor, "*shape"]) -> float:
    """(sum w)^2 / sum w^2: how many equally weighted samples these are worth; 0 when all weights are."""
    total, squares = weights.double().sum(), weights.double().square().sum()
    return float(total.square() / squares) if squares > 0 else 0.0


def log_linear_proximal(
    logprobs: Float[Tensor, "N T"],
    sampling_logprobs: Float[Tensor, "N T"],
    *,
    sampled_version: Int[Tensor, "N"],
    proximal_version: int,
    current_version: int,
) -> Float[Tensor, "N T"]:
    """Old log-probs without a forward pass: on the line between the sampler's and the current ones.

    sampling + a * (logprobs - sampling) with a = (proximal - sampled) / (current - sampled) in policy
    versions; detached. Rows sampled at the current version keep the sampler's.

    Source: AReaL's documentation of proximal approximations.
    """
    behind = (current_version - sampled_version).clamp(min=1).to(logprobs.dtype)
    share = ((proximal_version - sampled_version).to(logprobs.dtype) / behind).clamp(0.0, 1.0)[:, None]
    return sampling_logprobs + share * (logprobs.detach() - sampling_logprobs)


def too_stale(
    policy_version: Int[Tensor, "*shape"], *, current_version: int, max_lag: int
) -> Bool[Tensor, "*shape"]:
    """Rollouts drawn more than `max_lag` optimizer steps ago. When that is all of them, say so: do not idle.

    Source: prime-rl's documentation (8 steps by default).
    """
    return current_version - policy_version > max_lag


def sampling_capacity(
    *,
    batch_size: int,
    max_lag: int,
    current_version: int,
    accepted: int,
    running: int,
    max_concurrent: int,
) -> int:
    """How many more rollouts may start so that none is trained on more than `max_lag` versions late.

    min(max_concurrent - running, (max_lag + version + 1) * batch_size - (accepted + running)), at least 0.

    Args:
        batch_size: rollouts per optimizer step.
        accepted: rollouts finished and kept since the run began.

    Source: AReaL's staleness manager, read in its documentation.
    """
    room = (max_lag + current_version + 1) * batch_size - (accepted + running)
    return max(0, min(max_concurrent - running, room))
