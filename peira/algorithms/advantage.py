"""Group-relative advantages: each rollout against its siblings."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from peira.algorithms.family import StepContext
from peira.algorithms.passk import pass_at_k
from peira.errors import ConfigError, DataError

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


def no_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """0 for everybody: the outcome teaches nothing, steps do."""
    return torch.zeros_like(rewards)


def plain_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """The reward itself: no sibling is looked at. Wants whitening over the batch behind it (REINFORCE++)."""
    has_spread(rewards, judged)  # refuses rewards that are not numbers
    return torch.where(judged, rewards, 0.0)


def sign_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """2 * reward - 1, for rewards in [0, 1]: a constant baseline of one half. No group is ever dead.

    Raises:
        DataError: a judged reward lies outside [0, 1].

    Source: arXiv:2605.07689 (abstract).
    """
    _in_unit_interval(rewards, judged, "sign advantages")
    return torch.where(judged, 2 * rewards - 1, 0.0)


def maximum_likelihood_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """(reward - group mean) / group mean: the gradient of log(success), as far as n samples can see it.

    For binary rewards the expected gradient is that of sum over k < n of pass@k / k: the first n - 1 terms of
    log p. A prompt of success p gets the weight (1 - (1 - p)^(n - 1)) / p. Groups without spread get 0.

    Raises:
        DataError: a judged reward is negative: the mean would no longer be a probability.

    Source: Tajwar et al. 2026 (arXiv:2602.02710), read in its project page and TRL's documentation; the
        weight above is our derivation (the form without a baseline has n in place of n - 1), tested by
        enumeration.
    """
    alive = has_spread(rewards, judged).unsqueeze(1)
    if (judged & (rewards < 0)).any():
        raise DataError(
            "rewards: maximum-likelihood advantages need rewards >= 0; drop penalties or shift them"
        )
    count = judged.sum(dim=1, keepdim=True).clamp(min=1)
    mean = torch.where(judged, rewards, 0.0).sum(dim=1, keepdim=True) / count
    return torch.where(judged & alive, (rewards - mean) / torch.where(mean > 0, mean, 1.0), 0.0)


def pass_at_k_advantages(
    rewards: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    k: int,
    baseline: Baseline,
    scale: Scale,
    eps: float,
    context: StepContext | None = None,
) -> Float[Tensor, "P G"]:
    """Advantages for the chance that at least one of k attempts is right, averaged over all subsets of k.

    Let M_i be the share of k-subsets holding member i that succeed, n the judged members and c the right
    ones: 1 for a right member, 1 - C(n - 1 - c, k - 1) / C(n - 1, k - 1) for a wrong one. The mean of M over
    the group is the unbiased pass@k, R.

    * "leave_one_out", scale "none": k * (M_i - the siblings' own pass@k). Its expected gradient is exactly
      that of pass@k, k (1 - p)^(k - 1) times that of p. With k = 1 this is leave-one-out itself.
    * "group_mean", scale "population_std": (M_i - R) / (sqrt(R (1 - R)) + eps), the published analytic form.

    A group of which every k-subset succeeds, or none, gets 0; so does one with at most k judged members.

    Raises:
        DataError: a judged reward is neither 0 nor 1.

    Source: Chen et al. 2025 (arXiv:2508.10751) for the analytic form; Walder and Karkhanis 2025
        (arXiv:2505.15201) for unbiased subset gradients; neither read in full, both forms tested by
        enumeration.
    """
    if (judged & (rewards != 0) & (rewards != 1)).any():
        raise DataError(
            "rewards: pass@k advantages need rewards of 0 or 1; use one binary verifier, no shaping"
        )
    right = judged & (rewards == 1)
    rows = []
    for p in range(rewards.shape[0]):
        n, c = int(judged[p].sum()), int(right[p].sum())
        rows.append(_pass_at_k_pair(n, c, k, baseline, scale, eps))
    if not rows:
        return torch.zeros_like(rewards)
    values = torch.tensor(rows, dtype=rewards.dtype, device=rewards.device)  # [P, 2]: right, wrong
    return torch.where(right, values[:, :1], torch.where(judged, values[:, 1:], 0.0))


def _pass_at_k_pair(
    n: int, c: int, k: int, baseline: Baseline, scale: Scale, eps: float
) -> tuple[float, float]:
    """Advantages of a right and of a wrong member, of n judged with c right."""
    if n <= k or c == 0 or n - c < k:
        return 0.0, 0.0
    mean = pass_at_k(n, c, k)
    wrong_subset = pass_at_k(n - 1, c, k - 1) if k > 1 else 0.0
    if baseline == "leave_one_out":
        pair = (k * (1.0 - pass_at_k(n - 1, c - 1, k)), k * (wrong_subset - pass_at_k(n - 1, c, k)))
    else:
        pair = (1.0 - mean, wrong_subset - mean)
    if scale == "none":
        return pair
    spread = mean * (1 - mean) * (n / (n - 1) if scale == "sample_std" else 1.0)
    return pair[0] / (spread**0.5 + eps), pair[1] / (spread**0.5 + eps)


def whiten(
    advantages: Float[Tensor, "P G"],
    judged: Bool[Tensor, "P G"],
    *,
    over: Literal["rollouts", "tokens"],
    eps: float,
    hold_dead: bool,
    num_tokens: Int[Tensor, "P G"] | None = None,
) -> Float[Tensor, "P G"]:
    """(A - mean) / (std + eps) over all judged rollouts of the step, or over all their tokens.

    Never run it on a part of the step: with a single group it undoes what it follows. Divisor n - 1.

    Args:
        hold_dead: groups that are all 0 stay exactly 0. Right after group-relative advantages, where 0 means
            "no comparison": averaged over tokens, the mean is not 0, and would push such groups down.
        num_tokens: each rollout's length; needed over tokens, where long rollouts weigh more.

    Source: Hu et al. 2025 (arXiv:2501.03262) over tokens; arXiv:2601.05242, step 3, over rollouts.
    """
    share = judged.to(advantages.dtype)
    if over == "tokens":
        if num_tokens is None:
            raise ConfigError("algorithm.whiten = 'tokens': needs `num_tokens` of every rollout")
        share = share * num_tokens
    total = share.sum()
    if total < 2:
        return torch.zeros_like(advantages)
    mean = (share * advantages).sum() / total
    std = ((share * (advantages - mean).square()).sum() / (total - 1)).sqrt()
    flat = std <= FLAT
    white = torch.where(judged & ~flat, (advantages - mean) / torch.where(flat, 1.0, std + eps), 0.0)
    dead = (advantages == 0).all(dim=1, keepdim=True)
    return torch.where(dead, 0.0, white) if hold_dead else white


def _in_unit_interval(rewards: Float[Tensor, "P G"], judged: Bool[Tensor, "P G"], who: str) -> None:
    if not torch.where(judged, (rewards >= 0) & (rewards <= 1), True).all():
        worst = rewards[judged & ~((rewards >= 0) & (rewards <= 1))][0].item()
        raise DataError(
            f"rewards: {who} need values in [0, 1], not {worst}; drop penalties or rescale weights"
        )
