"""Several reward channels into one advantage without summing them first."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.advantage import Scale, group_advantages
from peira.algorithms.family import StepContext
from peira.errors import ConfigError


def conditioned(
    channels: Float[Tensor, "P G K"], conditions: tuple[tuple[int, int, float], ...]
) -> Float[Tensor, "P G K"]:
    """Channels in which an easy reward counts only where a hard one is met.

    Args:
        conditions: (easy, hard, threshold): channel `easy` becomes 0 where channel `hard` is below threshold.
    """
    result = channels.clone()
    for easy, hard, threshold in conditions:
        met = channels[..., hard] >= threshold
        result[..., easy] = torch.where(met | channels[..., easy].isnan(), result[..., easy], 0.0)
    return result


def channel_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    weights: tuple[float, ...],
    scale: Scale,
    eps: float,
    conditions: tuple[tuple[int, int, float], ...] = (),
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """GDPO: each channel against its group's mean and std, then the weighted sum of those.

    Summed before normalisation, (0, 1) and (0, 2) become the same advantages; normalised before the sum they
    stay apart. A channel that was not judged for a rollout (NaN) adds nothing to it and is left out of that
    channel's statistics. Whitening over the step's rollouts is the method's last part and comes after this
    (`advantage.whiten`). Channels that add up to a constant within a group cancel under equal weights.

    Args:
        rewards: not read; `context.channels` is.
        weights: of the normalised channels, in their order; 0 leaves a channel out.

    Source: arXiv:2601.05242, section 3 (read in part); conditioned rewards from the same.
    """
    if context is None:
        raise ConfigError("algorithm: combining channels needs `channels` of every rollout")
    channels = conditioned(context.need("channels", "combining channels"), conditions)
    if channels.shape[2] != len(weights):
        raise ConfigError(f"algorithm: {len(weights)} channel weights for {channels.shape[2]} channels")
    total = torch.zeros_like(rewards)
    for k, weight in enumerate(weights):
        if weight == 0:
            continue
        own = channels[..., k].to(rewards.dtype)
        known = judged & ~own.isnan()
        total = total + weight * group_advantages(own, known, baseline="group_mean", scale=scale, eps=eps)
    return total
