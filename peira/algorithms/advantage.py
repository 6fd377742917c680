"""Group-relative advantages: each rollout against its siblings."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from peira.algorithms.family import StepContext
from peira.errors import DataError

Baseline = Literal["group_mean", "leave_one_out"]
Scale = Literal["none", "population_std", "sample_std"]

FLAT = 1e-6
"""Judged rewards this close together, in reward units, are equal: weighted sums round differently."""


def has_spread(rewards: Float[Tensor, "P G"], judged: Bool[Tensor, "P G"]) -> Bool[Tensor, "P"]:
    """Whether a group can rank its members: two or more judged, and not all rewards equal.

    Looks at the rewards themselves: the float32 mean of seven 0.1s is not 0.1, so centred rewards of a
    collapsed group need not be 0. The value at an unjudged position is never read.

    Raises:
        DataError: a judged reward is NaN or infinite.
    """
    if not torch.where(judged, rewards, 0.0).isfinite().all():
        row, column = (judged & ~rewards.isfinite()).nonzero()[0].tolist()
        raise DataError(
            f"rewards: [{row}, {column}] = {rewards[row, column].item()}: expected a finite number; "
            "mark rollouts without a reward as not judged"
        )
    lowest = torch.where(judged, rewards, torch.inf).amin(dim=1)
    highest = torch.where(judged, rewards, -torch.inf).amax(dim=1)
    return highest - lowest > FLAT


def group_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    baseline: Baseline,
    scale: Scale,
    eps: float,
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """(reward - baseline) / (std + eps), over the judged members of each group.

    `baseline` is the mean of the whole group, or of the siblings only ("leave_one_out", which is the first
    times n / (n - 1) for n judged members). `scale` divides by the group's standard deviation with divisor n
    ("population_std") or n - 1 ("sample_std"), or by nothing. A group without spread gets exactly 0, and so
    do unjudged members, groups of one and groups with a single judged member.

    Args:
        rewards: any real scale; the value at an unjudged position is never read.
        eps: in reward units, added to the standard deviation; unused when `scale` is "none".
        context: not read; every advantage function takes it.

    Raises:
        DataError: a judged reward is NaN or infinite.

    Source: Shao et al. 2024 (arXiv:2402.03300), section 4.1.2, for the scaled form (the paper does not say
        which divisor; TRL and verl use n - 1); Liu et al. 2025 (arXiv:2503.20783) for "none"; Ahmadian et al.
        2024 (arXiv:2402.14740) for leave-one-out.
    """
    alive = has_spread(rewards, judged).unsqueeze(1)  # [P, 1]
    count = judged.sum(dim=1, keepdim=True).clamp(min=2).to(rewards.dtype)  # fewer than two: not alive
    mean = torch.where(judged, rewards, 0.0).sum(dim=1, keepdim=True) / count
    centred = torch.where(judged & alive, rewards - mean, 0.0)
    squares = centred.square().sum(dim=1, keepdim=True)
    if baseline == "leave_one_out":
        centred = centred * (count / (count - 1))
    match scale:
        case "none":
            return centred
        case "population_std":
            std = (squares / count).sqrt()
        case "sample_std":
            std = (squares / (count - 1)).sqrt()
    return torch.where(alive, centred / (std + eps), 0.0)
